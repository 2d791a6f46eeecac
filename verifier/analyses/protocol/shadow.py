"""Who touched which piece of a memory last, and which accesses nothing orders.

Of each agent and site the latest access to a piece is kept: whoever knows a later count of a component knows the
earlier ones, so an access that is ordered after the latest is ordered after all (the argument of FastTrack, Flanagan
and Freund, PLDI 2009).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.fiber import Path
from verifier.analyses.protocol.flags import morally_strong

T = TypeVar("T")


class Access(msgspec.Struct, frozen=True):
    """One access to [low, high) of one memory.

    It is issued when `issuer` (a component) counts `issued`, and complete when `component` counts `done`. `detail` is
    what hulls cannot tell: lanes of tensor memory (a bit for each quarter), or the byte addresses of the lanes.
    `scope` is that of a strong access (see `flags`), 0 for a weak one.
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
    scope: int = 0


class Conflict(msgspec.Struct, frozen=True):
    """`later` may run before `earlier` is over. `issued`: it is at least ordered after the issue of `earlier`."""

    earlier: Access
    later: Access
    issued: bool

    @property
    def unpublished(self) -> bool:
        """Whether `later` comes after `earlier`, a write of a thread, but by a signal that does not publish it."""
        return self.issued and self.earlier.component == self.earlier.issuer


_Key = tuple[int, int, int, int, int, bool]
_Entries = dict[_Key, Access]
_Footprints = dict[
    tuple[int, int, object, Path, int], _Entries
]  # what is touched -> accesses of one agent, newest last
_Agents = dict[int, _Footprints]
_NAMED = 8  # accesses of one agent that are named as conflicts with one access


class Shadow:
    """One address space of all CTAs. `_meet` says whether two accesses with overlapping hulls share a piece.

    Whoever knows of an agent's latest access to some place knows of all that it made there before. `_all` says that
    these are wanted all the same, `_page` how many bits of an address pages leave out.
    """

    _page = 12
    _all = True

    def __init__(self) -> None:
        self.published: dict[int, int] = {}  # agent -> what counts its steps for those who know what it wrote
        self._reads: dict[tuple[int, int], _Agents] = {}  # (memory, page) -> latest accesses
        self._writes: dict[tuple[int, int], _Agents] = {}
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
        detail = access.detail if isinstance(access.detail, int) else id(access.detail)
        footprint = (low, high, detail, access.path, access.scope)
        for page in range(low >> self._page, (high - 1 >> self._page) + 1):
            place = (memory, page)
            self._check(access, clock, self._writes.get(place), since, ordered, conflicts, agents_write=True)
            if write:
                self._check(access, clock, self._reads.get(place), since, ordered, conflicts, agents_write=False)
            agents = (self._writes if write else self._reads).setdefault(place, {})
            entries = agents.setdefault(access.component, {}).setdefault(footprint, {})
            entries.pop(key, None)
            entries[key] = access
        return self._newest_first(ordered), self._newest_first(conflicts)

    def _newest_first(self, found: dict[_Key, T]) -> list[T]:
        if len(found) < 2:
            return list(found.values())
        return [found[key] for key in sorted(found, key=self._stamps.__getitem__, reverse=True)]

    def _check(
        self,
        access: Access,
        clock: Clock,
        agents: _Agents | None,
        since: int,
        ordered: dict[_Key, Access],
        conflicts: dict[_Key, Conflict],
        *,
        agents_write: bool,
    ) -> None:
        if not agents:
            return
        low, high, component = access.low, access.high, access.component
        for agent, footprints in agents.items():
            if agent == component:
                continue
            known = clock.get(self.published.get(agent, agent) if agents_write else agent, 0)
            limit = len(conflicts) + _NAMED
            for (start, end, _, path, _), entries in footprints.items():
                if start < high and end > low and not (access.path and path and _exclusive(access.path, path)):
                    self._compare(access, clock, known, entries, since, ordered, conflicts)
                    if len(conflicts) >= limit and not self._all:
                        break

    def _compare(
        self,
        access: Access,
        clock: Clock,
        known: int,
        entries: _Entries,
        since: int,
        ordered: dict[_Key, Access],
        conflicts: dict[_Key, Conflict],
    ) -> None:
        """Compare with accesses of one agent to one place."""
        limit = len(conflicts) + _NAMED
        for key in reversed(entries):
            other = entries[key]
            if self._stamps[key] <= since or not self._meet(access, other):
                return
            if known >= other.done:
                ordered[key] = other
                if not self._all:
                    return
            else:
                conflicts[key] = Conflict(other, access, clock.get(other.issuer, 0) >= other.issued)
                if len(conflicts) >= limit and not self._all:
                    return

    def _meet(self, a: Access, b: Access) -> bool:
        return True

    def latest(self) -> list[Access]:
        """The latest access of each agent, site and place, oldest first."""
        found: dict[_Key, Access] = {}
        for pages in (self._reads, self._writes):
            for agents in pages.values():
                for footprints in agents.values():
                    for entries in footprints.values():
                        found.update(entries)
        return self._newest_first(found)[::-1]


class TmemShadow(Shadow):
    """Tensor memory: columns, and the quarters of 32 lanes that an access touches."""

    def _meet(self, a: Access, b: Access) -> bool:
        assert isinstance(a.detail, int)
        assert isinstance(b.detail, int)
        return bool(a.detail & b.detail)


class ByteShadow(Shadow):
    """Shared memory: bytes; `detail` is None for a solid range, else the sorted (start, size) pieces."""

    _all = False

    def _meet(self, a: Access, b: Access) -> bool:
        if a.warp == b.warp and a.issuer == a.component and b.issuer == b.component:
            return False
        return _pieces_meet(_pieces(a), _pieces(b), same=not morally_strong(a.scope, b.scope, a.warp[0] == b.warp[0]))


def _exclusive(a: Path, b: Path) -> bool:
    """Whether the two lie on different ways of one undecided branch, taken once: then only one of them happens."""
    ways = {number: way for number, _, way in a}
    return any(ways.get(number, way) != way for number, _, way in b)


def _pieces(access: Access) -> tuple[tuple[int, int], ...]:
    if access.detail is None:
        return ((access.low, access.high - access.low),)
    assert isinstance(access.detail, tuple)
    return access.detail


def _pieces_meet(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...], *, same: bool) -> bool:
    """Whether two pieces overlap; without `same`, equal ones do not count."""
    i = j = 0
    while i < len(a) and j < len(b):
        (x, x_size), (y, y_size) = a[i], b[j]
        if x + x_size <= y:
            i += 1
        elif y + y_size <= x:
            j += 1
        elif same or a[i] != b[j]:
            return True
        else:
            i, j = i + 1, j + 1
    return False
