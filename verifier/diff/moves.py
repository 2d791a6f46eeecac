"""Lines that stand elsewhere: which of them are only scheduled differently, and which changed their order for real.

A line that moved within its basic block, past nothing that it depends on, is rescheduled. A closed stretch of code
(nothing falls into it, nothing falls out of it) that moved as a whole is only placed elsewhere. All else is a change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from verifier.diff.align import Pair
from verifier.diff.lines import Line, LineKind, Listing, depends
from verifier.diff.rename import Matching


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring lines that moved past others. `lines` and `crossed` are pairs of positions; `down` says where to."""

    lines: tuple[Pair, ...]
    crossed: tuple[Pair, ...]
    down: bool


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """`rescheduled` and `relocated` lines change nothing; `changes` do."""

    rescheduled: tuple[Pair, ...]
    relocated: tuple[Pair, ...]
    changes: tuple[Move, ...]


def judge_moves(a: Listing, b: Listing, matching: Matching) -> Moves:
    """Sort the moved lines of a matching."""
    judge = _Judge(a, b, matching)
    rescheduled = [pair for pair in matching.moved if judge.is_rescheduled(pair)]
    settled = set(rescheduled)
    runs = _runs([pair for pair in matching.moved if pair not in settled])
    relocated = [run for run in runs if judge.is_closed(run)]
    return Moves(
        rescheduled=tuple(rescheduled),
        relocated=tuple(pair for run in relocated for pair in run),
        changes=tuple(judge.describe(run) for run in runs if run not in relocated),
    )


def _runs(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs grouped where they follow each other on both sides, in the same order or in the opposite one."""
    runs: list[list[Pair]] = []
    step = 0
    for i, j in sorted(pairs):
        last = runs[-1] if runs else []
        jump = j - last[-1][1] if last and last[-1][0] == i - 1 else 0
        if abs(jump) == 1 and (len(last) == 1 or jump == step):
            last.append((i, j))
            step = jump
        else:
            runs.append([(i, j)])
    return runs


class _Judge:
    def __init__(self, a: Listing, b: Listing, matching: Matching) -> None:
        self._a = a.lines
        self._b = b.lines
        self._same = matching.same
        self._moved = matching.moved
        self._same_a = [i for i, _ in matching.same]
        self._same_b = [j for _, j in matching.same]
        self._in_block: dict[int, list[Pair]] = {}
        for pair in matching.moved:
            self._in_block.setdefault(self._a[pair[0]].block, []).append(pair)

    def crossed(self, i: int, j: int) -> Sequence[Pair]:
        """The unmoved lines between where a line was and where it is."""
        was, now = bisect_left(self._same_a, i), bisect_left(self._same_b, j)
        return self._same[min(was, now) : max(was, now)]

    def is_rescheduled(self, pair: Pair) -> bool:
        i, j = pair
        line = self._a[i]
        passed = self.crossed(i, j)
        ends = {*passed[:1], *passed[-1:]}
        if line.kind is not LineKind.INSTRUCTION or not all(self._in_blocks_of(pair, end) for end in ends):
            return False
        others = [p for p in self._in_block[line.block] if (p[0] - i) * (p[1] - j) < 0]
        return not any(depends(line, self._a[p]) for p, _ in (*passed, *others))

    def _in_blocks_of(self, pair: Pair, other: Pair) -> bool:
        same_a = self._a[pair[0]].block == self._a[other[0]].block
        return same_a and self._b[pair[1]].block == self._b[other[1]].block

    def is_closed(self, run: Sequence[Pair]) -> bool:
        """Whether nothing falls into the run or out of it, before and after."""
        (i, j), (last, _) = run[0], run[-1]
        before = (self._a[i - 1] if i else None, self._b[j - 1] if j else None)
        return self._a[last].closed and all(line is not None and line.closed for line in before)

    def describe(self, run: Sequence[Pair]) -> Move:
        i, j = run[0]
        passed = {pair for end in (run[0], run[-1]) for pair in self.crossed(*end)}
        down = bisect_left(self._same_b, j) > bisect_left(self._same_a, i)
        return Move(lines=tuple(run), crossed=tuple(sorted(passed)), down=down)


def lines_of(listing: Listing, positions: Sequence[int]) -> tuple[Line, ...]:
    return tuple(listing.lines[position] for position in positions)
