"""Shared-memory accesses of one run: threads, bulk copies, operands of MMAs, remote stores."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.fiber import Fiber, Warp
from verifier.analyses.protocol.flags import Flags, Strength
from verifier.analyses.protocol.shadow import Access, ByteShadow, Conflict
from verifier.analyses.protocol.values import Lanes, LaneValue, Parts, Scalar, Unknown, pick

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine

CLC_BYTES = 16
ROW_BYTES = 16  # a row of a core matrix, which every layout of an operand has at its start (PTX ISA 9.4, 9.7.17.5.1)
Pieces = tuple[tuple[int, int], ...]  # (start, size), by start
_COPIED = Unknown("shared memory that a bulk copy wrote")


class Boxes(msgspec.Struct, frozen=True):
    """Bytes of one copy through each tensor map, and of each store; and where loads go: offset -> bytes."""

    loads: dict[int, int] = {}
    stores: dict[int, int] = {}
    stages: dict[int, int] = {}


class Traffic:
    """What moves through shared memory in one run."""

    def __init__(self, machine: Machine, boxes: Boxes) -> None:
        self._machine = machine
        self._boxes = boxes
        self._invented = machine.code.invented
        self._starts = sorted(boxes.stages)
        self._counters: dict[int, int] = {}
        self._cancels: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self.shadow = ByteShadow()
        self.stores: dict[tuple[int, int], int] = {}  # (instruction, source address) -> tensor map
        self.conflicts: dict[tuple[int, int, int, int], Conflict] = {}
        self.met: dict[int, tuple[int, int]] = {}  # instruction that is ordered after a conflicting access -> its warp
        self.unresolved: dict[int, str] = {}
        self.seen: set[int] = set()  # instructions whose accesses are recorded
        self.flags = Flags()

    def everywhere(self, address: int, mask: int) -> list[int]:
        """The same offset in each CTA of a multicast mask."""
        offset = address & OFFSET_MASK
        return [rank << RANK_SHIFT | offset for rank in self._machine.ctas if mask >> rank & 1]

    def count_up(self, address: int, amount: int) -> int:
        value = self._counters.get(address, 0)
        self._counters[address] = value + amount
        return value

    # threads

    def touch_bytes(self, warp: Warp, address: int, size: int, write: bool, instr: int) -> None:
        done = warp.tick()
        self._record(warp, address, size, write, instr, warp.component, done, None)

    def touch_strong(
        self, fiber: Fiber, address: LaneValue, width: int, write: bool, instr: int, strong: Strength
    ) -> None:
        """A strong access of each active lane."""
        hull = _hull(address, fiber.lanes, width)
        if isinstance(hull, Unknown):
            self.unresolved.setdefault(instr, hull.why)
            self.flags.lost(strong)
            return
        low, size, pieces = hull
        warp = fiber.warp
        self.flags.touch(warp.name, ((low & ~OFFSET_MASK) | start for start, _ in pieces), write, strong)
        self._record(warp, low, size, write, instr, warp.component, warp.tick(), pieces, strong.scope)

    def touch_lanes(
        self, fiber: Fiber, address: LaneValue, width: int, write: bool, instr: int, lanes: int = 32
    ) -> None:
        """One access of each active lane below `lanes`; `width` 0: of how many bytes is not known."""
        if not width:
            self.unresolved.setdefault(instr, "how many bytes it touches is not known")
            return
        if isinstance(address, int):
            self.touch_bytes(fiber.warp, address, width, write, instr)
            return
        active = tuple(lane for lane in fiber.lanes if lane < lanes) if lanes < 32 else fiber.lanes
        if not active:
            return
        hull = _hull(address, active, width)
        if isinstance(hull, Unknown):
            self.unresolved.setdefault(instr, f"the address is not known: {hull.why}")
            return
        low, size, pieces = hull
        warp = fiber.warp
        self._record(warp, low, size, write, instr, warp.component, warp.tick(), pieces)

    # asynchronous agents

    def bulk_load(
        self, warp: Warp, to: int, signal: int, size: int | None, source: LaneValue, instr: int, read: Clock
    ) -> None:
        """A bulk copy into shared memory; its completion also tells `read`, that its source has been read."""
        barrier = self._machine.signals.barrier(signal)
        box = None
        if size is None:
            box = (_map(source, instr), to)
            size = self._boxes.loads.get(box[0])
        if size == 0:
            return  # nothing moves and nothing is told
        component = self._machine.components.get("tma", warp.name, signal)
        done = self._count(component)
        if size is not None:
            self._machine.memory.forget(to, to + size, _COPIED)
            self._record(warp, to, size, True, instr, component, done, None)
        self._machine.signals.deliver(warp, barrier, size, instr, {component: done, **read}, box)

    def bulk_read(self, warp: Warp, source: int, size: int | None, instr: int) -> Clock:
        """A copy to a peer reads its source; its completion tells that this is over: the clock that says so."""
        component = self._machine.components.get("peer copy", warp.name)
        done = self._count(component)
        if size is not None:
            self._record(warp, source, size, False, instr, component, done, None)
        return {component: done}

    def _count(self, component: int) -> int:
        count = self._counts[component] = self._counts.get(component, 0) + 1
        return count

    def bulk_store(self, warp: Warp, source: Scalar, size: int | None, to: LaneValue, instr: int) -> None:
        key = _map(to, instr)
        if isinstance(source, Unknown):
            self.unresolved.setdefault(instr, f"the address is not known: {source.why}")
            return
        self.stores[instr, source] = key
        if size is None:
            size = self._boxes.stores.get(key)
        done = warp.bulk.issue()
        if size is not None:
            self._record(warp, source, size, False, instr, warp.bulk.component, done, None)

    def copy_async(self, fiber: Fiber, address: LaneValue, width: int, instr: int) -> None:
        """`cp.async`: one write of each active lane, complete when the lane has waited for it or its arrival counts."""
        hull = _hull(address, fiber.lanes, width)
        if isinstance(hull, Unknown):
            self.unresolved.setdefault(instr, f"the address is not known: {hull.why}")
            return
        low, size, pieces = hull
        copies = fiber.warp.copies
        self._record(fiber.warp, low, size, True, instr, copies.component, copies.issue(), pieces)

    def async_store(
        self,
        fiber: Fiber,
        address: LaneValue,
        width: int,
        signal: int,
        lanes: int,
        instr: int,
        only: int | None,
    ) -> None:
        """Stores that complete bytes on a barrier, one for each of `lanes` lanes.

        `only` is the CTA that they go to; None: wherever their addresses say.
        """
        warp = fiber.warp
        component = self._machine.components.get("async", warp.name, signal)
        done = self._count(component)
        starts = set()
        for lane in fiber.lanes:
            own = pick(address, lane)
            if isinstance(own, int):
                starts.add(own)
            else:
                self.unresolved.setdefault(instr, f"the address is not known: {own.why}")
        for rank in sorted({s >> RANK_SHIFT for s in starts}) if only is None else [only]:
            there = sorted(s for s in starts if s >> RANK_SHIFT == rank)
            if not there:
                continue
            pieces = tuple((s & OFFSET_MASK, width) for s in there)
            self._record(warp, there[0], there[-1] + width - there[0], True, instr, component, done, pieces)
        barrier = self._machine.signals.barrier(signal)
        self._machine.signals.deliver(warp, barrier, width * lanes, instr, {component: done})

    def cancel(self, warp: Warp, to: int, signal: int, everywhere: bool, instr: int) -> None:
        """Ask for another cluster's work; the script answers, the same to all CTAs that the answer goes to."""
        request = self._cancels[warp.cta] = self._cancels.get(warp.cta, 0) + 1
        answer = self._machine.script.cancelled(request, self._machine.start)
        mask = (1 << len(self._machine.ctas)) - 1
        targets = self.everywhere(to, mask) if everywhere else [to]
        signals = self.everywhere(signal, mask) if everywhere else [signal]
        for address, where in zip(targets, signals, strict=True):
            component = self._machine.components.get("clc", warp.name, where)
            done = self._count(component)
            self._record(warp, address, CLC_BYTES, True, instr, component, done, None)
            self._machine.memory.write(address, CLC_BYTES, answer)
            barrier = self._machine.signals.barrier(where)
            self._machine.signals.deliver(warp, barrier, CLC_BYTES, instr, {component: done})

    def read_operand(self, warp: Warp, descriptor: LaneValue, instr: int, pair: bool, reads: tuple[int, int]) -> None:
        """An MMA reads the stage of shared memory that a matrix descriptor points into.

        `reads` is (component, count) of the work that reads. Bits 0-13 of the descriptor are the address in units of
        16 bytes (PTX ISA 9.4, 9.7.18.4.1).
        """
        if isinstance(descriptor, Parts):
            descriptor = descriptor.low
        if not isinstance(descriptor, int):
            why = descriptor.why if isinstance(descriptor, Unknown) else "it differs between lanes"
            self.unresolved.setdefault(instr, f"the address is not known: a matrix descriptor: {why}")
            return
        start, size = self._stage((descriptor & 0x3FFF) << 4)
        component, done = reads
        for rank in (warp.cta & ~1, warp.cta | 1) if pair else (warp.cta,):
            if rank in self._machine.ctas:
                self._record(warp, rank << RANK_SHIFT | start, size, False, instr, component, done, None)

    def _stage(self, offset: int) -> tuple[int, int]:
        """(start, bytes) of the stage that an offset lies in; what is read at least where no stage is known."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0:
            start = self._starts[index]
            if offset < start + self._boxes.stages[start]:
                return start, self._boxes.stages[start]
        return offset, ROW_BYTES

    def _record(
        self,
        warp: Warp,
        address: int,
        size: int,
        write: bool,
        instr: int,
        component: int,
        done: int,
        detail: Pieces | None,
        scope: int = 0,
    ) -> None:
        self.seen.add(instr)
        if instr in self._invented:
            self.unresolved.setdefault(instr, self._invented[instr])
            return
        low = address & OFFSET_MASK
        issued = done if component == warp.component else warp.tick()
        access = Access(
            address >> RANK_SHIFT, low, low + size, write, warp.component, issued, component, done, warp.name, instr,
            detail, self._machine.time, warp.path, scope,
        )  # fmt: skip
        ordered, conflicts = self.shadow.touch(access, warp.clock)
        if instr not in self.met and any(other.warp != warp.name or other.component != component for other in ordered):
            self.met[instr] = warp.name
        for conflict in conflicts:
            key = (conflict.earlier.instr, instr, conflict.earlier.low, low)
            self.conflicts.setdefault(key, conflict)


def _map(address: LaneValue, instr: int) -> int:
    """The tensor map of a copy; where its address is not known, one that only this instruction uses: negative."""
    return address if isinstance(address, int) else -2 - instr


@lru_cache(maxsize=8192)
def _hull(address: LaneValue, lanes: Lanes, width: int) -> tuple[int, int, Pieces] | Unknown:
    """(lowest address, bytes to the highest, the pieces) that the lanes touch."""
    starts: set[int] = set()
    for lane in lanes:
        own = pick(address, lane)
        if isinstance(own, Unknown):
            return own
        starts.add(own)
    low = min(starts)
    pieces = tuple((start & OFFSET_MASK, width) for start in sorted(starts))
    return low, max(starts) + width - low, pieces
