"""Barrier objects of the machine, and the record from which their determinacy is judged.

Phases are numbered from 0. A waiter or signaller *knows* n phases complete when its clock says so.
"""

from __future__ import annotations

import msgspec

from verifier.analyses.protocol.clocks import Clock, join
from verifier.analyses.protocol.fiber import Fiber, Warp


class Arrival(msgspec.Struct, frozen=True):
    """`count` arrivals (0 for bytes alone) of the warp at `position` in a phase; `known` phases it knew complete."""

    warp: tuple[int, int]  # CTA rank, warp
    instr: int
    count: int
    known: int
    time: int


class Phase:
    """One phase: who arrived, what its completion lets a waiter know, how many bytes were expected and delivered."""

    __slots__ = ("arrivals", "clock", "delivered", "expected", "guessed", "joined", "pending")

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self.expected = 0
        self.delivered = 0
        self.guessed = False  # a copy of unknown size takes part
        self.clock: Clock = {}
        self.arrivals: list[Arrival] = []
        self.joined: dict[tuple[int, int], int] = {}  # warp -> what it had learnt when its clock was last joined


class MBarrier:
    """An mbarrier object: PTX ISA 9.4, 9.7.15.16. `phases[-1]` is the current, incomplete one."""

    __slots__ = ("address", "carry", "component", "count", "init", "label", "phases", "waiting")

    def __init__(self, address: int, label: str, count: int, component: int, init: int) -> None:
        self.address = address
        self.label = label
        self.count = count
        self.component = component
        self.init = init  # the instruction that initialised it
        self.phases = [Phase(count)]
        self.waiting: list[Fiber] = []
        self.carry = 0  # expected minus delivered bytes

    @property
    def current(self) -> int:
        """Index of the phase under way, which is the number of complete ones."""
        return len(self.phases) - 1

    def passes(self, parity: int) -> bool:
        """Whether a wait on this parity returns: the phase of that parity is the one just completed."""
        return self.current & 1 != parity & 1

    def arrive(self, arrival: Arrival, warp: Warp, hidden: frozenset[int] = frozenset()) -> None:
        """An arrival that tells what the warp knows, but for the `hidden` components."""
        phase = self.phases[-1]
        phase.arrivals.append(arrival)
        phase.pending -= arrival.count
        if hidden:
            join(phase.clock, {part: count for part, count in warp.clock.items() if part not in hidden})
        elif phase.joined.get(warp.name) == warp.learnt:  # nothing new but the warp's own steps
            phase.clock[warp.component] = phase.clock[warp.writes] = warp.clock[warp.component]
        else:
            join(phase.clock, warp.clock)
            phase.joined[warp.name] = warp.learnt

    def settle(self) -> bool:
        """Complete the phase if nothing is missing; whether it did."""
        phase = self.phases[-1]
        if phase.pending > 0 or self.carry or phase.guessed:
            return False
        phase.clock[self.component] = len(self.phases)
        self.phases.append(Phase(self.count))
        return True


class Generation:
    """One use of a named or cluster barrier under way."""

    __slots__ = ("arrived", "clock", "expected", "fibers", "opener")

    def __init__(self) -> None:
        self.arrived = 0
        self.opener: tuple[tuple[int, int], int] | None = None  # warp and instruction that arrived first
        self.expected: int | None = None  # threads; None: all of the CTA or cluster
        self.clock: Clock = {}
        self.fibers: list[Fiber] = []


class ThreadBarrier:
    """A named barrier of one CTA, or the barrier of the cluster: a run of generations."""

    __slots__ = ("clocks", "component", "generation", "label", "number")

    def __init__(self, label: str, component: int) -> None:
        self.label = label
        self.component = component
        self.number = 0  # complete generations
        self.generation = Generation()
        self.clocks: list[Clock] = []

    def complete(self) -> Generation:
        """Finish the generation under way."""
        done = self.generation
        self.number += 1
        done.clock[self.component] = self.number
        self.clocks.append(done.clock)
        self.generation = Generation()
        return done
