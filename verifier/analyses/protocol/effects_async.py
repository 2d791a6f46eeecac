"""Copies, stores and multiplications that complete later than they are issued, and the cluster launch control."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.effects_memory import (
    address_of,
    data_slots,
    element_bytes,
    line_of,
    size_if_known,
    write_lanes,
)
from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.operands import Scalar, place, scalar
from verifier.analyses.protocol.slicing import descriptors
from verifier.analyses.protocol.values import UNDEFINED, pick
from verifier.model.events import Event, Kind
from verifier.model.lower_ptx import Resolved
from verifier.model.program import Const, Instr, Reg

if TYPE_CHECKING:
    from verifier.analyses.protocol.alu import Step
    from verifier.analyses.protocol.code import Code
    from verifier.analyses.protocol.machine import Machine


def _bulk_load(code: Code, instr: Instr, event: Event) -> Step:
    where = address_of(code, event)
    target = place(code.layout, event.barrier, f"the barrier of the copy at PTX line {line_of(event)}")
    assert where is not None
    assert target is not None
    source = place(code.layout, event.source, "the source of a copy")
    size = scalar(code.layout, event.size, f"the size of the copy at PTX line {line_of(event)}")
    mask = scalar(code.layout, event.mask, f"the CTA mask of the copy at PTX line {line_of(event)}")
    pair = event.has("cta_group::2")
    between = event.kind is Kind.BULK_PEER
    index = instr.index

    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        addresses, barriers = where.by_address(fiber), target.by_address(fiber)
        key = source.value(fiber) if source is not None else 0
        read: dict[int, int] = {}
        if between and isinstance(key, int):
            read = machine.traffic.bulk_read(fiber.warp, key, _bytes(size, fiber), index)
        for (address, lanes), (barrier, _) in zip(addresses, barriers * len(addresses), strict=False):
            leads = pair and (fiber.warp.cta & 1 == 0 or barrier >> RANK_SHIFT != fiber.warp.cta)
            pairs = _multicast(machine, address, barrier, mask, fiber, leads)
            for to, signal in pairs:
                for _ in range(lanes):
                    machine.traffic.bulk_load(fiber.warp, to, signal, _bytes(size, fiber), key, index, read)

    return step


def _multicast(
    machine: Machine, address: int, barrier: int, mask: Scalar | None, fiber: Fiber, leads: bool
) -> list[tuple[int, int]]:
    """(destination, barrier) of each CTA that a copy goes to: the same offsets everywhere.

    `leads` says that the barrier named is that of the even CTA of a pair: then the even CTA of each destination's pair
    is told.
    """
    if mask is None:
        return [(address, barrier)]
    targets = machine.traffic.everywhere(address, mask.one(fiber))
    signals = [t & ~OFFSET_MASK | barrier & OFFSET_MASK for t in targets]
    return [(t, s & ~(1 << RANK_SHIFT) if leads else s) for t, s in zip(targets, signals, strict=True)]


def _bytes(size: Scalar | None, fiber: Fiber) -> int | None:
    return None if size is None else size.one(fiber)


def _bulk_store(code: Code, instr: Instr, event: Event) -> Step:
    where = place(code.layout, event.source, f"the source of the copy at PTX line {line_of(event)}")
    to = place(code.layout, event.address, "the destination of a copy")
    size = scalar(code.layout, event.size, f"the size of the copy at PTX line {line_of(event)}")
    index = instr.index

    def step(fiber: Fiber) -> None:
        address = where.value(fiber) if where is not None else UNDEFINED
        key = to.value(fiber) if to is not None else 0
        for lane in fiber.lanes if isinstance(address, tuple) else fiber.lanes[:1]:
            own = pick(address, lane)
            fiber.machine.traffic.bulk_store(fiber.warp, own, size_if_known(size, fiber), key, index)

    return step


def _bulk_commit(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.bulk.commit()


def _bulk_wait(code: Code, _instr: Instr, event: Event) -> Step:
    number = scalar(code.layout, event.number, f"the group count at PTX line {line_of(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.bulk, number.one(fiber))


def _copy_async(code: Code, instr: Instr, event: Event) -> Step | None:
    where = address_of(code, event)
    width = event.size.value if isinstance(event.size, Const) else 16
    index = instr.index
    if where is None:
        return None
    return lambda fiber: fiber.machine.traffic.copy_async(fiber, where.value(fiber), int(width), index)


def _wgmma(code: Code, instr: Instr, event: Event) -> Step:
    slots = tuple(code.layout.slot(Reg(name)) for name in sorted(descriptors(event, instr)))
    index = instr.index

    def step(fiber: Fiber) -> None:
        done = fiber.warp.wgmma.issue()
        for slot in slots:
            reads = (fiber.warp.wgmma.component, done)
            fiber.machine.traffic.read_operand(fiber.warp, fiber.regs[slot], index, False, reads)

    return step


def _wgmma_commit(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.wgmma.commit()


def _wgmma_wait(code: Code, _instr: Instr, event: Event) -> Step:
    number = scalar(code.layout, event.number, f"the group count at PTX line {line_of(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.wgmma, number.one(fiber))


def _copy_commit(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.copies.commit()


def _copy_wait(code: Code, _instr: Instr, event: Event) -> Step:
    if event.opcode.endswith("wait_all"):
        return lambda fiber: fiber.warp.wait_copies()
    number = scalar(code.layout, event.number, f"the group count at PTX line {line_of(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.copies, number.one(fiber))


def _async_store(code: Code, instr: Instr, event: Event) -> Step:
    where = address_of(code, event)
    target = place(code.layout, event.barrier, f"the barrier of the store at PTX line {line_of(event)}")
    assert where is not None
    assert target is not None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    slots = data_slots(code, instr, 1) if instr.index in code.slice.data else ()
    index, width = instr.index, event.width

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        barriers = target.by_address(fiber)
        for barrier, lanes in barriers:
            rank = barrier >> RANK_SHIFT if len(barriers) > 1 else None
            fiber.machine.traffic.async_store(fiber, address, width, barrier, lanes, index, rank)
        if slots:
            write_lanes(fiber, address, size, slots)

    return step


def _cancel(code: Code, instr: Instr, event: Event) -> Step:
    where = address_of(code, event)
    target = place(code.layout, event.barrier, f"the barrier of try_cancel at PTX line {line_of(event)}")
    assert where is not None
    assert target is not None
    everywhere = event.has("multicast::cluster::all")
    index = instr.index

    def step(fiber: Fiber) -> None:
        fiber.machine.traffic.cancel(fiber.warp, where.one(fiber), target.one(fiber), everywhere, index)

    return step


MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    Kind.BULK_LOAD: _bulk_load,
    Kind.BULK_PEER: _bulk_load,
    Kind.BULK_STORE: _bulk_store,
    Kind.BULK_COMMIT: _bulk_commit,
    Kind.BULK_WAIT: _bulk_wait,
    Kind.COPY_ASYNC: _copy_async,
    Kind.WGMMA_MMA: _wgmma,
    Kind.WGMMA_COMMIT: _wgmma_commit,
    Kind.WGMMA_WAIT: _wgmma_wait,
    Kind.COPY_COMMIT: _copy_commit,
    Kind.COPY_WAIT: _copy_wait,
    Kind.ASYNC_STORE: _async_store,
    Kind.ASYNC_REDUCE: _async_store,
    Kind.CLC_CANCEL: _cancel,
}
