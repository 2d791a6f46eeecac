"""The report for people: each violation with excerpts and witness, what is unknown, a ledger, one last line."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from verifier.findings import Finding, Hazard, Location, Severity, Verdict
from verifier.report.results import ASSEMBLED_HERE, Excerpts, Results
from verifier.rules import KernelOutcome, RuleCount

Paint = Callable[[str, str], str]  # (text, style name) -> text

MAX_STEPS = 8
MAX_PLACES = 4
MAX_NAME = 72
WIDTH = 116
MEANING = {
    Hazard.CONTRACT: "contract: the PTX memory model does not order it",
    Hazard.CODEGEN: "codegen: the SASS itself shows it",
    Hazard.PERFORMANCE: "performance: it is correct, and it costs",
}


def plain(text: str, _style: str) -> str:
    """The paint of files and pipes: none."""
    return text


def render(results: Results, excerpts: Excerpts, paint: Paint = plain) -> str:
    """The whole report; the last line is the summary."""
    lines: list[str] = []
    if results.failures:
        lines += [paint(_incomplete(results) + "; what follows is not everything", "error"), ""]
    for kernel in results.kernels:
        for finding in kernel.findings:
            if finding.verdict is Verdict.VIOLATED:
                lines += [*_finding(finding, kernel, excerpts, paint), ""]
    for kernel in results.kernels:
        lines += _unknowns(kernel, paint)
    for kernel in results.kernels:
        lines.append(_ledger(kernel, paint, mixed=results.mixed))
        lines += [f"  assumed: {assumption}" for assumption in kernel.assumptions]
        lines += _strangers(kernel, paint)
        lines += _waived(kernel, paint)
    lines += [f"{paint('note', 'note')}: {notice}" for notice in results.notices]
    lines.append(summary(results, paint))
    return "\n".join(lines) + "\n"


def _finding(finding: Finding, kernel: KernelOutcome, excerpts: Excerpts, paint: Paint) -> Iterator[str]:
    style = finding.severity.value
    head = paint(f"{style}[{finding.rule} {finding.name}]", style)
    yield paint(f"{head}: {finding.message}", "strong")
    yield f"  in kernel {short_name(kernel.name)} ({kernel.arch}), role {finding.role}; {kernel.source}"
    yield from _excerpt(finding.location, kernel, excerpts, paint, caret=True)
    if finding.witness:
        yield "  how it happens:"
        yield from _witness(finding, kernel, excerpts, paint)
    yield f"  = {MEANING[finding.hazard]}"
    if finding.fix:
        yield f"  = {paint('help', 'help')}: {finding.fix}"
    yield f"  = `verifier explain {finding.rule}` tells more"


def _witness(finding: Finding, kernel: KernelOutcome, excerpts: Excerpts, paint: Paint) -> Iterator[str]:
    steps = finding.witness
    hidden = max(0, len(steps) - MAX_STEPS)
    head = MAX_STEPS // 2
    for number, step in enumerate(steps, 1):
        if hidden and head < number <= head + hidden:
            if number == head + 1:
                yield f"     ... {hidden} more steps (--format json has them all)"
            continue
        where = place(step.location)
        yield f"  {number:>2}. {step.role}: {step.fact}" + (f"  [{where}]" if where else "")
        quoted = excerpts.ptx_line(kernel, step.location.ptx_line) if step.location.ptx_line else ""
        if quoted and step.location != finding.location:
            yield paint(f"        {_cut(_flat(quoted))}", "quote")


def _excerpt(
    location: Location, kernel: KernelOutcome, excerpts: Excerpts, paint: Paint, *, caret: bool
) -> Iterator[str]:
    quoted = excerpts.ptx_line(kernel, location.ptx_line) if location.ptx_line else ""
    at = f" at SASS {location.sass_offset:#06x}" if location.sass_offset is not None else ""
    if quoted:
        text = _cut(_flat(quoted))
        yield f"  --> PTX line {location.ptx_line}{at}"
        yield f"   {paint('|', 'rule')} {text}"
        if caret:
            yield f"   {paint('|', 'rule')} {paint('^' * len(text.split('//')[0].rstrip()), 'error')}"
    elif location.ptx_line or at:
        yield f"  -->{f' PTX line {location.ptx_line}' if location.ptx_line else ''}{at}"
    if location.file and location.line:
        yield f"  --> {_near(location.file)}:{location.line}"
        source = excerpts.python_line(location.file, location.line)
        if source:
            yield f"   {paint('|', 'rule')} {_cut(source.strip())}"


def _unknowns(kernel: KernelOutcome, paint: Paint) -> Iterator[str]:
    """Unknown obligations grouped by rule and reason, each group with a count and its first places."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    waived = {(item.finding.rule, item.finding.role, item.finding.location) for item in kernel.suppressed}
    for obligation in kernel.obligations:
        known = (obligation.rule, obligation.role, obligation.location) in waived
        if obligation.verdict is Verdict.UNKNOWN and not known:
            where = place(obligation.location) or "no place"
            groups[obligation.rule, obligation.reason or "no reason given"].append(f"{obligation.role}: {where}")
    for (rule, reason), places in groups.items():
        shown = "; ".join(places[:MAX_PLACES])
        more = f"; and {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else ""
        yield f"{paint(f'unknown[{rule}]', 'unknown')} {len(places)} x {reason}"
        yield f"  in kernel {short_name(kernel.name)} ({kernel.arch}), {kernel.source}; {shown}{more}"


