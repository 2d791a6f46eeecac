"""A run against the last good run of each of its cells, and its toolchains against each other."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from verifier.config import Bar
from verifier.findings import Severity
from verifier.nightly.cells import CellStore
from verifier.nightly.history import History
from verifier.nightly.rows import CellRow, FindingRow, KernelRow, cells_of, last_good
from verifier.nightly.settings import Settings, Threshold
from verifier.report.comparison import (
    Across,
    Build,
    CodeChange,
    Column,
    Comparison,
    Counts,
    FindingChange,
    MetricChange,
    Unchecked,
    VerdictChange,
)

Pair = tuple[KernelRow, KernelRow | None]  # a kernel now, and in the last good run
_RANK = {severity.value: rank for rank, severity in enumerate((Severity.NOTE, Severity.WARNING, Severity.ERROR))}


def compare(history: History, run: int, settings: Settings, store: CellStore) -> Comparison:
    """What changed in a run, and which of it is a regression by these settings."""
    cells = cells_of(history, run)
    bases = {label: base for label, base in last_good(history, run).items() if label in cells}
    loaded = {base: cells_of(history, base) for base in sorted(set(bases.values()))}
    before = {label: loaded[base][label] for label, base in bases.items()}
    pairs = [
        (kernel, before[label].kernels.get(kernel.build) if label in before else None)
        for label, cell in cells.items()
        for kernel in cell.kernels.values()
        if cell.state == "checked"
    ]
    return Comparison(
        bases=tuple(loaded),
        new=_findings([(new, old) for new, old in pairs], settings.bar),
        fixed=_findings([(old, new) for new, old in pairs if old is not None], None),
        verdicts=tuple(_verdicts(pairs)),
        code=tuple(_code(cells, before, store)),
        metrics=tuple(_metrics(pairs, settings.thresholds)),
        unchecked=tuple(
            Unchecked(build=label, state=cell.state, what=cell.what)
            for label, cell in cells.items()
            if cell.state != "checked"
        ),
        toolchains=tuple(_toolchains(cells, before)),
    )


def _findings(pairs: Sequence[Pair], bar: Bar | None) -> tuple[FindingChange, ...]:
    """Findings of the first of each pair that the second lacks; equal ones of several builds are one."""
    builds: dict[tuple[str, str], list[Build]] = defaultdict(list)
    rows: dict[tuple[str, str], FindingRow] = {}
    for kernel, other in pairs:
        known = {key for key, row in other.findings.items() if not row.waived} if other else set()
        for key, row in kernel.findings.items():
            if not row.waived and key not in known:
                rows[key, row.severity] = row
                builds[key, row.severity].append(kernel.build)
    changes = [_change(row, tuple(builds[key]), bar) for key, row in rows.items()]
    return tuple(sorted(changes, key=lambda c: (not c.failing, -_RANK[c.severity], c.rule, c.builds, c.fingerprint)))


def _change(row: FindingRow, builds: tuple[Build, ...], bar: Bar | None) -> FindingChange:
    relative = os.path.relpath(row.file) if row.file else ""
    return FindingChange(
        fingerprint=row.fingerprint,
        rule=row.rule,
        name=row.name,
        severity=row.severity,
        verdict=row.verdict,
        role=row.role,
        message=row.message,
        builds=builds,
        file=row.file if relative.startswith("..") else relative,
        line=row.line,
        failing=bar is not None and _fails(row, bar),
    )


def _fails(row: FindingRow, bar: Bar) -> bool:
    if row.verdict == "unknown":
        return bar.strict
    return _RANK[row.severity] >= _RANK[bar.fail_on.value]


def _verdicts(pairs: Sequence[Pair]) -> Iterator[VerdictChange]:
    for kernel, other in pairs:
        if other is None:
            continue
        for rule in sorted({*kernel.counts, *other.counts}):
            old, new = other.counts.get(rule), kernel.counts.get(rule)
            if (old or Counts()) != (new or Counts()):
                yield VerdictChange(build=kernel.build, rule=rule, before=old, after=new)


def _code(cells: Mapping[Build, CellRow], before: Mapping[Build, CellRow], store: CellStore) -> Iterator[CodeChange]:
    for label, cell in cells.items():
        base = before.get(label)
        for build, kernel in cell.kernels.items() if base else ():
            other = base.kernels.get(build) if base else None
            if base is None or other is None:
                continue
            ptx, sass = _differs(other.ptx, kernel.ptx), _differs(other.sass, kernel.sass)
            if ptx or sass:
                yield CodeChange(
                    build=build, ptx=ptx, sass=sass, before=_folder(store, base.key), after=_folder(store, cell.key)
                )


def _differs(before: str, after: str) -> bool | None:
    return before != after if before and after else None


def _folder(store: CellStore, key: str) -> str:
    folder = store.artifacts(key)
    return os.path.relpath(folder) if folder.is_dir() else ""


def _metrics(pairs: Sequence[Pair], thresholds: Mapping[str, Threshold]) -> Iterator[MetricChange]:
    for kernel, other in pairs:
        for name, after in kernel.metrics.items():
            before = other.metrics.get(name) if other else None
            if before is None or before == after:
                continue
            limit = thresholds.get(name)
            yield MetricChange(
                build=kernel.build,
                name=name,
                before=before,
                after=after,
                limit=f"+{limit}" if limit else "",
                failing=limit is not None and limit.exceeded(before, after),
            )


def _toolchains(cells: Mapping[Build, CellRow], before: Mapping[Build, CellRow]) -> list[str]:
    changes: dict[str, None] = {}
    for label, cell in cells.items():
        base = before.get(label)
        if base is None or base.fingerprint == cell.fingerprint:
            continue
        old, new = json.loads(base.fingerprint), json.loads(cell.fingerprint)
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) != new.get(key):
                changes[f"{label.toolchain}: {key} {_delta(old.get(key, ''), new.get(key, ''))}"] = None
    return list(changes)


def _delta(old: str, new: str) -> str:
    """Of two lists of packages only those that are not in both."""
    left, right = old.split(), new.split()
    gone = " ".join(word for word in left if word not in right)
    come = " ".join(word for word in right if word not in left)
    return f"{gone or 'nothing'} -> {come or 'nothing'}"


def across(cells: Mapping[Build, CellRow]) -> list[Across]:
    """Kernels that several toolchains build: whose code is the same, and where verdicts differ."""
    groups: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for cell in cells.values():
        for kernel in cell.kernels.values() if cell.state == "checked" else ():
            groups[kernel.build.kernel, kernel.build.arch].append(kernel)
    return [_across(name, arch, rows) for (name, arch), rows in groups.items() if len(rows) > 1]


def _across(name: str, arch: str, rows: Sequence[KernelRow]) -> Across:
    rules = sorted({rule for row in rows for rule in row.counts})
    differing = [rule for rule in rules if len({row.counts.get(rule) for row in rows}) > 1]
    ptx, sass = _letters([row.ptx for row in rows]), _letters([row.sass for row in rows])
    columns = tuple(
        Column(
            toolchain=row.build.toolchain,
            ptx=ptx[row.ptx],
            sass=sass[row.sass],
            verdicts=tuple(str(row.counts[rule]) if rule in row.counts else "not run" for rule in differing),
        )
        for row in rows
    )
    return Across(kernel=name, arch=arch, rules=tuple(differing), columns=columns)


def _letters(identities: Sequence[str]) -> dict[str, str]:
    distinct = [identity for identity in dict.fromkeys(identities) if identity]
    return {"": "", **{identity: _letter(number) for number, identity in enumerate(distinct)}}


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number)
