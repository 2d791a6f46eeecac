"""Who touched which piece of a memory last, and which accesses nothing orders.

Of each agent and site the latest access to a piece is kept: whoever knows a later count of a component knows the
earlier ones, so an access that is ordered after the latest is ordered after all (the argument of FastTrack, Flanagan
and Freund, PLDI 2009).
"""

from __future__ import annotations

import msgspec

from verifier.analyses.protocol.clocks import Clock


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


class Conflict(msgspec.Struct, frozen=True):
    """`later` may run before `earlier` is over. `issued`: it is at least ordered after the issue of `earlier`."""

    earlier: Access
    later: Access
    issued: bool


_Key = tuple[int, int, int, int, int, bool]


class Shadow:
    """One address space of all CTAs. `meet` says whether two accesses with overlapping hulls share a piece."""

    def __init__(self) -> None:
        self._last: dict[int, dict[_Key, Access]] = {}
        self._checked: dict[_Key, int] = {}
        self._stamp = 0
        self._stamps: dict[_Key, int] = {}

    def touch(self, access: Access, clock: Clock) -> tuple[list[Access], list[Conflict]]:
        """Record an access made with `clock`: (overlapping ones it is ordered after, conflicts), newest first.

        What the same agent has met before at the same place is not reported again.
        """
        key = (access.memory, access.component, access.instr, access.low, access.high, access.write)
        entries = self._last.setdefault(access.memory, {})
        met = self._check(access, clock, entries, self._checked.get(key, -1))
        self._stamp += 1
        self._checked[key] = self._stamp
        self._stamps[key] = self._stamp
        entries.pop(key, None)
        entries[key] = access
        return met

    def _check(
        self, access: Access, clock: Clock, entries: dict[_Key, Access], since: int
    ) -> tuple[list[Access], list[Conflict]]:
        ordered: list[Access] = []
        conflicts: list[Conflict] = []
        low, high, write, component = access.low, access.high, access.write, access.component
        for key in reversed(entries):
            if self._stamps[key] <= since:
                break
            other = entries[key]
            if other.low >= high or other.high <= low or not (write or other.write) or other.component == component:
                continue
            if not self._meet(access, other):
                continue
            if clock.get(other.component, 0) >= other.done:
                ordered.append(other)
            else:
                conflicts.append(Conflict(other, access, clock.get(other.issuer, 0) >= other.issued))
        return ordered, conflicts

    def _meet(self, a: Access, b: Access) -> bool:
        return True

    def all_of(self, memory: int) -> list[Access]:
        return list(self._last.get(memory, {}).values())


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
