"""The report as one static HTML page: it needs no script, no network and no other file.

Everything that comes from a kernel passes through the template's escaping.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from verifier.errors import ToolchainError
from verifier.findings import Finding, Location, Severity, Verdict
from verifier.report.comparison import Across, Comparison
from verifier.report.github import Found, grouped
from verifier.report.results import Excerpts, Results, sources
from verifier.report.text import MEANING, place, short_name, summary
from verifier.rules import KernelOutcome, Rule, RuleCount

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "page.html.j2"
TOOLCHAIN = "toolchain"  # key under which a build names its toolchain as the matrix calls it
CONTEXT = 2
MAX_STEPS = 200
Number = int | float


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel under one rule. `style`: proved, violated, unknown, waived, idle, skipped."""

    style: str
    text: str
    title: str
    href: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel build of the matrix."""

    kernel: str
    arch: str
    built: str
    source: str
    cells: tuple[Cell, ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One quoted line."""

    number: int
    text: str
    here: bool


class Step(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    fact: str
    place: str
    quoted: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, explained."""

    anchor: str
    style: str
    code: str
    name: str
    message: str
    kernel: str
    role: str
    builds: tuple[str, ...]
    sources: str
    place: str
    file: str
    source: tuple[Line, ...]
    ptx: tuple[Line, ...]
    steps: tuple[Step, ...]
    hidden: int
    hazard: str
    fix: str


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """`delta` is signed text against the last good run, "" where nothing is known or nothing changed."""

    name: str
    value: Number
    delta: str = ""
    failing: bool = False


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What is on the page beside results: a title, facts about the run, the comparison, links to other pages."""

    title: str
    facts: Mapping[str, str] = {}
    outcome: str = ""
    good: bool = True
    comparison: Comparison | None = None
    across: tuple[Across, ...] = ()
    links: Mapping[str, str] = {}


def render(results: Results, excerpts: Excerpts, rules: Sequence[Rule], page: Page) -> str:
    """The page. Raises `ToolchainError` when jinja2 is missing."""
    found = list(grouped(results))
    columns = _columns(results.kernels, rules)
    listed = {finding.fingerprint for finding, _ in found}
    shown = _template().render(
        page=page,
        results=results,
        summary=summary(results),
        columns=columns,
        idle=_idle(results.kernels, columns, rules),
        rows=[_row(kernel, columns) for kernel in results.kernels],
        stories=[_story(item, excerpts) for item in found],
        waived=[(kernel, item) for kernel in results.kernels for item in kernel.suppressed],
        names=_metric_names(results.kernels),
        metrics=[_metrics(kernel, page.comparison) for kernel in results.kernels],
        listed=listed,
        anchor=anchor,
        short=short_name,
        place=place,
    )
    return f"{shown}\n"


def is_resource(metric: str) -> bool:
    """Registers, bytes and the like, not the number of some opcode."""
    return metric.islower()


def anchor(fingerprint: str) -> str:
    """The id of a finding on the page."""
    return f"f-{fingerprint[:16]}"


def _template() -> Template:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise ToolchainError("the HTML report needs jinja2", do="pip install ptx-sass-verifier[html]") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE)


def _columns(kernels: Sequence[KernelOutcome], rules: Sequence[Rule]) -> list[Rule]:
    """Rules that found something to check in at least one kernel."""
    busy = {count.rule for kernel in kernels for count in kernel.ledger if not count.idle and not count.skipped}
    return [rule for rule in rules if rule.code in busy]


def _idle(kernels: Sequence[KernelOutcome], columns: Sequence[Rule], rules: Sequence[Rule]) -> list[str]:
    ran = {count.rule for kernel in kernels for count in kernel.ledger}
    shown = {rule.code for rule in columns}
    return [rule.code for rule in rules if rule.code in ran - shown]


def _row(kernel: KernelOutcome, columns: Sequence[Rule]) -> Row:
    counts = {count.rule: count for count in kernel.ledger}
    cells = tuple(_cell(kernel, counts.get(rule.code) or RuleCount(rule=rule.code)) for rule in columns)
    return Row(kernel=short_name(kernel.name), arch=kernel.arch, built=built(kernel), source=kernel.source, cells=cells)


def built(kernel: KernelOutcome) -> str:
    """What built a kernel: the toolchain as the matrix calls it, else the assembler."""
    return kernel.toolchain.get(TOOLCHAIN) or kernel.toolchain.get("assembler", "")


