"""Alignment of two sequences in order: anchors that are unique on both sides first, then the gaps between them.

Elements are compared at several levels, from the most telling one (an instruction with what computes its operands and
what stands beside it) to the plain key. The idea of anchors is Bram Cohen's patience diff; small gaps are left to
difflib.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

from verifier.diff.lines import Listing

Pair = tuple[int, int]
Keys = Sequence[Hashable]
Levels = Sequence[Keys]  # most telling first; the last decides what may be aligned at all

CHAINS = (1, 3, 6)  # how many steps back the computation of an operand is followed
MANY_WRITERS = 4
BIG_GAP = 1_000_000  # comparisons from which on difflib may skip frequent elements


class _Gap:
    """[a0, a1) on the one side, [b0, b1) on the other."""

    __slots__ = ("a0", "a1", "b0", "b1")

    def __init__(self, a0: int, a1: int, b0: int, b1: int) -> None:
        self.a0, self.a1, self.b0, self.b1 = a0, a1, b0, b1

    @property
    def empty(self) -> bool:
        return self.a0 >= self.a1 or self.b0 >= self.b1


def levels_of(listing: Listing, chains: Sequence[Keys]) -> list[Keys]:
    """Keys of the lines at all levels: with neighbours, then with the computation of operands (`chains_of`), plain.

    Names take no part, so the keys of one listing can be compared with those of another.
    """
    plain = [line.key for line in listing.lines]
    return [_with_neighbours(chains[len(chains) // 2]), *reversed(chains), plain]


def chains_of(listing: Listing) -> list[list[int]]:
    """Keys of the lines with what computes their operands, followed as far back as `CHAINS` says."""
    chain = [hash(line.key) for line in listing.lines]
    origins = _origins(listing)
    found = []
    for depth in range(1, max(CHAINS) + 1):
        chain = [
            hash((own, *(_origin(writers, chain) for writers in slots)))
            for own, slots in zip(chain, origins, strict=True)
        ]
        if depth in CHAINS:
            found.append(chain)
    return found


def _origins(listing: Listing) -> list[list[list[Pair]]]:
    """For each slot of each line: the other lines that write it, and at which of their slots."""
    writers = {
        slot: [(line, listing.lines[line].slots.index(slot)) for line in lines]
        for slot, lines in listing.writers.items()
    }
    return [
        [[writer for writer in writers.get(slot, ()) if writer[0] != index] for slot in line.slots]
        for index, line in enumerate(listing.lines)
    ]


def _origin(writers: Sequence[Pair], chain: Sequence[int]) -> Hashable:
    if not writers or len(writers) > MANY_WRITERS:
        return len(writers)
    if len(writers) == 1:
        line, position = writers[0]
        return chain[line], position
    return tuple(sorted((chain[line], position) for line, position in writers))


def _with_neighbours(keys: Keys) -> list[int]:
    padded = [0, *keys, 0]
    return [hash(tuple(padded[i : i + 3])) for i in range(len(keys))]


def align(a: Levels, b: Levels) -> list[Pair]:
    """Pairs of positions, increasing on both sides, whose last-level keys are equal."""
    pairs: list[Pair] = []
    gaps = [_Gap(0, len(a[-1]), 0, len(b[-1]))]
    while gaps:
        gap = gaps.pop()
        pairs += _trim(gap, a[0], b[0])
        if gap.empty:
            continue
        anchors = next((found for x, y in zip(a, b, strict=True) if (found := _anchors(gap, x, y))), None)
        if anchors is None:
            pairs += _small(gap, a[-1], b[-1])
            continue
        pairs += anchors
        gaps += _between(gap, anchors)
    return sorted(pairs)


def _trim(gap: _Gap, a: Keys, b: Keys) -> Iterator[Pair]:
    """Take equal elements off both ends of the gap."""
    while not gap.empty and a[gap.a0] == b[gap.b0]:
        yield gap.a0, gap.b0
        gap.a0 += 1
        gap.b0 += 1
    while not gap.empty and a[gap.a1 - 1] == b[gap.b1 - 1]:
        gap.a1 -= 1
        gap.b1 -= 1
        yield gap.a1, gap.b1


def _anchors(gap: _Gap, a: Keys, b: Keys) -> list[Pair]:
    """Elements that are unique on both sides of the gap, as many of them as stand in the same order."""
    ours, theirs = unique(a, gap.a0, gap.a1), unique(b, gap.b0, gap.b1)
    return _increasing([(at, theirs[key]) for key, at in ours.items() if key in theirs])


def unique(keys: Keys, start: int, end: int) -> dict[Hashable, int]:
    """Position of each key that occurs once in [start, end)."""
    counts = Counter(keys[start:end])
    return {keys[i]: i for i in range(start, end) if counts[keys[i]] == 1}


def _increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """The longest part of `pairs` (sorted by the first) whose second positions increase, by patience sorting."""
    tops: list[int] = []  # second position on top of each pile
    piles: list[int] = []  # index of that pair
    back: list[int] = []
    for index, (_, position) in enumerate(pairs):
        pile = bisect_left(tops, position)
        back.append(piles[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(position)
            piles.append(index)
        else:
            tops[pile], piles[pile] = position, index
    found: list[Pair] = []
    at = piles[-1] if piles else -1
    while at >= 0:
        found.append(pairs[at])
        at = back[at]
    return found[::-1]


def _between(gap: _Gap, anchors: Sequence[Pair]) -> Iterator[_Gap]:
    a, b = gap.a0, gap.b0
    for x, y in [*anchors, (gap.a1, gap.b1)]:
        if x > a and y > b:
            yield _Gap(a, x, b, y)
        a, b = x + 1, y + 1


def _small(gap: _Gap, a: Keys, b: Keys) -> Iterator[Pair]:
    size = (gap.a1 - gap.a0) * (gap.b1 - gap.b0)
    matcher = SequenceMatcher(None, a[gap.a0 : gap.a1], b[gap.b0 : gap.b1], autojunk=size > BIG_GAP)
    for block in matcher.get_matching_blocks():
        for i in range(block.size):
            yield gap.a0 + block.a + i, gap.b0 + block.b + i
