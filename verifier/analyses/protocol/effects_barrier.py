"""Barrier operations: mbarriers, named barriers, the cluster barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.operands import Place, Scalar, place, scalar
from verifier.analyses.protocol.values import WARP, Unknown
from verifier.model.events import Event, Kind
from verifier.model.program import Instr, Reg

if TYPE_CHECKING:
    from verifier.analyses.protocol.alu import Step
    from verifier.analyses.protocol.code import Code


def _barrier(code: Code, event: Event) -> Place:
    found = place(code.layout, event.barrier, f"the barrier of the {event.kind.value} at PTX line {_line(event)}")
    assert found is not None
    return found


def _line(event: Event) -> int | None:
    return event.location.ptx_line


def _scalar(code: Code, event: Event, what: str) -> Scalar:
    arg = {"count": event.count, "size": event.size, "parity": event.parity, "number": event.number}[what]
    found = scalar(code.layout, arg, f"the {what} of the {event.kind.value} at PTX line {_line(event)}")
    assert found is not None
    return found


def _init(code: Code, instr: Instr, event: Event) -> Step:
    where, count = _barrier(code, event), _scalar(code, event, "count")

    def step(fiber: Fiber) -> None:
        for address, _ in where.by_address(fiber):
            fiber.machine.signals.init_barrier(address, count.one(fiber), instr.index)

    return step


def _inval(code: Code, _instr: Instr, event: Event) -> Step:
    where = _barrier(code, event)

    def step(fiber: Fiber) -> None:
        for address, _ in where.by_address(fiber):
            fiber.machine.signals.invalidate(address)

    return step


def _arrive(code: Code, instr: Instr, event: Event) -> Step:
    where, count = _barrier(code, event), _scalar(code, event, "count")
    size = _scalar(code, event, "size") if event.size is not None else None
    results = _results(code, instr)
    drops = event.opcode.startswith("mbarrier.arrive_drop")
    index = instr.index

    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        times = count.one(fiber)
        for address, lanes in where.by_address(fiber):
            barrier = machine.signals.barrier(address)
            if size is not None:
                machine.signals.expect(fiber.warp, barrier, size.one(fiber) * lanes, index)
            for slot in results:
                fiber.regs[slot] = barrier.current
            if drops:
                barrier.count -= times * lanes  # from the next phase on
            machine.signals.arrive(fiber.warp, barrier, times * lanes, index)

    return step


def _copy_arrive(code: Code, instr: Instr, event: Event) -> Step:
    """`cp.async.mbarrier.arrive`: the arrival of each lane once its earlier cp.async are complete.

    Without `.noinc` the pending count is raised first, so that nothing is left over (PTX ISA 9.4, 9.7.15.16.18).
    """
    where, index = _barrier(code, event), instr.index
    counts = event.has("noinc")

    def step(fiber: Fiber) -> None:
        warp = fiber.warp
        for address, lanes in where.by_address(fiber):
            barrier = fiber.machine.signals.barrier(address)
            extra = {warp.copies.component: warp.copies.issued}
            fiber.machine.signals.arrive(warp, barrier, lanes if counts else 0, index, extra)

    return step


def _results(code: Code, instr: Instr) -> tuple[int, ...]:
    """Slots of the state or predicate that an operation returns."""
    if instr.index not in code.slice.values:
        return ()
    return tuple(code.layout.slot(Reg(a.dst)) for a in instr.assigns)


def _expect(code: Code, instr: Instr, event: Event) -> Step:
    where, size = _barrier(code, event), _scalar(code, event, "size")

    def step(fiber: Fiber) -> None:
        signals = fiber.machine.signals
        for address, lanes in where.by_address(fiber):
            signals.expect(fiber.warp, signals.barrier(address), size.one(fiber) * lanes, instr.index)

    return step


def _complete(code: Code, instr: Instr, event: Event) -> Step:
    where, size = _barrier(code, event), _scalar(code, event, "size")

    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        for address, lanes in where.by_address(fiber):
            machine.signals.deliver(
                fiber.warp, machine.signals.barrier(address), size.one(fiber) * lanes, instr.index, {}
            )

    return step


def _wait(code: Code, instr: Instr, event: Event) -> Step:
    """A wait that is retried until it succeeds blocks; a single attempt fails, the weakest it may do."""
    where = _barrier(code, event)
    parity = _scalar(code, event, "parity")
    results = _results(code, instr)
    blocking = instr.index in code.spins
    index = instr.index

    def step(fiber: Fiber) -> object:
        machine = fiber.machine
        wanted = parity.one(fiber)
        for address, _ in where.by_address(fiber):
            barrier = machine.signals.barrier(address)
            if not blocking:
                machine.signals.peek(fiber.warp, barrier, wanted, index)
                for slot in results:
                    fiber.regs[slot] = 0
                return None
            if not barrier.passes(wanted):
                return machine.signals.block(fiber, barrier, wanted, index)
            machine.signals.passed(fiber.warp, barrier, wanted, index)
        for slot in results:
            fiber.regs[slot] = 1
        return None

    return step


def _named(code: Code, instr: Instr, event: Event, *, waits: bool) -> Step:
    number = scalar(code.layout, event.number, f"the number of the barrier at PTX line {_line(event)}")
    count = scalar(code.layout, event.count, f"the thread count of the barrier at PTX line {_line(event)}")
    index = instr.index
    results = _results(code, instr)
    reduced = Unknown(f"{instr.opcode} at PTX line {_line(event)}")

    def step(fiber: Fiber) -> object:
        for slot in results:
            fiber.regs[slot] = reduced
        which = 0 if number is None else number.one(fiber)
        expected = None if count is None else count.one(fiber)
        barrier = fiber.machine.signals.named_barrier(fiber.warp.cta, which)
        return fiber.machine.signals.sync(fiber, barrier, WARP, expected, index, waits=waits)

    return step


def _sync(code: Code, instr: Instr, event: Event) -> Step:
    return _named(code, instr, event, waits=True)


def _sync_arrive(code: Code, instr: Instr, event: Event) -> Step:
    return _named(code, instr, event, waits=False)


def _cluster_arrive(_code: Code, instr: Instr, _event: Event) -> Step:
    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        machine.signals.sync(fiber, machine.signals.cluster_barrier, len(fiber.lanes), None, instr.index, waits=False)

    return step


def _cluster_wait(_code: Code, instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.machine.signals.cluster_wait(fiber, instr.index)


MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    Kind.BARRIER_INIT: _init,
    Kind.BARRIER_INVAL: _inval,
    Kind.BARRIER_ARRIVE: _arrive,
    Kind.COPY_ARRIVE: _copy_arrive,
    Kind.BARRIER_EXPECT: _expect,
    Kind.BARRIER_COMPLETE: _complete,
    Kind.BARRIER_WAIT: _wait,
    Kind.CTA_SYNC: _sync,
    Kind.CTA_ARRIVE: _sync_arrive,
    Kind.CLUSTER_ARRIVE: _cluster_arrive,
    Kind.CLUSTER_WAIT: _cluster_wait,
}
