"""The report as Markdown, for the job summary of a workflow or a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.diff.claims import Claim
from verifier.diff.expect import Verdict
from verifier.diff.hunks import HunkKind
from verifier.diff.kernels import KernelDiff
from verifier.diff.lines import LineKind
from verifier.diff.results import DiffResults, cost, headline, many, near, place
from verifier.diff.text import short

MAX_CLAIMS = 10


def render(results: DiffResults, verdict: Verdict | None = None) -> str:
    """The whole report; unchanged kernels are one line together."""
    lines = [f"### {_cell(headline(results))}", ""]
    if results.toolchain:
        lines += [f"**The toolchain changed:** {'; '.join(results.toolchain)}", ""]
    for kernel in results.kernels:
        if kernel.differs:
            lines += [*_kernel(kernel), ""]
    same = [short(kernel.name) for kernel in results.kernels if not kernel.differs]
    if same:
        lines += [f"Unchanged: {', '.join(f'`{name}`' for name in dict.fromkeys(same))}", ""]
    if verdict is not None:
        lines.append(f"**The claim of `{verdict.file}` {'holds' if verdict.holds else 'does not hold'}.**")
        lines += [f"* {_cell(failure)}" for failure in verdict.failures]
    return "\n".join(lines) + "\n"


def _kernel(kernel: KernelDiff) -> Iterator[str]:
    yield f"#### `{short(kernel.name)}` {kernel.arch}"
    yield ""
    if kernel.main is not None:
        yield f"{kernel.main.sentence[:1].upper()}{kernel.main.sentence[1:]}."
        yield ""
        for claim in kernel.main.claims[:MAX_CLAIMS]:
            yield from _claim(claim, kernel)
    yield from _skeletons(kernel)
    yield from _costs(kernel)
    yield from _verdicts(kernel)


def _claim(claim: Claim, kernel: KernelDiff) -> Iterator[str]:
    first = claim.hunks[0]
    removed = () if claim.kind is HunkKind.MOVED else first.removed
    yield "```diff"
    yield f"@@ {claim.count} x @@"
    for sign, side in (("-", removed), ("+", first.added)):
        for line in side:
            if line.kind is not LineKind.LABEL:
                yield f"{sign} {line.pattern if claim.count > 1 else line.text}"
    yield "```"
    yield ", ".join(f"{p.role} `{near(place(p.location, kernel.roots))}`" for p in claim.places)
    yield ""


def _skeletons(kernel: KernelDiff) -> Iterator[str]:
    for skeleton in kernel.skeletons:
        state = "identical" if skeleton.identical else f"{skeleton.before} -> {skeleton.after}"
        yield f"* {skeleton.level.upper()} synchronization skeleton: {state} ({many(skeleton.after, 'operation')})"
    yield ""


def _costs(kernel: KernelDiff) -> Iterator[str]:
    rows, equal = cost(kernel.metrics)
    if not rows:
        return
    yield "| cost | before | after | in loops |"
    yield "|---|---:|---:|---|"
    for row in rows:
        loops = f"{row.loops.before} -> {row.loops.after}" if row.loops else ""
        yield f"| {_cell(row.name)} | {_number(row.delta.before)} | {_number(row.delta.after)} | {loops} |"
    yield ""
    if equal:
        yield f"{many(equal, 'other count')} equal."
        yield ""


def _verdicts(kernel: KernelDiff) -> Iterator[str]:
    verdicts = kernel.verdicts
    for word, findings in (("Fixed", verdicts.fixed), ("**New**", verdicts.new)):
        for finding in findings:
            yield f"* {word}: {finding.rule} {finding.name} ({finding.role}): {_cell(finding.message)}"
    if verdicts.checked:
        yield f"* Findings: {len(verdicts.fixed)} fixed, {len(verdicts.new)} new, {verdicts.unchanged} unchanged"


def _number(value: int | float | None) -> str:
    return "?" if value is None else str(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
