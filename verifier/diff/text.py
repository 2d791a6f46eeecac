"""The report for people: claim, synchronization, cost, verdicts, and on demand the instructions."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from verifier.diff.claims import Claim
from verifier.diff.expect import Verdict
from verifier.diff.hunks import Hunk, HunkKind
from verifier.diff.kernels import KernelDiff, LevelDiff
from verifier.diff.lines import Line, LineKind
from verifier.diff.phrases import notable
from verifier.diff.results import CostRow, DiffResults, cost, headline, many, near, place
from verifier.diff.skeleton import Skeleton
from verifier.diff.verdicts import Verdicts

Paint = Callable[[str, str], str]  # (text, style name) -> text

INDENT = " " * 10
SIDE_BY_SIDE = 140  # columns from which on the two sides stand beside each other
MAX_CLAIMS = 6
MAX_LINES = 8
MAX_NAME = 72


def plain(text: str, _style: str) -> str:
    return text


def render(
    results: DiffResults,
    verdict: Verdict | None = None,
    *,
    width: int = 100,
    full: bool = False,
    paint: Paint = plain,
) -> str:
    """The whole report; the last line is the summary, or says whether the author's claim holds."""
    lines: list[str] = []
    if results.toolchain:
        lines += [paint(f"TOOLCHAIN CHANGED: {'; '.join(results.toolchain)}", "warning"), ""]
    brief = [kernel for kernel in results.kernels if not (full or kernel.differs or len(results.kernels) == 1)]
    for kernel in results.kernels:
        if kernel not in brief:
            lines += [*_kernel(kernel, _Style(width, full, paint)), ""]
    if brief:
        lines += [*map(_unchanged, brief), ""]
    lines.append(paint(headline(results), "error" if results.differs else "good"))
    if verdict is not None:
        lines += _expectation(verdict, paint)
    return "\n".join(lines) + "\n"


def _expectation(verdict: Verdict, paint: Paint) -> Iterator[str]:
    if verdict.holds:
        yield paint(f"the claim of {verdict.file} holds: {many(verdict.claimed, 'place')} as claimed", "good")
        return
    yield paint(f"the claim of {verdict.file} DOES NOT HOLD:", "error")
    yield from (f"  {failure}" for failure in verdict.failures)


class _Style:
    def __init__(self, width: int, full: bool, paint: Paint) -> None:
        self.width = width
        self.full = full
        self.paint = paint


def _kernel(kernel: KernelDiff, style: _Style) -> Iterator[str]:
    yield f"{style.paint(short(kernel.name), 'strong')} {kernel.arch}{_built(kernel)}"
    yield from _row("CLAIM", _claim_text(kernel), style)
    main = kernel.main
    if main is not None:
        yield from _wrap(f"({_proof(main)})", style)
        shown = main.claims if style.full else main.claims[:MAX_CLAIMS]
        for claim in shown:
            yield from _claim(claim, kernel, style)
        if len(shown) < len(main.claims):
            yield f"{INDENT}... {many(len(main.claims) - len(shown), 'more kind')} of change (--full)"
    yield from _row("SYNC", "; ".join(map(_skeleton, kernel.skeletons)) or "nothing at hand", style)
    yield from _items("COST", _cost(kernel), style)
    yield from _row("RULES", _verdict_counts(kernel.verdicts), style)
    yield from (INDENT + line for line in _findings(kernel.verdicts))
    yield from (f"  ({note})" for note in _notes(kernel, style))
    if style.full:
        for level in kernel.levels:
            yield from _instructions(level, kernel, style)


def _unchanged(kernel: KernelDiff) -> str:
    """One line for one of many kernels of which nothing changed."""
    what = f"the same code, {_proof(kernel.main)}" if kernel.main else "the same synchronization and verdicts"
    skeletons = "; ".join(map(_skeleton, kernel.skeletons))
    return f"{short(kernel.name)} {kernel.arch}: {what}; {skeletons}"


def _built(kernel: KernelDiff) -> str:
    old, new = (side.toolchain.get("assembler", "") for side in (kernel.before, kernel.after))
    if not old and not new:
        return ""
    return f"    {old or 'unknown assembler'} {'=' if old == new else '->'} {new or 'unknown assembler'}"


def _claim_text(kernel: KernelDiff) -> str:
    if kernel.main is not None:
        return kernel.main.sentence
    return "made by different tools: instructions are not compared (--full does it)"


