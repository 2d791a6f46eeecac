"""Ordinary loads and stores, bulk copies, and the cluster launch control."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.flags import strength
from verifier.analyses.protocol.operands import Place, Scalar, place, scalar
from verifier.analyses.protocol.slicing import descriptors
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
    from verifier.analyses.protocol.machine import Machine

Touch = Callable[[Fiber, LaneValue], None]


def _line(event: Event) -> int | None:
    return event.location.ptx_line


def _address(code: Code, event: Event) -> Place | None:
    return place(code.layout, event.address, f"the address of the {event.kind.value} at PTX line {_line(event)}")


def element_bytes(resolved: Resolved) -> int:
    return next((width_of(word) for word in reversed(resolved.op.words) if is_type(word)), 32) // 8


def _data_slots(code: Code, instr: Instr, position: int) -> tuple[int | None, ...]:
    """Slots of the data operand's elements in order; None for a sink."""
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    operand = resolved.statement.operands[position]
    items = operand.items if isinstance(operand, ast.Vector) else (operand,)
    args = (arg_of(item, resolved.arg) for item in items)  # type: ignore[arg-type]
    return tuple(code.layout.slot(arg) if isinstance(arg, (Reg, Const)) else None for arg in args)


def _load(code: Code, instr: Instr, event: Event) -> Step | None:
    where = _address(code, event)
    wanted = instr.index in code.slice.values
    if where is None or event.space in ("param", "param::entry", "param::func", "const", "local"):
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    slots = _data_slots(code, instr, 0) if wanted else ()
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
    fragment = Unknown(f"the fragment of a matrix that PTX line {_line(event)} loads")
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
    where = _address(code, event)
    if where is None or not in_shared(event):
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    if resolved.op.family == "st.bulk":
        return _bulk_fill(code, where, event)
    rows = resolved.op.family in ("stmatrix", "wmma.store")  # what they hold afterwards is not followed
    slots = _data_slots(code, instr, 1) if instr.index in code.slice.data and not rows else ()
    touch = _touch(code, event, write=True)

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        touch(fiber, address)
        if slots:
            _write_lanes(fiber, address, size, slots)

    return step


def _bulk_fill(code: Code, where: Place, event: Event) -> Step:
    """`st.bulk` writes zeros."""
    size = scalar(code.layout, event.size, "the size of an st.bulk")
    index = event.instr

    def step(fiber: Fiber) -> None:
        machine, count = fiber.machine, _maybe_size(size, fiber)
        address = where.value(fiber)
        machine.traffic.touch_lanes(fiber, address, count or 0, True, index)
        for own in {pick(address, lane) for lane in fiber.lanes}:
            if isinstance(own, int) and count:
                machine.memory.write(own, count, 0)

    return step


def _write_lanes(fiber: Fiber, address: LaneValue, size: int, slots: tuple[int | None, ...]) -> None:
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
    where = _address(code, event)
    if where is None:
        return None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    wanted = instr.index in code.slice.values and resolved.op.family == "atom"
    slots = _data_slots(code, instr, 0) if wanted else ()
    touch, width = _touch(code, event, write=True), event.width
    unknown = Unknown(f"{instr.opcode} at PTX line {_line(event)}")

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
    where = _address(code, event)
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    if where is None or instr.index not in code.slice.values or resolved.op.family != "atom":
        return None
    operands = resolved.statement.operands
    slots = _data_slots(code, instr, 0)
    amount = _data_slots(code, instr, 2)[0] if len(operands) > 2 else None
    counts = any(resolved.op.has(word) for word in ("add", "inc"))
    unknown = Unknown(f"{instr.opcode} at PTX line {_line(event)}")

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


def _bulk_load(code: Code, instr: Instr, event: Event) -> Step:
    where = _address(code, event)
    target = place(code.layout, event.barrier, f"the barrier of the copy at PTX line {_line(event)}")
    assert where is not None
    assert target is not None
    source = place(code.layout, event.source, "the source of a copy")
    size = scalar(code.layout, event.size, f"the size of the copy at PTX line {_line(event)}")
    mask = scalar(code.layout, event.mask, f"the CTA mask of the copy at PTX line {_line(event)}")
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
    where = place(code.layout, event.source, f"the source of the copy at PTX line {_line(event)}")
    to = place(code.layout, event.address, "the destination of a copy")
    size = scalar(code.layout, event.size, f"the size of the copy at PTX line {_line(event)}")
    index = instr.index

    def step(fiber: Fiber) -> None:
        address = where.value(fiber) if where is not None else UNDEFINED
        key = to.value(fiber) if to is not None else 0
        for lane in fiber.lanes if isinstance(address, tuple) else fiber.lanes[:1]:
            own = pick(address, lane)
            fiber.machine.traffic.bulk_store(fiber.warp, own, _maybe_size(size, fiber), key, index)

    return step


def _maybe_size(size: Scalar | None, fiber: Fiber) -> int | None:
    value = fiber.regs[size.slot] if size is not None else None
    return value if isinstance(value, int) else None


def _bulk_commit(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.bulk.commit()


def _bulk_wait(code: Code, _instr: Instr, event: Event) -> Step:
    number = scalar(code.layout, event.number, f"the group count at PTX line {_line(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.bulk, number.one(fiber))


def _copy_async(code: Code, instr: Instr, event: Event) -> Step | None:
    where = _address(code, event)
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
    number = scalar(code.layout, event.number, f"the group count at PTX line {_line(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.wgmma, number.one(fiber))


def _copy_commit(_code: Code, _instr: Instr, _event: Event) -> Step:
    return lambda fiber: fiber.warp.copies.commit()


def _copy_wait(code: Code, _instr: Instr, event: Event) -> Step:
    if event.opcode.endswith("wait_all"):
        return lambda fiber: fiber.warp.wait_copies()
    number = scalar(code.layout, event.number, f"the group count at PTX line {_line(event)}")
    assert number is not None
    return lambda fiber: fiber.warp.wait_groups(fiber.warp.copies, number.one(fiber))


def _async_store(code: Code, instr: Instr, event: Event) -> Step:
    where = _address(code, event)
    target = place(code.layout, event.barrier, f"the barrier of the store at PTX line {_line(event)}")
    assert where is not None
    assert target is not None
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    size = element_bytes(resolved)
    slots = _data_slots(code, instr, 1) if instr.index in code.slice.data else ()
    index, width = instr.index, event.width

    def step(fiber: Fiber) -> None:
        address = where.value(fiber)
        barriers = target.by_address(fiber)
        for barrier, lanes in barriers:
            rank = barrier >> RANK_SHIFT if len(barriers) > 1 else None
            fiber.machine.traffic.async_store(fiber, address, width, barrier, lanes, index, rank)
        if slots:
            _write_lanes(fiber, address, size, slots)

    return step


def _cancel(code: Code, instr: Instr, event: Event) -> Step:
    where = _address(code, event)
    target = place(code.layout, event.barrier, f"the barrier of try_cancel at PTX line {_line(event)}")
    assert where is not None
    assert target is not None
    everywhere = event.has("multicast::cluster::all")
    index = instr.index

    def step(fiber: Fiber) -> None:
        fiber.machine.traffic.cancel(fiber.warp, where.one(fiber), target.one(fiber), everywhere, index)

    return step


MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    Kind.LOAD: _load,
    Kind.STORE: _store,
    Kind.ATOMIC: _atomic,
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
