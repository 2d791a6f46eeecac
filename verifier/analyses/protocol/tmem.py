"""Tensor memory of the CTAs: allocations, accesses, and the pipe of each warp that issues MMAs."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.control import Undecided
from verifier.analyses.protocol.fiber import Release, Warp
from verifier.analyses.protocol.shadow import Access, Conflict, TmemShadow
from verifier.analyses.protocol.values import LaneValue
from verifier.isa.tmem import COLUMN_MASK

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine

COLUMNS = 512
_NEAR = 32  # signals after a load among which the one that gives its columns away is looked for
ALL_QUARTERS = 0b1111


class Allocation(msgspec.Struct, frozen=True):
    cta: int
    base: int
    columns: int
    instr: int
    warp: tuple[int, int]


def _without(allocation: Allocation, low: int, high: int) -> list[Allocation]:
    """What is left of an allocation after columns [low, high) have been freed."""
    end = allocation.base + allocation.columns
    rest = ((allocation.base, min(end, low)), (max(allocation.base, high), end))
    return [msgspec.structs.replace(allocation, base=a, columns=b - a) for a, b in rest if a < b]


class Clash(msgspec.Struct, frozen=True):
    """A conflict, with the signal from which the later agent could think that the earlier one is done."""

    conflict: Conflict
    release: Release | None
    clock: Clock


class Handover(msgspec.Struct, frozen=True):
    """A write that is ordered after a load of the same columns through `release`."""

    instr: int
    warp: tuple[int, int]
    reader: int  # instruction of the load
    writer: int


class Tmem:
    """State and findings of one run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.shadow = TmemShadow()
        self.live: dict[int, list[Allocation]] = {}
        self.clashes: dict[tuple[int, int, int, int, int, int], Clash] = {}
        self.handovers: dict[tuple[int, tuple[int, int], int, int], Handover] = {}
        self.freed: set[tuple[int, tuple[int, int]]] = set()
        self.frees: set[int] = set()
        self.unsized: set[int] = set()
        self.unsized_reads: set[int] = set()  # MMAs of which it is not known which columns they read
        self.stores = False
        self.inputs: set[int] = set()  # MMAs that read tensor memory
        self.met: dict[int, tuple[int, int]] = {}  # instruction that is ordered after a conflicting access -> its warp
        self._pipes: dict[tuple[int, int], tuple[int, int]] = {}  # warp -> (component, MMAs issued)

    def alloc(self, warp: Warp, slot: int, columns: int, instr: int, pair: bool) -> None:
        allocated = self.live.setdefault(warp.cta, [])
        base = max((a.base + a.columns for a in allocated), default=0)
        if base + columns > COLUMNS:
            raise Undecided(f"more than {COLUMNS} TMEM columns are allocated")
        allocated.append(Allocation(warp.cta, base, columns, instr, warp.name))
        self._machine.memory.write(slot, 4, base)
        self._machine.traffic.touch_bytes(warp, slot, 4, True, instr)

    def dealloc(self, warp: Warp, base: int, columns: int, instr: int, pair: bool) -> None:
        ctas = (warp.cta & ~1, warp.cta | 1) if pair else (warp.cta,)
        start = base & COLUMN_MASK
        self.freed.add((instr, warp.name))
        self.frees.add(instr)
        allocated = self.live.get(warp.cta, [])
        self.live[warp.cta] = [rest for a in allocated for rest in _without(a, start, start + columns)]
        for cta in ctas:
            if cta in self._machine.ctas:
                self._touch(warp, cta, start, columns, True, instr, ALL_QUARTERS, warp.component, warp.tick())

    def load(self, warp: Warp, address: int, columns: int | None, instr: int) -> None:
        component = warp.load_component
        done = warp.start_load(instr)
        self._touch(warp, warp.cta, address, columns, False, instr, self._quarter(warp, address), component, done)

    def store(self, warp: Warp, address: int, columns: int | None, instr: int) -> None:
        self.stores = True
        component = self._machine.components.get("st", warp.name)
        done = warp.start_store(component)
        self._touch(warp, warp.cta, address, columns, True, instr, self._quarter(warp, address), component, done)

    @staticmethod
    def _quarter(warp: Warp, address: int) -> int:
        """A warp reaches the 32 lanes of its own quarter only (PTX ISA 9.4, 9.7.18.5)."""
        return 1 << warp.quarter

    def multiply(
        self, warp: Warp, address: int, columns: int | None, instr: int, pair: bool, quarters: int = ALL_QUARTERS
    ) -> None:
        """An MMA, a copy into tensor memory, a shift: work of the warp's pipe, complete when a later commit is."""
        component, count = self._pipes.get(warp.name) or (self._machine.components.get("pipe", warp.name), 0)
        self._pipes[warp.name] = (component, count + 1)
        for cta in (warp.cta & ~1, warp.cta | 1) if pair else (warp.cta,):
            if cta in self._machine.ctas:
                self._touch(warp, cta, address, columns, True, instr, quarters, component, count + 1)

    def read_operand(self, warp: Warp, address: LaneValue, columns: int | None, instr: int, pair: bool) -> None:
        """What the MMA that the warp has just issued reads of tensor memory."""
        component, count = self.pipe(warp)
        if columns is None or not isinstance(address, int):
            self.unsized_reads.add(instr)
            return
        self.inputs.add(instr)
        for cta in (warp.cta & ~1, warp.cta | 1) if pair else (warp.cta,):
            if cta in self._machine.ctas:
                self._touch(warp, cta, address, columns, False, instr, ALL_QUARTERS, component, count)

    def issues(self, warp: tuple[int, int]) -> bool:
        return warp in self._pipes

    @property
    def contended(self) -> bool:
        """Whether more agents than the work of one warp write tensor memory."""
        return self.stores or len(self._pipes) > 1

    def pipe(self, warp: Warp) -> tuple[int, int]:
        return self._pipes.get(warp.name) or (self._machine.components.get("pipe", warp.name), 0)

    def commit_clock(self, warp: Warp) -> Clock:
        """What a commit tells: all the warp's earlier MMAs are complete."""
        component, count = self.pipe(warp)
        return {component: count}

    def _touch(
        self,
        warp: Warp,
        cta: int,
        address: int,
        columns: int | None,
        write: bool,
        instr: int,
        quarters: int,
        component: int,
        done: int,
    ) -> None:
        if columns is None:
            self.unsized.add(instr)
            return
        low = address & COLUMN_MASK
        issued = done if component == warp.component else warp.tick()
        access = Access(
            cta, low, low + columns, write, warp.component, issued, component, done, warp.name, instr, quarters,
            self._machine.time, warp.path,
        )  # fmt: skip
        ordered, conflicts = self.shadow.touch(access, warp.clock)
        for conflict in conflicts:
            self._clash(conflict, warp)
        if instr not in self.met and any(other.component != component for other in ordered):
            self.met[instr] = warp.name
        if write:
            for other in ordered:
                if not other.write and other.warp != warp.name and other.instr not in self.inputs:
                    self._hand_over(other, access, warp)

    def _clash(self, conflict: Conflict, warp: Warp) -> None:
        a, b = conflict.earlier, conflict.later
        if {a.instr, b.instr} <= self.frees:
            return  # the two CTAs of a pair free together
        key = (a.instr, b.instr, a.low, a.high, b.low, b.high)
        if key in self.clashes and self.clashes[key].conflict.issued <= conflict.issued:
            return
        self.clashes[key] = Clash(conflict, self._latest_release(a, warp.clock), dict(warp.clock))

    def _latest_release(self, access: Access, clock: Clock) -> Release | None:
        """The last signal of the access's warp that `clock` knows of."""
        known = clock.get(access.issuer, 0)
        for release in reversed(self._machine.warps[access.warp].released):
            if release.epoch <= known and self._seen(release, clock):
                return release
        return None

    def _hand_over(self, load: Access, write: Access, warp: Warp) -> None:
        """Note the signal after the load that the writer waited for, or else the first it knows of."""
        released = self._machine.warps[load.warp].released
        first = bisect_left(released, load.issued, key=lambda r: r.epoch)
        waited = self._machine.signals.waited
        chosen = None
        for release in islice(released, first, first + _NEAR):
            if not self._seen(release, warp.clock):
                continue
            chosen = chosen or release
            if (warp.name, release.component) in waited:
                chosen = release
                break
        if chosen is not None:
            key = (chosen.instr, load.warp, load.instr, write.instr)
            self.handovers[key] = Handover(chosen.instr, load.warp, load.instr, write.instr)

    @staticmethod
    def _seen(release: Release, clock: Clock) -> bool:
        return clock.get(release.component, 0) > release.phase