def _proof(level: LevelDiff) -> str:
    c = level.comparison
    size = f"{c.before.instructions} -> {c.after.instructions}"
    if c.before.instructions == c.after.instructions:
        size = str(c.after.instructions)
    what = "lines" if level.level == "ir" else f"{level.level.upper()} instructions"
    return f"{size} {what}; {c.names} names correspond one to one, {c.renamed} renamed, {many(c.conflicts, 'conflict')}"


def _claim(claim: Claim, kernel: KernelDiff, style: _Style) -> Iterator[str]:
    first = claim.hunks[0]
    removed, added = _shape(claim, first.removed), _shape(claim, first.added)
    if claim.kind is HunkKind.MOVED:
        yield from _move(claim, first, style)
    else:
        yield from _columns(removed, added, style, f"{claim.count} x")
    for role, places in itertools.groupby(sorted(claim.places, key=lambda p: p.role), key=lambda p: p.role):
        where = [near(place(p.location, kernel.roots)) for p in places]
        yield from _wrap(f"{role or 'no role'}  {len(where)}  {', '.join(_brief(where))}", style, INDENT + "  ")


def _move(claim: Claim, hunk: Hunk, style: _Style) -> Iterator[str]:
    """What moved, and what it moved past."""
    lead = f"{claim.count} x".rjust(len(INDENT) - 2).ljust(len(INDENT))
    direction = "down" if hunk.down else "up"
    past = [line for line in hunk.crossed if line.synchronizes] or list(hunk.crossed[:1])
    for title, lines in ((f"moved {direction}", notable(hunk.added)), ("past", past)):
        for text in _shape(claim, lines):
            yield lead + _cut(f"{title.ljust(10)} {text}", style.width - len(INDENT))
            lead, title = INDENT, ""


def _shape(claim: Claim, lines: Sequence[Line]) -> list[str]:
    """The lines of one hunk for its claim: as patterns, since names differ from hunk to hunk."""
    shown = [line for line in lines if line.kind is not LineKind.LABEL]
    texts = [line.pattern if claim.count > 1 else line.text for line in shown]
    rest = len(texts) - MAX_LINES
    return [*texts[:MAX_LINES], *([f"... {many(rest, 'more line')}"] if rest > 0 else [])]


def _brief(places: Sequence[str]) -> Iterator[str]:
    """`gemm.py:412, :431`: a file is named once."""
    last = ""
    for where in dict.fromkeys(places):
        file, _, line = where.rpartition(":")
        yield f":{line}" if file and file == last else where
        last = file


def _columns(removed: Sequence[str], added: Sequence[str], style: _Style, lead: str = "") -> Iterator[str]:
    """Removed and added lines, beside each other where there is room."""
    indent = lead.rjust(len(INDENT) - 2).ljust(len(INDENT))
    if style.width < SIDE_BY_SIDE:
        marked = [("-", "error", text) for text in removed] + [("+", "good", text) for text in added]
        for sign, colour, text in marked:
            yield indent + style.paint(f"{sign} {_cut(text, style.width - len(indent) - 2)}", colour)
            indent = INDENT
        return
    half = (style.width - len(INDENT)) // 2 - 4
    for old, new in itertools.zip_longest(removed, added, fillvalue=""):
        left = f"{'-' if old else ' '} {_cut(old, half)}".ljust(half + 2)
        right = f"{'+' if new else ' '} {_cut(new, half)}"
        yield (indent + style.paint(left, "error") + " | " + style.paint(right, "good")).rstrip()
        indent = INDENT


def _skeleton(skeleton: Skeleton) -> str:
    name = skeleton.level.upper()
    if skeleton.identical:
        return f"{name} skeleton identical ({skeleton.after} ops)"
    changes = [f"+{number} {opcode}" for opcode, number in skeleton.added]
    changes += [f"-{number} {opcode}" for opcode, number in skeleton.removed]
    detail = ", ".join(changes) or "the same ops in another order, role or loop"
    return f"{name} skeleton {skeleton.before} -> {skeleton.after} ops ({detail})"


def _cost(kernel: KernelDiff) -> list[str]:
    rows, equal = cost(kernel.metrics)
    return [*map(cost_text, rows), *([f"({many(equal, 'other count')} equal)"] if equal else [])] or ["not known"]


