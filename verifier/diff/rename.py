"""The proof that names are only renamed: one bijection for all registers, labels and symbols of a pair of listings.

Names are never renumbered by order of occurrence. Lines are aligned by shape, aligned lines vote for pairs of names,
the bijection with the most votes is laid over the first listing, and then both are compared name by name. A line that
disagrees with the bijection is a conflict: its operand now comes from another definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from verifier.diff.align import Keys, Pair, align, chains_of, levels_of, unique
from verifier.diff.lines import Line, LineKind, Listing

ROUNDS = 4
# Weights of votes: lines that one and the same computation makes unique, aligned lines, lines that were left over.
_STRONG, _PLAIN, _WEAK = 64, 16, 1
_WEIGHT_OF_WRITE = 2  # what a line writes tells more about its identity than what it reads


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """How the lines of two listings correspond.

    `same` are equal lines in the same order, `moved` equal lines that stand elsewhere, `changed` lines of one shape
    whose names disagree with `names`, the bijection (first listing -> second). What is in none of them is `removed`
    (positions in the first listing) or `added` (in the second).
    """

    same: tuple[Pair, ...]
    moved: tuple[Pair, ...]
    changed: tuple[Pair, ...]
    removed: tuple[int, ...]
    added: tuple[int, ...]
    names: Mapping[str, str]

    @property
    def is_identity(self) -> bool:
        """Whether the listings are proved to be the same code."""
        return not (self.moved or self.changed or self.removed or self.added)


def match(a: Listing, b: Listing) -> Matching:
    """Match the lines of `a` with those of `b`."""
    return _match_in_place(a, b) or _match_anywhere(a, b)


def _match_in_place(a: Listing, b: Listing) -> Matching | None:
    """The matching of listings that differ in nothing but names; None when they differ in more."""
    if len(a.lines) != len(b.lines) or any(x.key != y.key for x, y in zip(a.lines, b.lines, strict=True)):
        return None
    pairs = tuple((i, i) for i in range(len(a.lines)))
    names = _bijection(a, b, {_PLAIN: pairs})
    if any(names.get(x) != y for i, _ in pairs for x, y in zip(a.lines[i].slots, b.lines[i].slots, strict=True)):
        return None
    return Matching(same=pairs, moved=(), changed=(), removed=(), added=(), names=names)


def _match_anywhere(a: Listing, b: Listing) -> Matching:
    chains_a, chains_b = chains_of(a), chains_of(b)
    la, lb = levels_of(a, chains_a), levels_of(b, chains_b)
    pairs = align(la, lb)
    hints = {_STRONG: _structural(chains_a, chains_b), _WEAK: _align_rest(pairs, la, lb)}
    names = _bijection(a, b, {**hints, _PLAIN: pairs})
    for _ in range(ROUNDS):
        same, moved = _equal_pairs(a, b, names)
        again = _bijection(a, b, {**hints, _PLAIN: [*same, *moved, *_fill(a, b, same, moved)]})
        if again == names:
            break
        names = again
    same, moved = _equal_pairs(a, b, names)
    changed = _fill(a, b, same, moved)
    taken_a = {i for pairs in (same, moved, changed) for i, _ in pairs}
    taken_b = {j for pairs in (same, moved, changed) for _, j in pairs}
    return Matching(
        same=tuple(same),
        moved=tuple(moved),
        changed=tuple(changed),
        removed=tuple(i for i in range(len(a.lines)) if i not in taken_a),
        added=tuple(j for j in range(len(b.lines)) if j not in taken_b),
        names=names,
    )


def _align_rest(pairs: Sequence[Pair], a: Sequence[Sequence[Hashable]], b: Sequence[Sequence[Hashable]]) -> list[Pair]:
    """Pairs among the lines that a first alignment left over on both sides: code that moved as a whole."""
    rest_a = _rest(len(a[0]), (i for i, _ in pairs))
    rest_b = _rest(len(b[0]), (j for _, j in pairs))
    if not rest_a or not rest_b:
        return []
    found = align([[level[i] for i in rest_a] for level in a], [[level[j] for j in rest_b] for level in b])
    return [(rest_a[i], rest_b[j]) for i, j in found]


def _rest(length: int, taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return [i for i in range(length) if i not in gone]


def _structural(a: Sequence[Keys], b: Sequence[Keys]) -> list[Pair]:
    """Lines whose computation is unique in both listings, wherever they stand."""
    pairs: list[Pair] = []
    for ka, kb in zip(a, b, strict=True):
        ours, theirs = unique(ka, 0, len(ka)), unique(kb, 0, len(kb))
        pairs += [(i, theirs[key]) for key, i in ours.items() if key in theirs]
    return pairs


def _bijection(a: Listing, b: Listing, weighted: Mapping[int, Iterable[Pair]]) -> dict[str, str]:
    """The pairs of names that most lines ask for; `weighted` has pairs of lines by their weight."""
    votes: Counter[tuple[str, str]] = Counter()
    for weight, pairs in weighted.items():
        for i, j in pairs:
            _vote(votes, a.lines[i], b.lines[j], weight)
    names: dict[str, str] = {}
    images: set[str] = set()
    for (old, new), _ in votes.most_common():
        if old not in names and new not in images:
            names[old] = new
            images.add(new)
    return names


def _vote(votes: Counter[tuple[str, str]], a: Line, b: Line, weight: int) -> None:
    binds = a.kind is not LineKind.INSTRUCTION
    for old, new in zip(a.slots, b.slots, strict=True):
        votes[old, new] += weight * (_WEIGHT_OF_WRITE if binds or old in a.writes else 1)


def _equal_pairs(a: Listing, b: Listing, names: Mapping[str, str]) -> tuple[list[Pair], list[Pair]]:
    """(lines equal under `names` in the same order, lines equal under `names` that stand elsewhere)."""
    ka = [(line.key, *(names.get(slot) for slot in line.slots)) for line in a.lines]
    kb = [(line.key, *line.slots) for line in b.lines]
    same = align([_in_context(ka), ka], [_in_context(kb), kb])
    waiting: dict[Hashable, list[int]] = {}
    for j in _rest(len(kb), (j for _, j in same)):
        waiting.setdefault(kb[j], []).append(j)
    moved = []
    for i in _rest(len(ka), (i for i, _ in same)):
        places = waiting.get(ka[i])
        if places:
            moved.append((i, places.pop(0)))
    return same, moved


def _in_context(keys: Sequence[Hashable]) -> list[Hashable]:
    padded = [None, *keys, None]
    return [hash(tuple(padded[i : i + 3])) for i in range(len(keys))]


def _fill(a: Listing, b: Listing, same: Sequence[Pair], moved: Sequence[Pair]) -> list[Pair]:
    """Lines of one shape in the gaps between equal lines: what disagrees with the bijection, or is not in it yet."""
    moved_a, moved_b = {i for i, _ in moved}, {j for _, j in moved}
    pairs: list[Pair] = []
    start_a = start_b = 0
    for i, j in [*same, (len(a.lines), len(b.lines))]:
        left = [x for x in range(start_a, i) if x not in moved_a]
        right = [y for y in range(start_b, j) if y not in moved_b]
        if left and right:
            keys_a, keys_b = [a.lines[x].key for x in left], [b.lines[y].key for y in right]
            pairs += [(left[x], right[y]) for x, y in align([keys_a], [keys_b])]
        start_a, start_b = i + 1, j + 1
    return pairs
