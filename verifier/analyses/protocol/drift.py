"""Registers that grow from round to round, and whether what grows can reach an event's operands.

Between two states that are otherwise equal each register has moved by some amount, mostly zero. The amounts are carried
through the instructions of the rounds between: `x & -16` moves with `x` when `x` moves by a multiple of 16, `x & 15`
does not move at all, a difference of two that move alike stands still. If that leaves every operand of every event
standing still, the next rounds do what these did. Counters are taken to stay below 2^20.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from verifier.analyses.protocol.layout import Layout
from verifier.analyses.protocol.slicing import Slice, operand_registers
from verifier.analyses.protocol.values import LaneValue
from verifier.isa.compute import signed
from verifier.model.events import Event, Kind, in_shared
from verifier.model.program import Assign, Const, Instr, Reg

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code

Amount = int | None  # None: by an amount that is not known
_WORD = 32
_COUNTER_BITS = 20  # no counter reaches bits from here on


def amount(before: LaneValue, after: LaneValue) -> Amount:
    """By how much a value has moved, the same in all lanes."""
    if before is after or before == after:
        return 0
    if isinstance(before, int) and isinstance(after, int):
        return after - before
    if isinstance(before, tuple) and isinstance(after, tuple):
        moved = {amount(x, y) for x, y in zip(before, after, strict=True)}
        return moved.pop() if len(moved) == 1 else None
    return None


class Drift:
    """What the instructions of a slice do to moving registers."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._steps: dict[int, list[_Transfer]] = defaultdict(list)  # block -> what its instructions do, in order
        for index in sorted(code.slice.keep):
            self._add(index)

    def _add(self, index: int) -> None:
        code = self._code
        instr, event = code.model.function.instrs[index], code.events.get(index)
        steps = self._steps[code.cfg.block_of[index]]
        if event is not None and event.kind is not Kind.EXIT:
            slots = tuple(code.layout.slot(Reg(reg)) for reg in sorted(_steering(event)))
            steps.append(_Transfer(-1, "event", tuple((slot, None) for slot in slots), None))
        for assign in instr.assigns:
            transfer = _transfer(code.layout, code.slice, instr, event, assign)
            if transfer is not None:
                steps.append(transfer)

    def stands_still(self, moved: Mapping[int, Amount], loaded: Mapping[int, Amount], blocks: Iterable[int]) -> bool:
        """Whether operands of events in `blocks` keep their values when slots have moved as given."""
        return self.movement(moved, loaded, blocks) is not None

    def movement(
        self, moved: Mapping[int, Amount], loaded: Mapping[int, Amount], blocks: Iterable[int]
    ) -> dict[int, Amount] | None:
        """By how much each slot moves anywhere in `blocks`; None when an operand of an event does.

        `loaded` is by how much what a slot is loaded with from shared memory has moved.
        """
        amounts: dict[int, Amount] = {slot: by for slot, by in moved.items() if by != 0}
        visited = list(blocks)
        carried = self._carried(visited)
        everywhere: dict[int, Amount] = {}
        changed = True
        while changed:
            changed = False
            everywhere = amounts.copy()
            for block in visited:
                after = self._through(block, amounts, loaded)
                if after is None:
                    return None
                everywhere.update((slot, by) for slot, by in after.items() if by != 0)
                for slot in carried & after.keys():
                    if after[slot] != amounts.get(slot, 0) and amounts.get(slot, 0) is not None:
                        amounts[slot] = None  # does not move by what it was seen to move by
                        changed = True
        return everywhere

    def _through(
        self, block: int, amounts: Mapping[int, Amount], loaded: Mapping[int, Amount]
    ) -> dict[int, Amount] | None:
        """Amounts of the slots that a block writes, at its end; None when an event's operand moves."""
        own: dict[int, Amount] = {}
        view = ChainMap(own, amounts)  # type: ignore[arg-type]
        for step in self._steps.get(block, ()):
            if step.kind == "event":
                if any(view.get(slot, 0) != 0 for slot, _ in step.args):
                    return None
            else:
                own[step.dst] = step.apply(view, loaded)
        return own

    def _carried(self, blocks: Iterable[int]) -> set[int]:
        """Slots that some block reads before it writes them."""
        carried: set[int] = set()
        for block in blocks:
            written: set[int] = set()
            for step in self._steps.get(block, ()):
                carried.update(slot for slot, value in step.args if value is None and slot not in written)
                written.add(step.dst)
        return carried


class _Transfer:
    """One assignment: `rule` gives the movement of `dst` from those of `args` (slot, or constant value).

    Of kind "event" it is none: `args` are the slots that an event's operands are made of.
    """

    __slots__ = ("args", "dst", "kind", "rule")

    def __init__(self, dst: int, kind: str, args: tuple[tuple[int, int | None], ...], rule: Rule | None) -> None:
        self.dst = dst
        self.kind = kind
        self.args = args  # (slot, value if it is a constant)
        self.rule = rule

    def apply(self, amounts: Mapping[int, Amount], loaded: Mapping[int, Amount]) -> Amount:
        if self.kind == "shared":
            return loaded.get(self.dst, 0)
        by = [0 if value is not None else amounts.get(slot, 0) for slot, value in self.args]
        if not any(b != 0 for b in by):
            return 0
        if self.rule is None or None in by:
            return None
        return self.rule([b or 0 for b in by], [value for _, value in self.args])


