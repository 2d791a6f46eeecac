"""From a bounded run to any number of rounds: the state at the head of an outer loop comes back.

The machine is deterministic. When everything that steers it is the same at two passes of one warp through the head of
its outermost loop, what happens between them repeats for as long as the loop's decisions do. What may differ are
registers and words that reach no operand of an event: tile coordinates, counters that only end the loop. Clocks are
compared by what they are asked for: which of the accesses and waits still remembered they know.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.decisions import repeat
from verifier.analyses.protocol.drift import Amount, amount
from verifier.analyses.protocol.values import LaneValue, spread

if TYPE_CHECKING:
    from verifier.analyses.protocol.fiber import Fiber, Warp
    from verifier.analyses.protocol.machine import Machine

Head = tuple[tuple[int, int], int]  # (warp, block)
_LIMIT = 40  # snapshots of one run
_FAR = 3  # phases behind which no wait can be right


class Snapshot(msgspec.Struct, frozen=True):
    """State at one pass through the head: `fixed` must come back; `regs` and `words` may drift where harmless."""

    fixed: Hashable
    names: tuple[tuple[int, int], ...]  # the warp of each fiber
    regs: tuple[tuple[LaneValue, ...], ...]
    words: dict[int, object]


class Recurrence(msgspec.Struct, frozen=True):
    """The state before round `first` is that before round `first + period`; the run had `rounds`."""

    first: int
    period: int
    rounds: int


class Recorder:
    """Takes snapshots of a run when one warp passes the head of its outermost loop."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.rounds = 0
        self.snapshots: list[Snapshot] = []
        self.visits: list[dict[tuple[int, int], set[int]]] = []  # blocks each warp came to before each snapshot
        self.reads: dict[int, set[int]] = defaultdict(set)  # slot -> words loaded into it

    def visit(self, machine: Machine, fiber: Fiber, block: int) -> None:
        if (fiber.warp.name, block) == self.head:
            self.rounds += 1
            if self.rounds <= _LIMIT:
                self.snapshots.append(take(machine, fiber))
                self.visits.append({name: set(visited) for name, visited in machine.visits.items()})
                for visited in machine.visits.values():
                    visited.clear()

    def loaded(self, slot: int, address: LaneValue, offset: int, size: int) -> None:
        """A slot is loaded from shared memory."""
        for own in {address} if isinstance(address, int) else set(spread(address)):
            if isinstance(own, int):
                self.reads[slot].update(range(own + offset >> 2, (own + offset + size + 3) >> 2))


def take(machine: Machine, current: Fiber) -> Snapshot:
    fibers = sorted(machine.fibers, key=lambda f: (f.warp.name, f.lanes))
    view = _View(machine)
    fixed = (
        tuple(_position(f) if f is not current else "head" for f in fibers),
        tuple((f.warp.name, f.lanes) for f in machine.ready),
        tuple(view.barriers()),
        tuple(view.thread_barriers()),
        tuple(view.warps()),
        view.memory_order,
        view.waits,
        tuple(sorted((a.cta, a.base, a.columns) for allocations in machine.tmem.live.values() for a in allocations)),
    )
    return Snapshot(
        fixed, tuple(f.warp.name for f in fibers), tuple(tuple(f.regs) for f in fibers), machine.memory.copy()
    )


def _position(fiber: Fiber) -> Hashable:
    frames = tuple((f.join, f.lanes, f.retry, f.branch) for f in fiber.stack)
    waits = None if fiber.waits is None else (fiber.waits.instr, fiber.waits.parity)  # type: ignore[attr-defined]
    return (fiber.warp.name, fiber.lanes, fiber.block, fiber.index, fiber.until, frames, waits)


