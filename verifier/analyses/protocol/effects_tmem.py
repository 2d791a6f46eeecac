"""Tensor memory operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.operands import Place, Scalar, place, scalar
from verifier.isa.ptx_ops import PtxOp, decode
from verifier.isa.tmem import (
    SHIFTED_COLUMNS,
    accumulator_footprint,
    copy_columns,
    load_store_columns,
    operand_columns,
    scale_columns,
    shifted_quarters,
)
from verifier.model.events import Event, Kind
from verifier.model.program import Instr, Reg

if TYPE_CHECKING:
    from verifier.analyses.protocol.alu import Step
    from verifier.analyses.protocol.code import Code


def _need(found: Place | None) -> Place:
    assert found is not None
    return found


def _address(code: Code, event: Event) -> Place:
    return _need(place(code.layout, event.address, f"the address of {event.kind.value} at PTX line {_line(event)}"))


def _line(event: Event) -> int | None:
    return event.location.ptx_line


def _count(code: Code, event: Event, what: str) -> Scalar:
    found = scalar(code.layout, event.count, f"the {what} at PTX line {_line(event)}")
    assert found is not None
    return found


def _pair(event: Event) -> bool:
    return event.has("cta_group::2")


def _alloc(code: Code, instr: Instr, event: Event) -> Step:
    where, columns = _address(code, event), _count(code, event, "column count of alloc")

    def step(fiber: Fiber) -> None:
        fiber.machine.tmem.alloc(fiber.warp, where.one(fiber), columns.one(fiber), instr.index, _pair(event))

    return step


def _dealloc(code: Code, instr: Instr, event: Event) -> Step:
    where, columns = _address(code, event), _count(code, event, "column count of dealloc")

    def step(fiber: Fiber) -> None:
        fiber.machine.tmem.dealloc(fiber.warp, where.one(fiber), columns.one(fiber), instr.index, _pair(event))

    return step


def _load(code: Code, instr: Instr, event: Event) -> Step:
    where, columns, index = _address(code, event), load_store_columns(decode(event.opcode)), instr.index

    def step(fiber: Fiber) -> None:
        fiber.machine.tmem.load(fiber.warp, where.one(fiber), columns, index)

    return step


def _store(code: Code, instr: Instr, event: Event) -> Step:
    where, columns, index = _address(code, event), load_store_columns(decode(event.opcode)), instr.index

    def step(fiber: Fiber) -> None:
        fiber.machine.tmem.store(fiber.warp, where.one(fiber), columns, index)

    return step


def _wait_load(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.finish_loads()


def _wait_store(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.finish_stores()


def _mma(code: Code, instr: Instr, event: Event) -> Step:
    where = _address(code, event)
    descriptor = scalar(code.layout, event.count, f"the instruction descriptor at PTX line {_line(event)}")
    operands = tuple(code.layout.slot(Reg(name)) for name in event.registers)
    group = 2 if _pair(event) else 1
    dense = not any(event.has(word) for word in ("sp", "ws"))
    index = instr.index
    inputs = _inputs(code, event, group)

    def step(fiber: Fiber) -> None:
        known = descriptor.one(fiber) if descriptor is not None and dense else None
        columns = None if known is None else accumulator_footprint(known, group)
        for _ in fiber.lanes:
            fiber.machine.tmem.multiply(fiber.warp, where.one(fiber), columns, index, group == 2)
        for source, size in inputs:
            address = source.value(fiber)
            fiber.machine.tmem.read_operand(fiber.warp, address, size(known), index, group == 2)
        for slot in operands:
            machine = fiber.machine
            reads = machine.tmem.pipe(fiber.warp)
            machine.traffic.read_operand(fiber.warp, fiber.regs[slot], index, group == 2, reads)

    return step


def _inputs(code: Code, event: Event, group: int) -> list[tuple[Place, Callable[[int | None], int | None]]]:
    """What an MMA reads of tensor memory: places, and their columns by the instruction descriptor."""
    op = decode(event.opcode)
    found: list[tuple[Place, Callable[[int | None], int | None]]] = []
    matrix = place(code.layout, event.source, "the matrix A of an MMA")
    if matrix is not None:
        found.append((matrix, lambda _: operand_columns(op)))
    for position, expr in enumerate(event.scales):
        scales = place(code.layout, expr, "the scale factors of an MMA")
        if scales is not None:
            found.append((scales, partial(_scale_columns, op, group, position)))
    return found


def _scale_columns(op: PtxOp, group: int, position: int, descriptor: int | None) -> int | None:
    sizes = None if descriptor is None else scale_columns(op, descriptor, group)
    return sizes[position] if sizes is not None and position < len(sizes) else None


def _copy(code: Code, instr: Instr, event: Event) -> Step:
    where, columns, index = _address(code, event), copy_columns(decode(event.opcode)), instr.index
    operands = tuple(code.layout.slot(Reg(name)) for name in event.registers)
    pair = _pair(event)

    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        machine.tmem.multiply(fiber.warp, where.one(fiber), columns, index, pair)
        for slot in operands:
            machine.traffic.read_operand(fiber.warp, fiber.regs[slot], index, pair, machine.tmem.pipe(fiber.warp))

    return step


def _shift(code: Code, instr: Instr, event: Event) -> Step:
    where, pair, index = _address(code, event), _pair(event), instr.index

    def step(fiber: Fiber) -> None:
        address = where.one(fiber)
        quarters = shifted_quarters(address)
        fiber.machine.tmem.multiply(fiber.warp, address, SHIFTED_COLUMNS, index, pair, quarters)

    return step


def _commit(code: Code, instr: Instr, event: Event) -> Step:
    what = f"the barrier of the commit at PTX line {_line(event)}"
    where = _need(place(code.layout, event.barrier, what))
    mask = scalar(code.layout, event.mask, f"the CTA mask of the commit at PTX line {_line(event)}")
    spread = event.has("multicast::cluster") and mask is not None
    index = instr.index

    def step(fiber: Fiber) -> None:
        machine = fiber.machine
        clock = machine.tmem.commit_clock(fiber.warp)
        for address, lanes in where.by_address(fiber):
            targets = (
                machine.traffic.everywhere(address, mask.one(fiber)) if spread and mask is not None else (address,)
            )
            for target in targets:
                machine.signals.arrive(fiber.warp, machine.signals.barrier(target), lanes, index, clock)

    return step


MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    Kind.TMEM_ALLOC: _alloc,
    Kind.TMEM_DEALLOC: _dealloc,
    Kind.TMEM_LOAD: _load,
    Kind.TMEM_STORE: _store,
    Kind.TMEM_WAIT_LOAD: _wait_load,
    Kind.TMEM_WAIT_STORE: _wait_store,
    Kind.TMEM_MMA: _mma,
    Kind.TMEM_COPY: _copy,
    Kind.TMEM_SHIFT: _shift,
    Kind.TMEM_COMMIT: _commit,
}