def _strangers(kernel: KernelOutcome, paint: Paint) -> Iterator[str]:
    """Instructions that the tables do not know: what they do to memory is not in any proof."""
    if kernel.unknown_opcodes:
        ranked = sorted(kernel.unknown_opcodes.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{opcode} x{number}" for opcode, number in ranked[:MAX_PLACES])
        more = f", and {many(len(ranked) - MAX_PLACES, 'more opcode')}" if len(ranked) > MAX_PLACES else ""
        total = many(sum(kernel.unknown_opcodes.values()), "instruction")
        yield f"  {paint('unknown to the tables', 'unknown')}: {total}, {listed}{more}"


def _waived(kernel: KernelOutcome, paint: Paint) -> Iterator[str]:
    """Findings that somebody waived: one line each."""
    for item in kernel.suppressed:
        finding = item.finding
        where = place(finding.location)
        yield (
            f"  {paint('waived', 'quote')} {finding.rule} {finding.verdict.value}, {finding.role}"
            f"{f' at {where}' if where else ''}: {item.reason} ({item.origin})"
        )


def _ledger(kernel: KernelOutcome, paint: Paint, *, mixed: bool) -> str:
    """Counts of one kernel; `mixed`: its name alone does not tell which input it is from."""
    worked = [_count(count) for count in kernel.ledger if not count.idle and not count.skipped]
    idle = [count.rule for count in kernel.ledger if count.idle]
    skipped: dict[str, list[str]] = defaultdict(list)
    for count in kernel.ledger:
        if count.skipped:
            skipped[count.skipped].append(count.rule)
    parts = worked or ["no obligation"]
    if idle:
        parts.append(f"nothing to check for {' '.join(idle)}")
    parts += [f"not run: {' '.join(rules)} ({reason})" for reason, rules in skipped.items()]
    assembler = kernel.toolchain.get("assembler", "")
    built = f", assembled by {assembler}" if assembler else ""
    source = f", {kernel.source}" if mixed else ""
    return f"{paint(short_name(kernel.name), 'strong')} ({kernel.arch}{source}{built}): {'; '.join(parts)}"


def _count(count: RuleCount) -> str:
    numbers = [("proved", count.proved), ("VIOLATED", count.violated), ("unknown", count.unknown)]
    return f"{count.rule} {', '.join(f'{n} {word}' for word, n in numbers if n)}"


def summary(results: Results, paint: Paint = plain) -> str:
    """The last line of a report: totals and versions."""
    totals = results.totals
    archs = sorted({kernel.arch for kernel in results.kernels})
    text = (
        f"{many(totals.kernels, 'kernel')} ({', '.join(archs) or 'none'}): "
        f"{many(totals.proved, 'obligation')} proved, {totals.violated} violated, {totals.unknown} unknown; "
        f"{many(totals.errors, 'error')}, {many(totals.warnings, 'warning')}, {many(totals.notes, 'note')}; "
        + (f"{totals.suppressed} waived; " if totals.suppressed else "")
        + f"{many(totals.unparsed, 'unparsed line')}; "
        + (f"{many(totals.unknown_instructions, 'unknown instruction')}; " if totals.unknown_instructions else "")
        + (f"{many(totals.not_run, 'rule')} not run; " if totals.not_run else "")
        + _versions(results)
    )
    if results.failures:
        return paint(f"{_incomplete(results)}: {text}", "error")
    return paint(text, _summary_style(totals.errors, totals.unknown + totals.unknown_instructions + totals.not_run))


def _versions(results: Results) -> str:
    """Who made the machine code, and the tools installed here: a cubin may come from another assembler."""
    tools = results.tools
    named = (kernel.toolchain.get("assembler", "") for kernel in results.kernels)
    made = sorted({name.removesuffix(ASSEMBLED_HERE) for name in named} - {""})
    here = [
        f"{name} {version or 'not installed'}"
        for name, version in (("ptxas", tools.ptxas), ("nvdisasm", tools.nvdisasm), ("dsl", tools.dsl))
    ]
    return (f"assembled by {', '.join(made)}; " if made else "") + f"tools here: {', '.join(here)}"


def _summary_style(errors: int, unknown: int) -> str:
    if errors:
        return Severity.ERROR.value
    return "unknown" if unknown else "good"


def _incomplete(results: Results) -> str:
    return f"INCOMPLETE, {many(len(results.failures), 'input')} could not be checked"


def place(location: Location) -> str:
    """`PTX 812, SASS 0x34b0, gemm.py:412`, as far as it is known."""
    parts = []
    if location.ptx_line is not None:
        parts.append(f"PTX {location.ptx_line}")
    if location.sass_offset is not None:
        parts.append(f"SASS {location.sass_offset:#06x}")
    if location.file and location.line:
        parts.append(f"{PurePath(location.file).name}:{location.line}")
    return ", ".join(parts)


def _near(file: str) -> str:
    """A path as seen from the working directory, where it lies below."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def short_name(name: str) -> str:
    """A mangled name cut to what a line can bear; JSON has it whole."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 15]}...{name[-12:]}"


def many(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _flat(line: str) -> str:
    """A line with single blanks: compilers align operands with tabs."""
    return " ".join(line.split())


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


__all__: Sequence[str] = ["Paint", "many", "place", "plain", "render", "short_name", "summary"]