def cost_text(row: CostRow) -> str:
    """`CCTL.IVALL 1 -> 5 (in loops 0 -> 4)`."""
    loops = f" (in loops {_delta(row.loops.before, row.loops.after)})" if row.loops else ""
    return f"{row.name} {_delta(row.delta.before, row.delta.after)}{loops}"


def _delta(before: int | float | None, after: int | float | None) -> str:
    old, new = ("?" if value is None else str(value) for value in (before, after))
    return f"{old} {'=' if old == new else '->'} {new}"


def _verdict_counts(verdicts: Verdicts) -> str:
    if not verdicts.checked:
        return "the same code has the same verdicts"
    counts = f"{len(verdicts.fixed)} fixed, {len(verdicts.new)} new, {verdicts.unchanged} unchanged"
    return f"{counts}; {verdicts.proved_before} -> {verdicts.proved_after} obligations proved"


def _findings(verdicts: Verdicts) -> Iterator[str]:
    """Fixed and new findings; those that read alike are one line with their number."""
    for word, findings in (("fixed", verdicts.fixed), ("NEW", verdicts.new)):
        texts = Counter(f"{f.rule} {f.name} ({f.role}, {f.verdict.value}): {f.message}" for f in findings)
        for text, count in texts.items():
            yield f"{word}  {f'{count} x ' if count > 1 else ''}{text}"


def _notes(kernel: KernelDiff, style: _Style) -> Iterator[str]:
    left_out = [s.level for s in kernel.skeletons if s.level not in {level.level for level in kernel.levels}]
    if left_out and kernel.main is not None:
        levels = " and ".join(left_out).upper()
        yield f"instructions of the {levels} are not compared, as the tools differ; --full does it"
    for level in kernel.levels:
        moves = level.comparison.moves
        name = level.level.upper()
        if moves.rescheduled:
            blocks = {level.comparison.after.lines[j].block for _, j in moves.rescheduled}
            count = many(len(moves.rescheduled), "instruction")
            yield f"{count} of the {name} rescheduled inside {many(len(blocks), 'block')}"
        if moves.relocated:
            yield f"{many(len(moves.relocated), 'line')} of the {name} placed elsewhere as a whole"
        if level is not kernel.main and level.hunks:
            yield f"the {name} differs at {many(level.hunks, 'place')}{'' if style.full else '; --full lists them'}"


def _instructions(level: LevelDiff, kernel: KernelDiff, style: _Style) -> Iterator[str]:
    comparison = level.comparison
    for number, hunk in enumerate(comparison.hunks, 1):
        where = place(hunk.lines[0].location, kernel.roots)
        roles = ", ".join(hunk.roles)
        yield f"  {level.level.upper()} hunk {number} of {level.hunks}, {hunk.kind.value}: {where}  {roles}".rstrip()
        removed, added = ([line.text for line in lines] for lines in (hunk.removed, hunk.added))
        yield from _columns(removed, added, style)
    for i, j in comparison.moves.rescheduled:
        old, new = comparison.before.lines[i].location, comparison.after.lines[j].location
        text = _cut(comparison.after.lines[j].text, style.width - 40)
        yield f"  {level.level.upper()} rescheduled: {_spot(old)} -> {_spot(new)}  {text}"


def _spot(location: object) -> str:
    offset = getattr(location, "sass_offset", None)
    return f"{offset:#06x}" if offset is not None else f"line {getattr(location, 'ptx_line', None)}"


def _row(title: str, text: str, style: _Style) -> Iterator[str]:
    first, *rest = list(_wrap(text, style))
    yield f"  {style.paint(title.ljust(8), 'rule')}{first[len(INDENT) :]}"
    yield from rest


def _items(title: str, items: Sequence[str], style: _Style) -> Iterator[str]:
    """Items in as few lines as the width allows, none of them broken."""
    line = ""
    head = f"  {style.paint(title.ljust(8), 'rule')}"
    for item in items:
        if line and len(INDENT) + len(line) + 3 + len(item) > style.width:
            yield head + line
            head, line = INDENT, ""
        line += f"   {item}" if line else item
    yield head + line


def _wrap(text: str, style: _Style, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(
        text,
        style.width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def short(name: str) -> str:
    """A mangled name cut to what a line can bear."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 15]}...{name[-12:]}"
