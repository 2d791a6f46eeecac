"""Who touched which piece of a memory last, and which accesses nothing orders.

Of each agent and site the latest access to a piece is kept: whoever knows a later count of a component knows the
earlier ones, so an access that is ordered after the latest is ordered after all (the argument of FastTrack, Flanagan
and Freund, PLDI 2009).
"""

from __future__ import annotations

import msgspec

from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.fiber import Path


class Access(msgspec.Struct, frozen=True):
    """One access to [low, high) of one memory.

    It is issued when `issuer` (a component) counts `issued`, and complete when `component` counts `done`. `detail` is
    what hulls cannot tell: lanes of tensor memory (a bit for each quarter), or the byte addresses of the lanes.
    """

    memory: int  # CTA rank
    low: int
    high: int
    write: bool
    issuer: int
    issued: int
    component: int
    done: int
    warp: tuple[int, int]
    instr: int
    detail: object
    time: int
    path: Path = ()


class Conflict(msgspec.Struct, frozen=True):
    """`later` may run before `earlier` is over. `issued`: it is at least ordered after the issue of `earlier`."""

    earlier: Access
    later: Access
    issued: bool


_Key = tuple[int, int, int, int, int, bool]
_PAGE = 12  # bits of an address that pages leave out
_Entries = dict[_Key, Access]


class Shadow:
    """One address space of all CTAs. `_meet` says whether two accesses with overlapping hulls share a piece."""

    def __init__(self) -> None:
        self._reads: dict[tuple[int, int], _Entries] = {}  # (memory, page) -> latest accesses, newest last
        self._writes: dict[tuple[int, int], _Entries] = {}
        self._checked: dict[_Key, int] = {}
        self._stamps: dict[_Key, int] = {}
        self._stamp = 0

    def touch(self, access: Access, clock: Clock) -> tuple[list[Access], list[Conflict]]:
        """Record an access made with `clock`: (overlapping ones it is ordered after, conflicts), newest first.

        What the same agent has met before at the same place is not reported again.
        """
        memory, low, high, write = access.memory, access.low, access.high, access.write
        key = (memory, access.component, access.instr, low, high, write)
        since = self._checked.get(key, -1)
        ordered: dict[_Key, Access] = {}
        conflicts: dict[_Key, Conflict] = {}
        self._stamp += 1
        self._checked[key] = self._stamps[key] = self._stamp
        for page in range(low >> _PAGE, (high - 1 >> _PAGE) + 1):
            place = (memory, page)
            self._check(access, clock, self._writes.get(place), since, ordered, conflicts)
            if write:
                self._check(access, clock, self._reads.get(place), since, ordered, conflicts)
            entries = (self._writes if write else self._reads).setdefault(place, {})
            entries.pop(key, None)
            entries[key] = access
        return list(ordered.values()), list(conflicts.values())

    def _check(
        self,
        access: Access,
        clock: Clock,
        entries: _Entries | None,
        since: int,
        ordered: dict[_Key, Access],
        conflicts: dict[_Key, Conflict],
    ) -> None:
        if not entries:
            return
        low, high, component, stamps = access.low, access.high, access.component, self._stamps
        for key in reversed(entries):
            if stamps[key] <= since:
                break
            other = entries[key]
            if other.low >= high or other.high <= low or other.component == component:
                continue
            if not self._meet(access, other) or (access.path and other.path and _exclusive(access, other)):
                continue
            if clock.get(other.component, 0) >= other.done:
                ordered[key] = other
            else:
                conflicts[key] = Conflict(other, access, clock.get(other.issuer, 0) >= other.issued)

    def _meet(self, a: Access, b: Access) -> bool:
        return True

    def latest(self) -> list[Access]:
        """The latest access of each agent, site and place, oldest first."""
        found = {key: a for pages in (self._reads, self._writes) for page in pages.values() for key, a in page.items()}
        return [found[key] for key in sorted(found, key=lambda k: self._stamps[k])]


class TmemShadow(Shadow):
    """Tensor memory: columns, and the quarters of 32 lanes that an access touches."""

    def _meet(self, a: Access, b: Access) -> bool:
        assert isinstance(a.detail, int)
        assert isinstance(b.detail, int)
        return bool(a.detail & b.detail)


class ByteShadow(Shadow):
    """Shared memory: bytes; `detail` is None for a solid range, else the sorted (start, size) pieces."""

    def _meet(self, a: Access, b: Access) -> bool:
        if a.warp == b.warp and a.issuer == a.component and b.issuer == b.component:
            return False
        return _pieces_meet(_pieces(a), _pieces(b))


def _exclusive(a: Access, b: Access) -> bool:
    """Whether the two lie on different ways of one undecided branch, taken once: then only one of them happens."""
    ways = {number: way for number, _, way in a.path}
    return any(ways.get(number, way) != way for number, _, way in b.path)


def _pieces(access: Access) -> tuple[tuple[int, int], ...]:
    if access.detail is None:
        return ((access.low, access.high - access.low),)
    assert isinstance(access.detail, tuple)
    return access.detail


def _pieces_meet(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> bool:
    i = j = 0
    while i < len(a) and j < len(b):
        (x, x_size), (y, y_size) = a[i], b[j]
        if x + x_size <= y:
            i += 1
        elif y + y_size <= x:
            j += 1
        else:
            return True
    return False
