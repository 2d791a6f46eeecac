"""The skeleton of synchronization: only the instructions that synchronize, with their roles and loops."""

from __future__ import annotations

from collections import Counter

import msgspec

from verifier.diff.lines import Listing

Entry = tuple[str, tuple[str, ...], int]  # opcode, roles, loops around it


class Skeleton(msgspec.Struct, frozen=True, kw_only=True):
    """Skeletons of one level side by side. `added` and `removed` count opcodes; both may be empty where only the order,
    the roles or the loops differ."""

    level: str
    before: int
    after: int
    identical: bool
    added: tuple[tuple[str, int], ...]
    removed: tuple[tuple[str, int], ...]


def compare_skeletons(before: Listing, after: Listing) -> Skeleton:
    """Compare what synchronizes, in the order of the text."""
    ours, theirs = _entries(before), _entries(after)
    old, new = Counter(entry[0] for entry in ours), Counter(entry[0] for entry in theirs)
    return Skeleton(
        level=after.level,
        before=len(ours),
        after=len(theirs),
        identical=ours == theirs,
        added=tuple((new - old).items()),
        removed=tuple((old - new).items()),
    )


def _entries(listing: Listing) -> list[Entry]:
    return [(line.opcode, line.roles, line.depth) for line in listing.lines if line.synchronizes]
