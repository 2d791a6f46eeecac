"""Ordinary loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.flags import strength
from verifier.analyses.protocol.operands import Place, Scalar, place, scalar
from verifier.analyses.protocol.values import UNDEFINED, LaneValue, Unknown, collapse, pick
from verifier.isa.ptx_ops import is_type, width_of
from verifier.model.events import Event, Kind, in_shared
from verifier.model.lower_alu import arg_of
from verifier.model.lower_ptx import Resolved
from verifier.model.program import Const, Instr, Reg
from verifier.parse import ptx_ast as ast

if TYPE_CHECKING:
    from verifier.analyses.protocol.alu import Step
    from verifier.analyses.protocol.code import Code

Touch = Callable[[Fiber, LaneValue], None]


def line_of(event: Event) -> int | None:
    return event.location.ptx_line


def address_of(code: Code, event: Event) -> Place | None:
    return place(code.layout, event.address, f"the address of the {event.kind.value} at PTX line {line_of(event)}")


def size_if_known(size: Scalar | None, fiber: Fiber) -> int | None:
    value = fiber.regs[size.slot] if size is not None else None
    return value if isinstance(value, int) else None


def element_bytes(resolved: Resolved) -> int:
    return next((width_of(word) for word in reversed(resolved.op.words) if is_type(word)), 32) // 8


def data_slots(code: Code, instr: Instr, position: int) -> tuple[int | None, ...]:
    """Slots of the data operand's elements in order; None for a sink."""
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    operand = resolved.statement.operands[position]
    items = operand.items if isinstance(operand, ast.Vector) else (operand,)
    args = (arg_of(item, resolved.arg) for item in items)  # type: ignore[arg-type]
    return tuple(code.layout.slot(arg) if isinstance(arg, (Reg, Const)) else None for arg in args)


def _load(code: Code, instr: Instr, event: Event) -> Step | None:
    where = address_of(code, event)
    wanted = instr.index in code.slice.values
    if where is None or event.space in ("param", "param::entry", "param::func", "const", "local"):
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    slots = data_slots(code, instr, 0) if wanted else ()
    if resolved.op.family in ("ldmatrix", "wmma.load"):
        return _matrix_load(where, slots, event)
    if in_shared(event):
        return _shared_load(where, size, slots, _touch(code, event, write=False))
    return _global_load(where, size, slots)


def _touch(code: Code, event: Event, *, write: bool) -> Touch:
    """What an access of shared memory leaves in the record of the run."""
    width, index, lanes = event.width, event.instr, event.lanes
    strong = strength(code, event)
    if strong is None:
        return lambda fiber, address: fiber.machine.traffic.touch_lanes(fiber, address, width, write, index, lanes)
    return lambda fiber, address: fiber.machine.traffic.touch_strong(fiber, address, width, write, index, strong)


def _shared_load(where: Place, size: int, slots: tuple[int | None, ...], touch: Touch) -> Step:
    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        machine = fiber.machine
        touch(fiber, address)
        for position, slot in enumerate(slots):
            if slot is not None:
                fiber.regs[slot] = _each(fiber, address, position * size, partial(machine.memory.read, size=size))
                if machine.recorder is not None:
                    machine.recorder.loaded(slot, address, position * size, size)

    return step


def _matrix_load(where: Place, slots: tuple[int | None, ...], event: Event) -> Step:
    fragment = Unknown(f"the fragment of a matrix that PTX line {line_of(event)} loads")
    index, width, lanes, shared = event.instr, event.width, event.lanes, in_shared(event)

    def step(fiber: Fiber) -> None:
        if shared:
            fiber.machine.traffic.touch_lanes(fiber, where.value(fiber), width, False, index, lanes)
        for slot in slots:
            if slot is not None:
                fiber.regs[slot] = fragment

    return step


def _global_load(where: Place, size: int, slots: tuple[int | None, ...]) -> Step:
    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        script = fiber.machine.script
        for position, slot in enumerate(slots):
            if slot is not None:
                fiber.regs[slot] = _each(fiber, address, position * size, partial(script.word, size=size))

    return step


