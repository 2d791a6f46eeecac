"""The tables of the history, version by version. A version that was released is never edited: a change is a new one."""

from __future__ import annotations

from collections.abc import Sequence

# runs.state: running, finished, superseded (never finished, and a later run had other cells).
# runs.exit_code: what the run ended with; 0, or a reason in `accepted`, makes it one to compare with.
# cells.state: as in cells.py. findings.waived: the reason of a waiver, "" where there is none.
_FIRST = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    plan TEXT NOT NULL,
    planned INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished', 'superseded')),
    started TEXT NOT NULL,
    finished TEXT,
    exit_code INTEGER,
    accepted TEXT NOT NULL DEFAULT '',
    verifier TEXT NOT NULL
);
CREATE TABLE toolchains (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    UNIQUE (name, fingerprint)
);
CREATE TABLE cells (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    kernel TEXT NOT NULL,
    arch TEXT NOT NULL,
    toolchain INTEGER NOT NULL REFERENCES toolchains (id),
    key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('checked', 'failed', 'error', 'time', 'memory', 'crash')),
    what TEXT NOT NULL,
    seconds REAL NOT NULL,
    UNIQUE (run, kernel, arch, toolchain)
);
CREATE INDEX cells_by_kernel ON cells (kernel, arch);
CREATE TABLE kernels (
    id INTEGER PRIMARY KEY,
    cell INTEGER NOT NULL REFERENCES cells (id),
    name TEXT NOT NULL,
    arch TEXT NOT NULL,
    ptx TEXT NOT NULL,
    sass TEXT NOT NULL,
    UNIQUE (cell, name, arch)
);
CREATE INDEX kernels_by_name ON kernels (name, arch);
CREATE TABLE metrics (
    kernel INTEGER NOT NULL REFERENCES kernels (id),
    name TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (kernel, name)
) WITHOUT ROWID;
CREATE TABLE obligations (
    kernel INTEGER NOT NULL REFERENCES kernels (id),
    rule TEXT NOT NULL,
    proved INTEGER NOT NULL,
    violated INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    skipped TEXT NOT NULL,
    PRIMARY KEY (kernel, rule)
) WITHOUT ROWID;
CREATE TABLE findings (
    kernel INTEGER NOT NULL REFERENCES kernels (id),
    fingerprint TEXT NOT NULL,
    rule TEXT NOT NULL,
    name TEXT NOT NULL,
    severity TEXT NOT NULL,
    hazard TEXT NOT NULL,
    verdict TEXT NOT NULL,
    role TEXT NOT NULL,
    message TEXT NOT NULL,
    ptx_line INTEGER,
    file TEXT NOT NULL,
    line INTEGER,
    waived TEXT NOT NULL,
    PRIMARY KEY (kernel, fingerprint)
) WITHOUT ROWID;
"""

MIGRATIONS: Sequence[str] = (_FIRST,)


def statements(script: str) -> list[str]:
    """The statements of one version; none of them has a semicolon of its own."""
    return [statement.strip() for statement in script.split(";") if statement.strip()]