class _View:
    """The clocks of a machine, reduced to the questions that may still be asked of them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        live: dict[int, set[int]] = defaultdict(set)
        order = []
        for shadow in (machine.tmem.shadow, machine.traffic.shadow):
            for access in shadow.latest():
                live[access.component].add(access.done)
                if access.write and access.component in shadow.published:
                    live[shadow.published[access.component]].add(access.done)
                live[access.issuer].add(access.issued)
                order.append((access.memory, access.component, access.instr, access.low, access.high, access.write))
        self.memory_order = tuple(order)
        waits = []
        for wait in machine.signals.waits:
            ahead = wait.meant + 1 - wait.barrier.current
            if ahead >= 0:  # whether the following phase depends on this wait is still open
                live[machine.warps[wait.warp].component].add(wait.epoch)
                waits.append((wait.barrier.address, wait.warp, wait.instr, ahead))
        self.waits = tuple(waits)
        self._ranks = {component: sorted(epochs) for component, epochs in live.items()}
        self._phases = {b.component: b.current for b in machine.signals.mbarriers.values()}
        self._phases.update({b.component: b.number for b in machine.signals.named.values()})
        self._phases[machine.signals.cluster_barrier.component] = machine.signals.cluster_barrier.number

    def clock(self, clock: Clock) -> Hashable:
        known = []
        for component, count in clock.items():
            phases = self._phases.get(component)
            if phases is not None:
                known.append((component, min(phases - count, _FAR)))
            elif component in self._ranks:
                rank = bisect_right(self._ranks[component], count)
                if rank:
                    known.append((component, rank))
        return tuple(sorted(known))

    def barriers(self) -> Iterable[Hashable]:
        for address, barrier in sorted(self._machine.signals.mbarriers.items()):
            phase = barrier.phases[-1]
            before = self.clock(barrier.phases[-2].clock) if barrier.current else ()
            waiting = tuple((f.warp.name, f.lanes) for f in barrier.waiting)
            counts = (barrier.current & 1, min(barrier.current, 2), phase.pending, barrier.carry, phase.guessed)
            yield (address, counts, self.clock(phase.clock), before, waiting)

    def thread_barriers(self) -> Iterable[Hashable]:
        signals = self._machine.signals
        for key, barrier in [*sorted(signals.named.items()), ((-1, -1), signals.cluster_barrier)]:
            generation = barrier.generation
            waiting = tuple((f.warp.name, f.lanes) for f in generation.fibers)
            yield (key, generation.arrived, generation.expected, self.clock(generation.clock), waiting)

    def warps(self) -> Iterable[Hashable]:
        for name, warp in sorted(self._machine.warps.items()):
            yield (name, self.clock(warp.clock), *_pending(warp), warp.cluster_generation)


def _pending(warp: Warp) -> Iterable[Hashable]:
    """Asynchronous work of a warp that is not known to be complete, counted from the latest."""
    for groups in (warp.bulk, warp.copies, warp.wgmma):
        yield tuple(groups.issued - count for count in groups.closed)
    yield tuple(sorted((instr, warp.issued_loads - count) for instr, count in warp.loads.items()))


def choose_head(machine: Machine) -> Head | None:
    """The loop head to watch: that of a warp that issues MMAs, else of the one that comes round most often."""
    candidates = {head: count for head, count in machine.heads.items() if count > 2}
    return max(candidates, key=lambda h: (machine.tmem.issues(h[0]), candidates[h], h), default=None)


def find(machine: Machine, recorder: Recorder) -> Recurrence | None:
    """The shortest repetition of the state; None when there is none or when what drifts reaches an event."""
    shots = recorder.snapshots
    for later in range(1, len(shots)):
        for earlier in range(later - 1, -1, -1):
            if shots[earlier].fixed != shots[later].fixed:
                continue
            if _harmless(machine, recorder, earlier, later):
                return Recurrence(earlier, later - earlier, recorder.rounds)
    return None


def _harmless(machine: Machine, recorder: Recorder, first: int, later: int) -> bool:
    """Whether what has moved between two states keeps away from operands of events, and decides nothing but the end."""
    a, b = recorder.snapshots[first], recorder.snapshots[later]
    if len(a.regs) != len(b.regs):
        return False
    words = {w: amount(a.words.get(w, 0), b.words.get(w, 0)) for w in a.words.keys() | b.words.keys()}  # type: ignore[arg-type]
    loaded = {slot: _common(words.get(word, 0) for word in seen) for slot, seen in recorder.reads.items()}
    blocks: dict[tuple[int, int], set[int]] = defaultdict(set)
    for interval in recorder.visits[first + 1 : later + 1]:
        for warp, visited in interval.items():
            blocks[warp] |= visited
    drift = machine.code.drift
    for name, before, after in zip(a.names, a.regs, b.regs, strict=True):
        moved = {
            slot: amount(x, y) for slot, (x, y) in enumerate(zip(before, after, strict=True)) if x is not y and x != y
        }
        own = sorted(blocks[name])
        moving = drift.movement(moved, loaded, own)
        if moving is None or not repeat(machine.code, moving, own):
            return False
    return True


def _common(amounts: Iterable[Amount]) -> Amount:
    """The one amount by which all words have moved that a slot is loaded from."""
    moved = set(amounts)
    return moved.pop() if len(moved) == 1 else None