def _cell(kernel: KernelOutcome, count: RuleCount) -> Cell:
    if count.skipped:
        return Cell(style="skipped", text="n/a", title=f"not run: {count.skipped}")
    if count.idle:
        return Cell(style="idle", text="·", title="nothing to check")
    title = f"{count.rule}: {count.proved} proved, {count.violated} violated, {count.unknown} unknown"
    open_findings = [finding for finding in kernel.findings if finding.rule == count.rule]
    href = f"#{anchor(open_findings[0].fingerprint)}" if open_findings else ""
    broken = [f for f in open_findings if f.verdict is Verdict.VIOLATED]
    if broken:
        style = "violated" if any(f.severity is Severity.ERROR for f in broken) else "warned"
        href = f"#{anchor(broken[0].fingerprint)}"
        return Cell(style=style, text=f"{len(broken)}✗", title=title, href=href)
    if open_findings or count.unknown > _waived(kernel, count, Verdict.UNKNOWN):
        return Cell(style="unknown", text=f"{count.unknown}?", title=title, href=href)
    if count.violated or count.unknown:
        return Cell(style="waived", text=f"{count.proved} w", title=f"{title}, waived", href="#waived")
    return Cell(style="proved", text=str(count.proved), title=title)


def _waived(kernel: KernelOutcome, count: RuleCount, verdict: Verdict) -> int:
    return sum(s.finding.rule == count.rule and s.finding.verdict is verdict for s in kernel.suppressed)


def _story(item: Found, excerpts: Excerpts) -> Story:
    finding, builds = item
    kernel = builds[0]
    location = finding.location
    steps = finding.witness[:MAX_STEPS]
    return Story(
        anchor=anchor(finding.fingerprint),
        style="unknown" if finding.verdict is Verdict.UNKNOWN else finding.severity.value,
        code=finding.rule,
        name=finding.name,
        message=finding.message,
        kernel=short_name(finding.kernel),
        role=finding.role,
        builds=tuple(dict.fromkeys(" ".join((k.arch, built(k))).strip() for k in builds)),
        sources=sources(builds),
        place=place(location),
        file=_near(location.file) if location.file else kernel.source,
        source=tuple(_python(location, excerpts)),
        ptx=tuple(_ptx(finding, kernel, excerpts)),
        steps=tuple(
            Step(role=s.role, fact=s.fact, place=place(s.location), quoted=_quoted(s.location, kernel, excerpts))
            for s in steps
        ),
        hidden=len(finding.witness) - len(steps),
        hazard=MEANING[finding.hazard] if finding.verdict is Verdict.VIOLATED else "",
        fix=finding.fix,
    )


def _python(location: Location, excerpts: Excerpts) -> Iterator[Line]:
    if not location.file or not location.line:
        return
    numbers = range(max(1, location.line - CONTEXT), location.line + CONTEXT + 1)
    quoted = [(number, excerpts.python_line(location.file, number)) for number in numbers]
    if any(text for _, text in quoted):
        yield from (Line(number=number, text=text, here=number == location.line) for number, text in quoted)


def _ptx(finding: Finding, kernel: KernelOutcome, excerpts: Excerpts) -> Iterator[Line]:
    line = finding.location.ptx_line
    text = excerpts.ptx_line(kernel, line) if line else ""
    if line and text:
        yield Line(number=line, text=" ".join(text.split()), here=True)


def _quoted(location: Location, kernel: KernelOutcome, excerpts: Excerpts) -> str:
    return " ".join(excerpts.ptx_line(kernel, location.ptx_line).split()) if location.ptx_line else ""


def _near(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def _metric_names(kernels: Sequence[KernelOutcome]) -> list[str]:
    """Resources; counts of single opcodes stand on the page only where they changed."""
    return list(dict.fromkeys(name for kernel in kernels for name in kernel.metrics if is_resource(name)))


def _metrics(kernel: KernelOutcome, comparison: Comparison | None) -> tuple[KernelOutcome, str, dict[str, Metric]]:
    changes = {
        change.name: change
        for change in (comparison.metrics if comparison else ())
        if (change.build.kernel, change.build.arch, change.build.toolchain) == (kernel.name, kernel.arch, built(kernel))
    }
    found = {}
    for name, value in kernel.metrics.items():
        change = changes.get(name)
        delta = f"{change.after - change.before:+g}" if change else ""
        found[name] = Metric(name=name, value=value, delta=delta, failing=bool(change and change.failing))
    return kernel, built(kernel), found
