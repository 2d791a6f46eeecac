"""Hunks: the places where two listings differ, each as small as a reviewer can judge on its own."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import msgspec

from verifier.diff.lines import Line, LineKind, Listing
from verifier.diff.moves import Move, Moves, judge_moves, lines_of
from verifier.diff.rename import Matching, match
from verifier.model.events import Kind

MAX_BRIDGE = 6  # lines of the retry of a wait


class HunkKind(str, enum.Enum):
    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    OPERAND = "operand"  # the same instructions, but an operand comes from another definition
    MOVED = "moved"
    DECLARATION = "declaration"


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """One difference. Of a move, `removed` are the lines that moved and `added` the same lines where they are now;
    `crossed` are the lines that they moved past, and `down` says in which direction."""

    kind: HunkKind
    removed: tuple[Line, ...]
    added: tuple[Line, ...]
    crossed: tuple[Line, ...] = ()
    down: bool = False

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines as they are now, or as they were where nothing is left."""
        return self.added or self.removed

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(role for line in self.lines for role in line.roles))


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one listing. `renamed` counts names that differ, `names` all names of the bijection; `conflicts`
    the operands that disagree with it."""

    level: str
    before: Listing
    after: Listing
    matching: Matching
    moves: Moves
    hunks: tuple[Hunk, ...]
    conflicts: int

    @property
    def names(self) -> int:
        return len(self.matching.names)

    @property
    def renamed(self) -> int:
        return sum(self.before.name(old) != self.after.name(new) for old, new in self.matching.names.items())

    @property
    def reorders(self) -> int:
        """Lines that are only scheduled or placed differently."""
        return len(self.moves.rescheduled) + len(self.moves.relocated)


def compare(before: Listing, after: Listing) -> Comparison:
    """Compare two listings of one level."""
    matching = match(before, after)
    moves = judge_moves(before, after, matching)
    hunks = [*_gap_hunks(before, after, matching), *(_moved(before, after, move) for move in moves.changes)]
    return Comparison(
        level=after.level,
        before=before,
        after=after,
        matching=matching,
        moves=moves,
        hunks=tuple(hunks),
        conflicts=sum(_conflicts(before.lines[i], after.lines[j], matching) for i, j in matching.changed),
    )


def _conflicts(a: Line, b: Line, matching: Matching) -> int:
    return sum(matching.names.get(old) != new for old, new in zip(a.slots, b.slots, strict=True))


def _moved(a: Listing, b: Listing, move: Move) -> Hunk:
    return Hunk(
        kind=HunkKind.MOVED,
        removed=lines_of(a, [i for i, _ in move.lines]),
        added=lines_of(b, [j for _, j in move.lines]),
        crossed=lines_of(b, [j for _, j in move.crossed]),
        down=move.down,
    )


class _Edit:
    """Lines of one gap between two equal lines; `gap` is the number of equal lines before it."""

    __slots__ = ("added", "gap", "removed")

    def __init__(self, gap: int, removed: list[int], added: list[int]) -> None:
        self.gap = gap
        self.removed = removed
        self.added = added


def _gap_hunks(a: Listing, b: Listing, matching: Matching) -> Iterator[Hunk]:
    changed = set(matching.changed)
    merged: list[_Edit] = []
    for edit in _edits(a, b, matching):
        last = merged[-1] if merged else None
        if last is not None and _belongs(a, b, matching, last, edit):
            last.removed += edit.removed
            last.added += edit.added
            last.gap = edit.gap
        else:
            merged.append(edit)
    for edit in merged:
        yield _hunk(a, b, edit, changed)


def _edits(a: Listing, b: Listing, matching: Matching) -> Iterator[_Edit]:
    gone = sorted([*matching.removed, *(i for i, _ in matching.changed)], reverse=True)
    new = sorted([*matching.added, *(j for _, j in matching.changed)], reverse=True)
    for gap, (i, j) in enumerate([*matching.same, (len(a.lines), len(b.lines))]):
        removed, added = _below(gone, i), _below(new, j)
        if removed or added:
            yield _Edit(gap, removed, added)


def _below(positions: list[int], limit: int) -> list[int]:
    """Take the positions below `limit` off the end of a decreasing list."""
    found = []
    while positions and positions[-1] < limit:
        found.append(positions.pop())
    return found


def _belongs(a: Listing, b: Listing, matching: Matching, first: _Edit, second: _Edit) -> bool:
    """Whether `second` is part of what `first` did to a wait: only the retry of the wait lies between them."""
    between = [b.lines[j] for _, j in matching.same[first.gap : second.gap]]
    edited = [*(a.lines[i] for i in first.removed), *(b.lines[j] for j in first.added)]
    if len(between) > MAX_BRIDGE or not any(line.event and line.event.kind is Kind.BARRIER_WAIT for line in edited):
        return False
    return _is_retry(between, (line for line in edited if line.kind is LineKind.INSTRUCTION))


def _is_retry(lines: Sequence[Line], before: Iterator[Line]) -> bool:
    """Tests and branches, and labels that one of the lines before branches to."""
    reachable = {slot for line in before for slot in line.slots}
    for line in lines:
        if line.kind is LineKind.LABEL:
            if not reachable.intersection(line.slots):
                return False
        elif not line.steers:
            return False
        reachable.update(line.slots)
    return True


def _hunk(a: Listing, b: Listing, edit: _Edit, changed: set[tuple[int, int]]) -> Hunk:
    removed, added = lines_of(a, edit.removed), lines_of(b, edit.added)
    return Hunk(kind=_kind(removed, added, edit, changed), removed=removed, added=added)


def _kind(removed: Sequence[Line], added: Sequence[Line], edit: _Edit, changed: set[tuple[int, int]]) -> HunkKind:
    if all(line.kind is LineKind.DECLARATION for line in (*removed, *added)):
        return HunkKind.DECLARATION
    if len(edit.removed) == len(edit.added) and changed.issuperset(zip(edit.removed, edit.added, strict=True)):
        return HunkKind.OPERAND
    if removed and added:
        return HunkKind.CHANGED
    return HunkKind.ADDED if added else HunkKind.REMOVED
