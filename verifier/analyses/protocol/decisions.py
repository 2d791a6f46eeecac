"""Decisions inside a loop that hang on a counter: whether rounds that no run came to may decide otherwise.

A branch or guard that compares a growing register with what also ends the loop falls the other way at the same distance
from the end, in every run. One that compares it with anything else may do so in a later round than any that was run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from verifier.analyses.protocol.drift import Amount
from verifier.model.cfg import Loop
from verifier.model.program import Arg, Const, Instr, Reg
from verifier.model.ssa import SsaValue

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code

Limit = tuple[object, int]  # what a growing register is compared with, and the sign of its growth
_LOGIC = frozenset({"and", "or", "xor", "not", "mov", "selp"})
_OPEN: Limit = ("not known", 0)


def repeat(code: Code, moving: Mapping[int, Amount], blocks: Iterable[int]) -> bool:
    """Whether the decisions taken in `blocks` stay what they are until the loop ends, when slots move as given."""
    ends: dict[int, set[Limit]] = {}
    inner: list[tuple[int, set[Limit]]] = []
    for block in blocks:
        loop = _outermost(code, block)
        for instr in _guarded(code, block):
            limits = set(_limits(code, instr, moving))
            if loop is None or not limits:
                continue
            if _leaves(code, loop, block, instr):
                ends.setdefault(loop.header, set()).update(limits)
            else:
                inner.append((loop.header, limits))
    return all(_is_one(found) for found in ends.values()) and all(
        _agree(limits, ends.get(header, set())) for header, limits in inner
    )


def _is_one(limits: set[Limit]) -> bool:
    """Whether the ways out of a loop are all at one limit."""
    return _OPEN not in limits and len({_kind(limit) for limit in limits}) <= 1


def _agree(limits: set[Limit], ends: set[Limit]) -> bool:
    return _OPEN not in limits and {_kind(limit) for limit in limits} <= {_kind(limit) for limit in ends}


def _kind(limit: Limit) -> Limit:
    """Constants are one limit: what counts down to 0 passes each constant at a fixed distance from there."""
    what, sign = limit
    return ("a constant", sign) if isinstance(what, int) else limit


def _outermost(code: Code, block: int) -> Loop | None:
    return next((loop for loop in code.cfg.loops if loop.header in code.heads and block in loop.blocks), None)


def _guarded(code: Code, block: int) -> Iterator[Instr]:
    """Kept instructions of a block whose guard decides something: branches and events."""
    bounds = code.cfg.blocks[block]
    for index in range(bounds.start, bounds.end):
        instr = code.model.function.instrs[index]
        if instr.guards and index in code.slice.keep and (index in code.events or index == bounds.end - 1):
            yield instr


def _leaves(code: Code, loop: Loop, block: int, instr: Instr) -> bool:
    last = code.cfg.blocks[block].end - 1
    return instr.index == last and any(edge.dst not in loop.blocks for edge in code.cfg.successors[block])


def _limits(code: Code, instr: Instr, moving: Mapping[int, Amount]) -> Iterator[Limit]:
    """What growing registers are compared with to decide whether an instruction runs."""
    reads = code.model.ssa.reads[instr.index]
    work = [reads[guard.reg] for guard in instr.guards if guard.reg in reads]
    seen: set[int] = set()
    while work:
        value = work.pop()
        if value.id in seen:
            continue
        seen.add(value.id)
        if value.incoming is not None:
            work += value.incoming.values()
        elif value.assign is not None and value.assign.op in _LOGIC:
            work += [arg for arg in value.args if isinstance(arg, SsaValue)]
        elif value.assign is not None:
            yield from _compared(code, value, moving)


def _compared(code: Code, value: SsaValue, moving: Mapping[int, Amount]) -> Iterator[Limit]:
    assert value.assign is not None
    compares = value.assign.op.startswith("setp")
    amounts = [_amount(code, arg, moving) for arg in (value.args[:2] if compares else value.args)]
    if value.instr in code.events or not any(by != 0 for by in amounts):
        return
    if compares and 0 in amounts:
        still, by = amounts.index(0), amounts[1 - amounts.index(0)]
        if by is not None:
            yield (_name(value.args[still]), 1 if by > 0 else -1)
            return
    if len(set(amounts)) > 1 or None in amounts:
        yield _OPEN


def _amount(code: Code, arg: SsaValue | Arg, moving: Mapping[int, Amount]) -> Amount:
    name = arg.reg if isinstance(arg, SsaValue) else arg.name if isinstance(arg, Reg) else None
    slot = code.layout.registers.get(name) if name is not None else None
    return moving.get(slot, 0) if slot is not None else 0


def _name(arg: SsaValue | Arg) -> object:
    if isinstance(arg, Const):
        return int(arg.value)
    while isinstance(arg, SsaValue) and arg.assign is not None and arg.assign.op == "mov" and len(arg.args) == 1:
        arg = arg.args[0]
    if isinstance(arg, Const):
        return int(arg.value)
    return arg.reg if isinstance(arg, SsaValue) else arg
