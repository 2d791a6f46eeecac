"""Closures for what instructions compute: `step(fiber)` reads slots and writes one."""

from __future__ import annotations

from collections.abc import Callable

from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.layout import Layout
from verifier.analyses.protocol.values import WARP, Memo, Scalar, Unknown, collapse, pick, spread
from verifier.isa.compute import OPERATIONS, mask
from verifier.model.program import Assign, Const, Instr, Reg, Sym

Step = Callable[[Fiber], object]
RANK_SHIFT = 24  # a shared::cluster address is `rank << 24 | offset`; see `model.symbolic`
OFFSET_MASK = (1 << RANK_SHIFT) - 1

_ELECTED = tuple(tuple(int(lane == chosen) for lane in range(WARP)) for chosen in range(WARP))


def _mapa(_width: int, address: int, rank: int) -> int:
    return address & OFFSET_MASK | rank << RANK_SHIFT


def compute_step(layout: Layout, assign: Assign, instr: Instr) -> Step:
    """The closure of one assignment."""
    dst = layout.slot(Reg(assign.dst))
    if assign.op == "ld_param":
        return _param(layout, assign, dst)
    if assign.op == "elect":
        return _elect(dst)
    lane_rule = _LANE_RULES.get(assign.op)
    if lane_rule is not None:
        return lane_rule(dst, *(layout.slot(arg) for arg in assign.args))
    function = _mapa if assign.op == "mapa" else OPERATIONS.get(assign.op)
    if function is None:
        return _opaque(dst, instr)
    slots = tuple(layout.slot(arg) for arg in assign.args)
    return _by_arity(dst, assign.op, function, assign.width, slots)


def _opaque(dst: int, instr: Instr) -> Step:
    value = Unknown(f"{instr.opcode} at PTX line {instr.location.ptx_line}")

    def step(fiber: Fiber) -> None:
        fiber.regs[dst] = value

    return step


def _param(layout: Layout, assign: Assign, dst: int) -> Step:
    base, offset = assign.args
    assert isinstance(base, Sym)
    assert isinstance(offset, Const)
    return _move(dst, layout.param(base.name, int(offset.value), assign.width))


def _move(dst: int, src: int) -> Step:
    def step(fiber: Fiber) -> None:
        regs = fiber.regs
        regs[dst] = regs[src]

    return step


def _elect(dst: int) -> Step:
    """The lowest active lane is elected; no verdict may depend on which one it is."""

    def step(fiber: Fiber) -> None:
        lanes = fiber.lanes
        fiber.regs[dst] = 1 if len(lanes) == 1 else _ELECTED[lanes[0]]

    return step


def _by_arity(dst: int, op: str, function: Callable[..., int], width: int, slots: tuple[int, ...]) -> Step:
    if len(slots) == 1:
        return _unary(dst, op, function, width, slots[0])
    if len(slots) == 2:
        return _binary(dst, op, function, width, *slots)
    return _general(dst, op, function, width, slots)


def _unary(dst: int, op: str, function: Callable[..., int], width: int, a: int) -> Step:
    memo = Memo(op, function, width)

    def step(fiber: Fiber) -> None:
        regs = fiber.regs
        x = regs[a]
        regs[dst] = function(width, x) if x.__class__ is int else memo((x,), fiber.lanes)

    return step


def _binary(dst: int, op: str, function: Callable[..., int], width: int, a: int, b: int) -> Step:
    memo = Memo(op, function, width)

    def step(fiber: Fiber) -> None:
        regs = fiber.regs
        x, y = regs[a], regs[b]
        if x.__class__ is int and y.__class__ is int:
            regs[dst] = function(width, x, y)
        else:
            regs[dst] = memo((x, y), fiber.lanes)

    return step


def _general(dst: int, op: str, function: Callable[..., int], width: int, slots: tuple[int, ...]) -> Step:
    memo = Memo(op, function, width)

    def step(fiber: Fiber) -> None:
        regs = fiber.regs
        args = tuple([regs[slot] for slot in slots])
        for arg in args:
            if arg.__class__ is not int:
                regs[dst] = memo(args, fiber.lanes)
                return
        regs[dst] = function(width, *args)

    return step


def _shuffle(source_of: Callable[[int, int], int], *, upward: bool = False) -> Callable[..., Step]:
    """Lane `i` reads lane `source_of(i, operand)` of its segment; outside it keeps its own value.

    The last operand holds the segment mask in bits 8-12 and the clamp in bits 0-4 (PTX ISA 9.4, shfl.sync).
    """

    def make(dst: int, value_slot: int, operand_slot: int, clamp_slot: int) -> Step:
        def step(fiber: Fiber) -> None:
            value, operand = fiber.regs[value_slot], fiber.regs[operand_slot]
            if not isinstance(value, tuple):
                fiber.regs[dst] = value
                return
            clamp = fiber.regs[clamp_slot]
            result: list[Scalar] = list(value)
            for lane in fiber.lanes:
                by = pick(operand, lane)
                if not isinstance(by, int) or not isinstance(clamp, int):
                    result[lane] = Unknown("a shuffle by an unknown amount")
                    continue
                segment = clamp >> 8 & 31
                first, last = lane & segment, lane & segment | clamp & 31 & ~segment
                source = source_of(lane, by)
                if source_of is _indexed:
                    source = first | source & ~segment
                if source >= last if upward else source <= last:
                    result[lane] = value[source]
            fiber.regs[dst] = collapse(tuple(result), fiber.lanes)

        return step

    return make


def _indexed(_lane: int, by: int) -> int:
    return by & mask(5)


def _votes(dst: int, slot: int, combine: Callable[[list[tuple[int, int]]], int]) -> Step:
    def step(fiber: Fiber) -> None:
        values = spread(fiber.regs[slot])
        known: list[tuple[int, int]] = []
        for lane in fiber.lanes:
            value = values[lane]
            if isinstance(value, Unknown):
                fiber.regs[dst] = value
                return
            known.append((lane, value & 1))
        fiber.regs[dst] = combine(known)

    return step


def _ballot(dst: int, slot: int, *_mask: int) -> Step:
    return _votes(dst, slot, lambda known: sum(bit << lane for lane, bit in known))


def _any(dst: int, slot: int, *_mask: int) -> Step:
    return _votes(dst, slot, lambda known: int(any(bit for _, bit in known)))


def _all(dst: int, slot: int, *_mask: int) -> Step:
    return _votes(dst, slot, lambda known: int(all(bit for _, bit in known)))


_LANE_RULES: dict[str, Callable[..., Step]] = {
    "shfl_idx": _shuffle(_indexed),
    "shfl_up": _shuffle(lambda lane, by: lane - by, upward=True),
    "shfl_down": _shuffle(lambda lane, by: lane + by),
    "shfl_bfly": _shuffle(lambda lane, by: lane ^ by),
    "ballot": _ballot,
    "vote_any": _any,
    "vote_all": _all,
}
