"""What `verifier nightly` prints: the end of a run, the list of runs, one run, one kernel over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from verifier.nightly.history import History, Run
from verifier.nightly.outputs import Summary, Totals
from verifier.nightly.rows import CellRow, KernelRow, cells_of
from verifier.report.comparison import Across, Build, Comparison, Counts, FindingChange
from verifier.report.html import is_resource
from verifier.report.text import many, short_name

MAX_ITEMS = 20
_CODE = 8


def run_text(summary: Summary, outcome: str, pages: Sequence[str]) -> str:
    """Totals, then what changed, then where to read on."""
    lines = [f"run {summary.run}: {outcome}", f"  {totals_line(summary.totals)}"]
    lines += [f"  {line}" for line in comparison_lines(summary.comparison)]
    lines += [f"  {page}" for page in pages]
    return "\n".join(lines) + "\n"


def totals_line(totals: Totals) -> str:
    return (
        f"{many(totals.cells, 'cell')}, {totals.checked} checked, {many(totals.kernels, 'kernel build')}; "
        f"{many(totals.proved, 'obligation')} proved, {totals.violated} violated, {totals.unknown} unknown; "
        f"{many(totals.errors, 'error')}, {many(totals.warnings, 'warning')}, {many(totals.notes, 'note')}, "
        f"{totals.waived} waived"
    )


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Every kind of change, the longest lists cut."""
    known = ", ".join(map(str, comparison.bases))
    yield f"compared with run {known}" if known else "no good run came before: every finding is new"
    yield from _cut([f"NOT CHECKED ({u.state}) {u.build}: {_first(u.what)}" for u in comparison.unchecked])
    for word, changes in (("new  ", comparison.new), ("fixed", comparison.fixed)):
        yield from _cut([f"{word} {_finding(change)}" for change in changes])
    failing = [change for change in comparison.metrics if change.failing]
    yield from _cut([f"grew  {c.name} {c.before:g} -> {c.after:g} (allowed {c.limit}): {c.build}" for c in failing])
    others = len(comparison.metrics) - len(failing)
    if others:
        yield f"{many(others, 'metric')} changed within limits"
    yield from _cut(
        [f"rule  {c.rule}: {_counts(c.before)} -> {_counts(c.after)}: {c.build}" for c in comparison.verdicts]
    )
    yield from _cut([f"toolchain {change}" for change in comparison.toolchains])
    yield from _cut([f"code  {change.levels} changed: {change.build}" for change in comparison.code])


def _counts(counts: Counts | None) -> str:
    return "not run" if counts is None else str(counts)


def _finding(change: FindingChange) -> str:
    archs = ", ".join(dict.fromkeys(build.arch for build in change.builds))
    tools = ", ".join(dict.fromkeys(build.toolchain for build in change.builds))
    kernel = short_name(change.builds[0].kernel)
    word = change.severity if change.verdict == "violated" else "unknown"
    at = f" {change.place}:" if change.place else ""
    return f"{word} {change.rule} {change.name}:{at} {change.message} ({kernel}; {archs}; {tools})"


def _cut(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MAX_ITEMS]
    if len(lines) > MAX_ITEMS:
        yield f"... and {len(lines) - MAX_ITEMS} more"


def _first(text: str) -> str:
    return text.partition("\n")[0]


def runs_text(history: History) -> str:
    """One line a run, the newest first."""
    lines = []
    for run in history.runs():
        cells = cells_of(history, run.id)
        checked = sum(cell.state == "checked" for cell in cells.values())
        lines.append(f"{run.id:>5}  {run.started}  {_state(run):28}  {checked}/{run.planned} cells checked")
    return "\n".join(lines) + "\n" if lines else "no run yet\n"


def _state(run: Run) -> str:
    if run.state != "finished":
        return "cut off" if run.state == "running" else run.state
    words = {0: "good", 1: "regression", 2: "incomplete"}.get(run.exit_code or 0, str(run.exit_code))
    return f"{words}, accepted: {run.accepted}" if run.accepted else words


def detail_text(run: Run, cells: Mapping[Build, CellRow], comparison: Comparison, across: Sequence[Across]) -> str:
    """One run: its state, what changed, toolchains side by side."""
    lines = [f"run {run.id}: {_state(run)}; started {run.started}, verifier {run.verifier}"]
    checked = sum(cell.state == "checked" for cell in cells.values())
    lines.append(f"  {len(cells)} of {many(run.planned, 'cell')} done, {checked} checked")
    lines += [f"  {line}" for line in comparison_lines(comparison)]
    if across:
        lines.append("toolchains side by side (the same letter: the same code)")
    for row in across:
        lines.append(f"  {short_name(row.kernel)} {row.arch}")
        for column in row.columns:
            verdicts = "; ".join(f"{rule}: {text}" for rule, text in zip(row.rules, column.verdicts, strict=True))
            lines.append(f"    {column.toolchain:28} PTX {column.ptx or '-'}  SASS {column.sass or '-'}  {verdicts}")
    return "\n".join(lines) + "\n"


def trend_text(history: History, kernel: str, archs: Sequence[str], toolchains: Sequence[str]) -> str:
    """One kernel over time: a line for each run in which something about a build changed, and for the first."""
    series: dict[Build, list[tuple[Run, KernelRow]]] = {}
    for run in reversed(history.runs()):
        for cell in cells_of(history, run.id).values():
            for row in cell.kernels.values() if cell.state == "checked" else ():
                build = row.build
                if is_of(build.kernel, kernel) and _among(build.arch, archs) and _among(build.toolchain, toolchains):
                    series.setdefault(build, []).append((run, row))
    lines: list[str] = []
    for build in sorted(series):
        lines += [str(build), *_series(series[build]), ""]
    return "\n".join(lines)


def is_of(full: str, kernel: str) -> bool:
    """Whether a row of the matrix is of a kernel: itself, its configurations, its file, or its entry in a file."""
    return full == kernel or full.startswith((f"{kernel}[", f"{kernel}/")) or full.endswith(f"/{kernel}")


def _among(value: str, wanted: Sequence[str]) -> bool:
    return not wanted or value in wanted


def _series(points: Sequence[tuple[Run, KernelRow]]) -> Iterator[str]:
    previous: KernelRow | None = None
    same = 0
    for run, row in points:
        if previous is not None and _shown(row) == _shown(previous):
            same += 1
            continue
        if same:
            yield f"         {many(same, 'more run')} with no change"
        same = 0
        yield f"  run {run.id:>3}  {run.started[:10]}  {_shown(row)}"
        previous = row
    if same:
        yield f"         {many(same, 'more run')} with no change"


def _shown(row: KernelRow) -> str:
    counts = row.counts.values()
    verdicts = f"{sum(c.proved for c in counts)}/{sum(c.violated for c in counts)}/{sum(c.unknown for c in counts)}"
    metrics = "  ".join(f"{name} {value:g}" for name, value in sorted(row.metrics.items()) if is_resource(name))
    code = f"ptx {row.ptx[:_CODE] or '-'}  sass {row.sass[:_CODE] or '-'}"
    return f"proved/violated/unknown {verdicts}  {code}  {metrics}"
