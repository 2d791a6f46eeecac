"""Runs all rules over all mutants, writes `caught.toml`, and names survivors that `equivalent.toml` does not explain.

    python -m tests.mutants.update

Exits with 1 when a survivor has no reason, or a mutant that is called equivalent is caught.
"""

from __future__ import annotations

from tests.mutants.judge import CAUGHT, EQUIVALENT, caught_by, read, write
from tests.mutants.mutate import LAUNCHES, mutants


def main() -> int:
    reasons = read(EQUIVALENT)
    table: dict[str, dict[str, str]] = {}
    problems = 0
    for kernel in LAUNCHES:
        table[kernel] = {}
        for mutant in mutants(kernel):
            rule = caught_by(mutant)
            explained = mutant.name in reasons.get(kernel, {})
            if rule is not None:
                table[kernel][mutant.name] = rule
            if (rule is None) != explained:
                problems += 1
                state = "is called equivalent but reported by " + rule if rule else "survives without a reason"
                print(f"{kernel} line {mutant.line}: {mutant.name} {state}")
    write(CAUGHT, table)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