def _transfer(layout: Layout, kept: Slice, instr: Instr, event: Event | None, assign: Assign) -> _Transfer | None:
    dst = layout.slot(Reg(assign.dst))
    guards = tuple((layout.slot(Reg(g.reg)), None) for g in instr.guards)
    if event is not None and in_shared(event) and event.kind is Kind.LOAD:
        return _Transfer(dst, "shared", (), None) if instr.index in kept.values else None
    if event is not None and event.kind not in (Kind.LOAD, Kind.ATOMIC):
        return None  # what a barrier operation returns does not grow
    if event is not None or not assign.args:
        reads = tuple((layout.slot(Reg(reg)), None) for reg in instr.uses)
        return _Transfer(dst, "opaque", reads, None)
    args = tuple((layout.slot(a), signed(int(a.value), 64) if isinstance(a, Const) else None) for a in assign.args)
    return _Transfer(dst, "rule", (*args, *guards), _RULES.get(assign.op))


def _steering(event: Event) -> set[str]:
    """Registers of an event's operands that place or count something in shared or tensor memory."""
    if not in_shared(event) and event.kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC):
        return set()
    regs = operand_registers(event)
    if event.kind in (Kind.TMEM_MMA, Kind.TMEM_COPY):
        regs |= set(event.registers)
    elsewhere = {Kind.BULK_LOAD: event.source, Kind.BULK_STORE: event.address}.get(event.kind)
    return regs - {term.name for term in elsewhere.terms if isinstance(term, Reg)} if elsewhere is not None else regs


# How results move. A rule gets the amounts of the operands and their values where they are constants.

Rule = Callable[[Sequence[int], Sequence["int | None"]], Amount]


def _scaled(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    for position, other in ((0, 1), (1, 0)):
        factor = values[other]
        if factor is not None:
            return by[position] * signed(factor, _WORD)
    return None


def _masked(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    mask = next((v for v in values if v is not None), None)
    moved = next((b for b in by if b), 0)
    if mask is None or sum(b != 0 for b in by) != 1:
        return None
    mask &= (1 << _COUNTER_BITS) - 1
    if mask & (mask + 1) == 0 and mask.bit_length() < _COUNTER_BITS:  # keeps low bits
        return 0 if moved % (mask + 1) == 0 else None
    cleared = ~mask & (1 << _COUNTER_BITS) - 1
    return moved if cleared & (cleared + 1) == 0 and moved % (cleared + 1) == 0 else None


def _flipped(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    """`or` and `xor` with a constant touch bits below what the operand moves by."""
    bits = next((v for v in values if v is not None), None)
    moved = next((b for b in by if b), 0)
    if bits is None or bits < 0 or sum(b != 0 for b in by) != 1:
        return None
    return moved if moved % (1 << bits.bit_length()) == 0 else None


def _shifted_down(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    count = values[1]
    if count is None or by[1]:
        return None
    if by[0] % (1 << count) == 0:
        return by[0] >> count
    return 0 if count >= _COUNTER_BITS else None


def _divided(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    divisor = values[1]
    return by[0] // divisor if divisor and not by[1] and by[0] % divisor == 0 else None


def _remaining(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    divisor = values[1]
    return 0 if divisor and not by[1] and by[0] % divisor == 0 else None


def _multiplied_added(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    product = _scaled(by[:2], values[:2]) if by[0] or by[1] else 0
    return None if product is None else product + by[2]


def _chosen(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    return by[0] if by[0] == by[1] and not by[2] else None


def _compared(by: Sequence[int], values: Sequence[int | None]) -> Amount:
    return 0 if by[0] == by[1] else None


_RULES: dict[str, Rule] = {
    "mov": lambda by, values: by[0] if not any(by[1:]) else None,
    "add": lambda by, values: by[0] + by[1],
    "sub": lambda by, values: by[0] - by[1],
    "neg": lambda by, values: -by[0],
    "mul": _scaled,
    "mul_wide_s": lambda by, values: _scaled(by[:2], values[:2]),
    "mad": _multiplied_added,
    "shl": lambda by, values: by[0] << values[1] if values[1] is not None and not by[1] else None,
    "shr_u": _shifted_down,
    "shr_s": _shifted_down,
    "and": _masked,
    "or": _flipped,
    "xor": _flipped,
    "div_u": _divided,
    "div_s": _divided,
    "rem_u": _remaining,
    "rem_s": _remaining,
    "selp": _chosen,
    "zext": lambda by, values: by[0],
    "sext": lambda by, values: by[0],
    "shfl_idx": lambda by, values: by[0] if not by[1] else None,
    **{f"setp_{name}_{sign}": _compared for name in ("eq", "ne", "lt", "le", "gt", "ge") for sign in "us"},
}
