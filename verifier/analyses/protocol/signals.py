"""Barrier operations of one run, and what each of them shows about determinacy.

The checks (protocol is deterministic when all hold, in the sense of Weft):
(a) whoever signals into phase n knows that phase n-1 is complete;
(b) a wait means the phase that its parity and the waiter's knowledge imply, and observes that one;
(c) the phase after the one a wait means cannot complete before the wait has returned;
(d) the same as (a) for each generation of a named barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.barrier import Arrival, MBarrier, ThreadBarrier
from verifier.analyses.protocol.clocks import Clock, join
from verifier.analyses.protocol.control import Misused
from verifier.analyses.protocol.fiber import Fiber, Release, Warp

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine

WarpName = tuple[int, int]


class WaitRecord(msgspec.Struct, frozen=True):
    """A wait that returned: it meant phase `meant` and saw phase `seen` as the latest complete one."""

    barrier: MBarrier
    warp: WarpName
    instr: int
    parity: int
    known: int
    meant: int
    seen: int
    epoch: int
    time: int


class Early(msgspec.Struct, frozen=True):
    """A signal into phase `phase` of a barrier by a warp that knows only `known` phases complete."""

    label: str
    address: int
    component: int
    warp: WarpName
    instr: int
    phase: int
    known: int
    time: int


class Excess(msgspec.Struct, frozen=True):
    """More arrivals in a phase than its count."""

    barrier: MBarrier
    warp: WarpName
    instr: int
    phase: int
    time: int


class Mixed(msgspec.Struct, frozen=True):
    """Two warps that name different numbers of threads for the same use of a named barrier."""

    label: str
    first: tuple[WarpName, int, int]  # (warp, instruction, threads)
    second: tuple[WarpName, int, int]


class Expect(msgspec.Struct, frozen=True):
    """Bytes announced on a barrier; `phase` is the one that the announcer knows to be under way."""

    barrier: int
    phase: int
    size: int
    instr: int


class Delivery(msgspec.Struct, frozen=True):
    """Bytes completed on a barrier, as `Expect`. `box` is (tensor map, destination) of a tensor copy."""

    barrier: int
    phase: int
    size: int | None
    box: tuple[int, int] | None
    instr: int


class Blocked(msgspec.Struct, frozen=True):
    """What a fiber waits for."""

    barrier: MBarrier | ThreadBarrier
    instr: int
    parity: int | None = None


YIELD = object()  # what a step returns when its fiber goes on after others that are ready


class Signals:
    """All barriers of one run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.mbarriers: dict[int, MBarrier] = {}
        self.retired: list[MBarrier] = []
        self.named: dict[tuple[int, int], ThreadBarrier] = {}
        self.cluster_barrier = ThreadBarrier("the cluster barrier", machine.components.get("cluster"))
        self.waits: list[WaitRecord] = []
        self.waited: set[tuple[WarpName, int]] = set()  # (warp, component of a barrier it waits on)
        self.expects: list[Expect] = []
        self.deliveries: list[Delivery] = []
        self.early: dict[tuple[int, WarpName], Early] = {}
        self.excess: dict[int, Excess] = {}
        self.mixed: dict[tuple[int, int], Mixed] = {}
        self._writes: frozenset[int] = frozenset()  # components that count what warps wrote
        self.held: list[MBarrier] = []  # barriers whose phase awaits copies of unknown size, oldest first

    def knows_writes(self, component: int) -> None:
        self._writes |= {component}

    # mbarriers

    def init_barrier(self, address: int, count: int, instr: int) -> None:
        if address in self.mbarriers:
            self.retired.append(self.mbarriers[address])
        component = self._machine.components.get("mbarrier", address, len(self.retired))
        label = self._machine.label(address)
        self.mbarriers[address] = MBarrier(address, label, count, component, instr)

    def invalidate(self, address: int) -> None:
        barrier = self.mbarriers.pop(address, None)
        if barrier is not None:
            self.retired.append(barrier)

    def barrier(self, address: int) -> MBarrier:
        found = self.mbarriers.get(address)
        if found is None:
            raise Misused(f"an operation on {self._machine.label(address)}, which is no initialised barrier")
        return found

    def expect(self, warp: Warp, barrier: MBarrier, size: int, instr: int) -> None:
        known = warp.clock.get(barrier.component, 0)
        self.expects.append(Expect(barrier.address, known, size, instr))
        barrier.phases[-1].expected += size
        barrier.carry += size

    def arrive(self, warp: Warp, barrier: MBarrier, count: int, instr: int, extra: Clock | None = None) -> None:
        """`count` arrivals by a warp; `extra` is what the signal tells beyond the warp's own knowledge."""
        warp.released.append(Release(warp.tick(), instr, barrier.component, barrier.current))
        self._signal(warp, barrier, count, instr, extra, releases=True)

    def deliver(
        self,
        warp: Warp,
        barrier: MBarrier,
        size: int | None,
        instr: int,
        extra: Clock,
        box: tuple[int, int] | None = None,
    ) -> None:
        """Bytes that a copy of this warp completes on a barrier.

        While the size of a copy is not known, its phase is held open until nobody else can go on: by then every copy
        that can be issued before it completes has been. That bytes are complete tells when they were asked for, not
        what threads wrote before: complete_tx releases the bytes of the copy alone (PTX ISA 9.4, 9.7.10.28).
        """
        known = warp.clock.get(barrier.component, 0)
        self.deliveries.append(Delivery(barrier.address, known, size, box, instr))
        if size is not None:
            barrier.phases[-1].delivered += size
            barrier.carry -= size
        else:
            barrier.phases[-1].guessed = True
            if barrier not in self.held:
                self.held.append(barrier)
        self._signal(warp, barrier, 0, instr, extra, releases=False)

    def release_held(self) -> bool:
        """Complete the oldest phase that only waits for bytes of unknown number; whether there was one."""
        for barrier in self.held:
            if barrier.phases[-1].pending <= 0 and barrier.phases[-1].guessed:
                self.held.remove(barrier)
                barrier.carry = 0
                barrier.phases[-1].guessed = False
                self._settle(barrier)
                return True
        return False

    def _settle(self, barrier: MBarrier) -> None:
        if barrier.settle():
            self._machine.wake(barrier.waiting)
            barrier.waiting = []

    def _signal(
        self, warp: Warp, barrier: MBarrier, count: int, instr: int, extra: Clock | None, *, releases: bool
    ) -> None:
        known = warp.clock.get(barrier.component, 0)
        time = self._machine.time
        current = barrier.current
        if known < current:
            self.early.setdefault(
                (instr, warp.name),
                Early(barrier.label, barrier.address, barrier.component, warp.name, instr, current, known, time),
            )
        if count > barrier.phases[-1].pending and instr not in self.excess:
            self.excess[instr] = Excess(barrier, warp.name, instr, current, time)
        barrier.arrive(Arrival(warp.name, instr, count, known, time), warp, frozenset() if releases else self._writes)
        if extra:
            join(barrier.phases[-1].clock, extra)
        self._settle(barrier)

    def peek(self, warp: Warp, barrier: MBarrier, parity: int, instr: int) -> None:
        """An attempt that may fail is not relied upon; whether it would mean another phase is seen at the real wait."""

    def block(self, fiber: Fiber, barrier: MBarrier, parity: int, instr: int) -> Blocked:
        barrier.waiting.append(fiber)
        return Blocked(barrier, instr, parity)

    def passed(self, warp: Warp, barrier: MBarrier, parity: int, instr: int) -> None:
        """A wait has returned: the waiter learns what the phase it means published, the least it may have seen."""
        known = warp.clock.get(barrier.component, 0)
        meant = known if known & 1 == parity & 1 else known - 1
        seen = barrier.current - 1
        record = WaitRecord(barrier, warp.name, instr, parity, known, meant, seen, warp.tick(), self._machine.time)
        self.waits.append(record)
        self.waited.add((warp.name, barrier.component))
        if meant >= 0:
            warp.learn(barrier.phases[meant].clock)

    # barriers of threads

    def named_barrier(self, cta: int, number: int) -> ThreadBarrier:
        found = self.named.get((cta, number))
        if found is None:
            component = self._machine.components.get("named", cta, number)
            found = self.named[cta, number] = ThreadBarrier(f"named barrier {number} of CTA {cta}", component)
        return found

    def sync(
        self, fiber: Fiber, barrier: ThreadBarrier, threads: int, expected: int | None, instr: int, *, waits: bool
    ) -> object:
        """Arrive at a named or cluster barrier, and wait for its generation if `waits`."""
        warp = fiber.warp
        epoch = warp.tick()
        known = warp.clock.get(barrier.component, 0)
        if known < barrier.number:
            early = Early(
                barrier.label, -1, barrier.component, warp.name, instr, barrier.number, known, self._machine.time
            )
            self.early.setdefault((instr, warp.name), early)
        warp.released.append(Release(epoch, instr, barrier.component, barrier.number))
        generation = barrier.generation
        self._compare(barrier, warp, expected, instr)
        generation.expected = expected
        generation.arrived += threads
        join(generation.clock, warp.clock)
        if barrier is self.cluster_barrier:
            warp.cluster_generation = barrier.number
        if waits:
            self.waited.add((warp.name, barrier.component))
        completed = self.try_complete(barrier)
        if not waits:
            return None
        if completed:  # those who came before go first
            warp.learn(generation.clock)
            return YIELD
        generation.fibers.append(fiber)
        return Blocked(barrier, instr)

    def _compare(self, barrier: ThreadBarrier, warp: Warp, expected: int | None, instr: int) -> None:
        """PTX ISA 9.4, 9.7.15.1: those who meet at a barrier name the same number of threads."""
        generation = barrier.generation
        if generation.opener is None:
            generation.opener = (warp.name, instr)
        elif expected != generation.expected:
            sizes = [self._machine.threads(barrier) if n is None else n for n in (generation.expected, expected)]
            if sizes[0] != sizes[1]:
                mixed = Mixed(barrier.label, (*generation.opener, sizes[0]), (warp.name, instr, sizes[1]))
                self.mixed.setdefault((generation.opener[1], instr), mixed)

    def try_complete(self, barrier: ThreadBarrier) -> bool:
        """Complete the generation under way if all have arrived; whether they had."""
        generation = barrier.generation
        wanted = generation.expected
        if wanted is None:
            wanted = self._machine.threads(barrier)
        if not generation.arrived or generation.arrived < wanted:
            return False
        done = barrier.complete()
        for fiber in done.fibers:
            fiber.warp.learn(done.clock)
        self._machine.resume(done.fibers)
        return True

    def cluster_wait(self, fiber: Fiber, instr: int) -> object:
        barrier = self.cluster_barrier
        if fiber.warp.cluster_generation >= barrier.number:
            barrier.generation.fibers.append(fiber)
            return Blocked(barrier, instr)
        if barrier.clocks:
            fiber.warp.learn(barrier.clocks[fiber.warp.cluster_generation])
        return None
