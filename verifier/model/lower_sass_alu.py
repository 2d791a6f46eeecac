"""What a SASS instruction computes, in the operations of `isa.compute`.

Integer and predicate work is modelled as far as warp roles, branches, addresses and barrier operands need it; any
other register that an instruction writes gets an "opaque" assignment.
"""

from __future__ import annotations

from verifier.isa.sass_ops import SassOp
from verifier.model import sass_integer, sass_logic
from verifier.model.program import Assign
from verifier.model.sass_operands import Machine, read_registers, split, written_registers
from verifier.model.sass_work import Rule, Work
from verifier.parse import sass_ast as ast

_RULES: dict[str, Rule] = {**sass_integer.RULES, **sass_logic.RULES}


def lower_assigns(
    op: SassOp, operands: tuple[ast.Operand, ...], machine: Machine
) -> tuple[tuple[Assign, ...], tuple[str, ...]]:
    """(assignments, registers read) of one instruction; guards are not included."""
    parts = split(op, operands)
    rule = _RULES.get(op.root)
    known = (rule(Work(op, parts, machine)) if rule else None) or []
    missing = dict.fromkeys(written_registers(op, parts))
    for assign in known:
        missing.pop(assign.dst, None)
    opaque = [Assign(reg, "opaque", 32) for reg in missing]
    return (*known, *opaque), read_registers(op, parts)