def _each(fiber: Fiber, address: LaneValue, offset: int, read: Callable[[int], int | Unknown]) -> LaneValue:
    """`read` of the address of each active lane, `offset` bytes on."""
    if isinstance(address, int):
        return read(address + offset)
    if isinstance(address, Unknown):
        return address
    values: list[int | Unknown] = [UNDEFINED] * len(address)
    for lane in fiber.lanes:
        own = address[lane]
        values[lane] = read(own + offset) if isinstance(own, int) else own
    return collapse(tuple(values), fiber.lanes)


def _store(code: Code, instr: Instr, event: Event) -> Step | None:
    where = address_of(code, event)
    if where is None or not in_shared(event):
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    if resolved.op.family == "st.bulk":
        return _bulk_fill(code, where, event)
    rows = resolved.op.family in ("stmatrix", "wmma.store")  # what they hold afterwards is not followed
    slots = data_slots(code, instr, 1) if instr.index in code.slice.data and not rows else ()
    touch = _touch(code, event, write=True)

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        touch(fiber, address)
        if slots:
            write_lanes(fiber, address, size, slots)

    return step


def _bulk_fill(code: Code, where: Place, event: Event) -> Step:
    """`st.bulk` writes zeros."""
    size = scalar(code.layout, event.size, "the size of an st.bulk")
    index = event.instr

    def step(fiber: Fiber) -> None:
        machine, count = fiber.machine, size_if_known(size, fiber)
        address = where.value(fiber)
        machine.traffic.touch_lanes(fiber, address, count or 0, True, index)
        for own in {pick(address, lane) for lane in fiber.lanes}:
            if isinstance(own, int) and count:
                machine.memory.write(own, count, 0)

    return step


def write_lanes(fiber: Fiber, address: LaneValue, size: int, slots: tuple[int | None, ...]) -> None:
    for lane in fiber.lanes:
        own = pick(address, lane)
        if not isinstance(own, int):
            continue
        for position, slot in enumerate(slots):
            if slot is not None:
                fiber.machine.memory.write(own + position * size, size, pick(fiber.regs[slot], lane))


def _atomic(code: Code, instr: Instr, event: Event) -> Step | None:
    return _shared_atomic(code, instr, event) if in_shared(event) else _counter(code, instr, event)


def _shared_atomic(code: Code, instr: Instr, event: Event) -> Step | None:
    """What it returns and leaves behind depends on the order of all atomics, so both are unknown."""
    where = address_of(code, event)
    if where is None:
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    wanted = instr.index in code.slice.values and resolved.op.family == "atom"
    slots = data_slots(code, instr, 0) if wanted else ()
    touch, width = _touch(code, event, write=True), event.width
    unknown = Unknown(f"{instr.opcode} at PTX line {line_of(event)}")

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        touch(fiber, address)
        for lane in fiber.lanes:
            own = pick(address, lane)
            if isinstance(own, int):
                fiber.machine.memory.write(own, width, unknown)
        for slot in slots:
            if slot is not None:
                fiber.regs[slot] = unknown

    return step


def _counter(code: Code, instr: Instr, event: Event) -> Step | None:
    """`atom.add` on a script's counter; anything else returns an unknown value."""
    where = address_of(code, event)
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    if where is None or instr.index not in code.slice.values or resolved.op.family != "atom":
        return None
    operands = resolved.statement.operands
    slots = data_slots(code, instr, 0)
    amount = data_slots(code, instr, 2)[0] if len(operands) > 2 else None
    counts = any(resolved.op.has(word) for word in ("add", "inc"))
    unknown = Unknown(f"{instr.opcode} at PTX line {line_of(event)}")

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        values: list[int | Unknown] = [unknown] * 32
        for lane in fiber.lanes:
            own, by = pick(address, lane), pick(fiber.regs[amount], lane) if amount is not None else unknown
            if counts and isinstance(own, int) and isinstance(by, int):
                values[lane] = fiber.machine.traffic.count_up(own, by)
        if slots[0] is not None:
            fiber.regs[slots[0]] = collapse(tuple(values), fiber.lanes)

    return step


MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    Kind.LOAD: _load,
    Kind.STORE: _store,
    Kind.ATOMIC: _atomic,
}
