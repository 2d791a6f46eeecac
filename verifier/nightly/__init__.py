"""The nightly job: kernels x configurations x architectures x toolchains, compiled, checked and compared.

settings.py     nightly.toml
toolchains.py   environments with a DSL of their own, assemblers by wheel
plan.py         the cells of the matrix, each with a key that covers everything that decides its result
cells.py        one cell: a pure function from its description to its result, in a process with limits
history.py      SQLite: runs, cells, metrics, obligations, findings (migrations.py has the tables)
compare.py      a run against the last good run of each cell
run.py          one run: resume, execute, record, finish
outputs.py      page, SARIF, JUnit, summaries, alert
"""
