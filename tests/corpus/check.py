"""Run `verifier check` over a corpus and print one line a kernel: what it decided, what it could not parse, how long.

    python -m tests.corpus.check DIR [NAME...] [--profile isa] [--json FILE]

Each kernel is checked in a process of its own, so the seconds are those of a whole run and a crash costs one line. The
exit status is 1 when a kernel made the verifier crash, ended in bad input, or left a line unparsed; findings do not
count, because the corpus holds kernels that are known to be wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

_TIMEOUT = 600.0
_FINDINGS = (0, 1)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel's outcome.

    `seconds` is wall time, `megabytes` the size of PTX and cubin; `problem` says why there is no report, and is empty
    when there is one.
    """

    kernel: str
    exit: int
    seconds: float
    megabytes: float = 0.0
    problem: str = ""
    roles: tuple[str, ...] = ()
    proved: int = 0
    violated: int = 0
    unknown: int = 0
    errors: int = 0
    warnings: int = 0
    notes: int = 0
    unparsed: int = 0
    rules: dict[str, int] = {}
    reasons: dict[str, int] = {}

    @property
    def broken(self) -> bool:
        """The verifier did not do its work on this kernel."""
        return self.exit not in _FINDINGS or self.unparsed > 0 or bool(self.problem)


def kernels_in(folder: Path, parts: Iterable[str]) -> Iterator[Path]:
    """Artifact folders and single cubins below `folder` whose path holds one of `parts` (all when there are none)."""
    wanted = tuple(parts)
    found = {path.parent for path in folder.rglob("kernel.cubin")}
    found |= {path for path in folder.rglob("*.cubin") if path.name != "kernel.cubin"}
    found |= {path for path in folder.rglob("*.ptx") if path.name != "kernel.ptx"}
    for path in sorted(found):
        name = str(path.relative_to(folder))
        if not wanted or any(part in name for part in wanted):
            yield path


def _size(path: Path) -> int:
    """Bytes of the files that are checked."""
    files = [path] if path.is_file() else [path / "kernel.ptx", path / "kernel.cubin"]
    return sum(file.stat().st_size for file in files if file.exists())


def check(path: Path, name: str, options: list[str]) -> Row:
    """Check one kernel in a process of its own."""
    command = [sys.executable, "-m", "verifier", "check", "--format", "json", *options, str(path)]
    started = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return Row(kernel=name, exit=-1, seconds=_TIMEOUT, problem=f"longer than {_TIMEOUT:.0f} s")
    seconds = time.perf_counter() - started
    try:
        report = json.loads(done.stdout)
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        problem = lines[-1] if "Traceback" in done.stderr else " ".join(lines[:3])
        return Row(kernel=name, exit=done.returncode, seconds=seconds, problem=problem or "no report")
    row = _row(name, done.returncode, seconds, report)
    if done.returncode in _FINDINGS:
        return row
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return msgspec.structs.replace(row, problem=" ".join(lines[:2]) or "no reason given")


def _row(name: str, code: int, seconds: float, report: dict[str, Any]) -> Row:
    summary = report["summary"]
    kernels = report["kernels"]
    unknown = [o for kernel in kernels for o in kernel["obligations"] if o["verdict"] == "unknown"]
    rules = collections.Counter(
        f"{finding['rule']}:{finding['severity']}" for finding in report["findings"] if finding["verdict"] == "violated"
    )
    reasons = collections.Counter(f"{o['rule']}: {o['reason']}" for o in unknown)
    counts = ("proved", "violated", "unknown", "errors", "warnings", "notes", "unparsed")
    return Row(
        kernel=name,
        exit=code,
        seconds=seconds,
        roles=tuple(role["name"] for kernel in kernels for role in kernel["roles"]),
        rules=dict(rules),
        reasons=dict(reasons.most_common()),
        **{key: summary[key] for key in counts},
    )


def line_of(row: Row) -> str:
    """One line of the table."""
    if row.problem:
        return f"{row.kernel:<64} exit {row.exit:>2} {row.seconds:6.1f} s  {row.problem[:200]}"
    rules = " ".join(f"{rule}={count}" for rule, count in sorted(row.rules.items()))
    return (
        f"{row.kernel:<64} exit {row.exit:>2} {row.seconds:6.1f} s  unparsed {row.unparsed}  roles {len(row.roles)}  "
        f"proved {row.proved} violated {row.violated} unknown {row.unknown}  "
        f"errors {row.errors} warnings {row.warnings} notes {row.notes}  {rules}"
    )


def summary_of(rows: list[Row]) -> str:
    """The last line: totals over all kernels."""
    total = {
        key: sum(getattr(row, key) for row in rows) for key in ("proved", "violated", "unknown", "errors", "unparsed")
    }
    seconds, size = sum(row.seconds for row in rows), sum(row.megabytes for row in rows)
    decided = total["proved"] + total["violated"]
    share = 100 * decided / max(1, decided + total["unknown"])
    return (
        f"{len(rows)} kernels: {total['proved']} proved, {total['violated']} violated, {total['unknown']} unknown "
        f"({share:.1f} % decided), {total['errors']} errors, {total['unparsed']} unparsed lines, "
        f"{sum(1 for row in rows if not row.roles)} without roles, {sum(row.broken for row in rows)} broken, "
        f"{seconds:.0f} s for {size:.1f} MB ({seconds / max(size, 1e-9):.1f} s per MB)"
    )


def main() -> int:
    """Check the corpus named on the command line; 1 when the verifier did not do its work on some kernel."""
    parser = argparse.ArgumentParser(description="Run `verifier check` over a corpus of artifact folders.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help="check only kernels whose path holds NAME")
    parser.add_argument("--profile", choices=("default", "isa"), default="default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows, with the reasons of unknowns")
    options = parser.parse_args()
    rows = []
    for path in kernels_in(options.folder, options.names):
        row = check(path, str(path.relative_to(options.folder)), ["--profile", options.profile])
        rows.append(msgspec.structs.replace(row, megabytes=_size(path) / 1e6))
        print(line_of(rows[-1]), flush=True)
    if not rows:
        parser.error(f"no kernel in {options.folder}")
    reasons: collections.Counter[str] = collections.Counter()
    for row in rows:
        reasons.update(row.reasons)
    for reason, count in reasons.most_common(20):
        print(f"unknown {count:>5}  {reason[:200]}")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    print(summary_of(rows))
    return 1 if any(row.broken for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
