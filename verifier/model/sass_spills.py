"""Registers that ptxas spills to the stack and fills again, followed as if the stack slots were registers.

nvdisasm marks those accesses (`STL [R1+0x34], R2 (*"SpillRefill"*)`); they are the compiler's own, so nothing else
writes their slots. A slot is named by its distance from the stack pointer R1, which must not move after the prologue.
"""

from __future__ import annotations

from collections.abc import Sequence

from verifier.isa.sass_ops import SassOp, decode
from verifier.isa.sass_regs import access_bytes
from verifier.model.program import Arg, Assign, Const, Reg
from verifier.model.sass_operands import register_range, split, written_registers
from verifier.parse import sass_ast as ast

_MARK = "SpillRefill"
_STACK_POINTER = "R1"
_WORD = 4


def stack_is_fixed(code: Sequence[ast.SassInstruction]) -> bool:
    """Whether R1 is written before the first spill only."""
    spilled = False
    for statement in code:
        spilled = spilled or is_spill(statement)
        op = decode(statement.opcode)
        if spilled and _STACK_POINTER in written_registers(op, split(op, statement.operands)):
            return False
    return True


def is_spill(statement: ast.SassInstruction) -> bool:
    """A store to or a load from a slot that ptxas made for a register."""
    return statement.note is not None and _MARK in statement.note and statement.opcode.startswith(("STL", "LDL"))


def lower_spill(statement: ast.SassInstruction) -> tuple[tuple[Assign, ...], tuple[str, ...]] | None:
    """(assignments, registers read) of a spill or a fill; None when its slot or size is out of the ordinary."""
    op = decode(statement.opcode)
    slots = _slots(op, statement)
    registers = _registers(op, statement)
    if slots is None or registers is None:
        return None
    if op.root == "STL":
        sources: list[Arg] = [Reg(name) for name in registers]
        sources = sources or [Const(0)] * len(slots)
        return tuple(Assign(s, "mov", 32, (r,)) for s, r in zip(slots, sources, strict=True)), (
            _STACK_POINTER,
            *registers,
        )
    assigns = tuple(Assign(r, "mov", 32, (Reg(s),)) for r, s in zip(registers, slots, strict=False))
    return assigns, (_STACK_POINTER, *slots)


def _slots(op: SassOp, statement: ast.SassInstruction) -> tuple[str, ...] | None:
    place = next((o for o in statement.operands if isinstance(o, ast.Address)), None)
    size = access_bytes(op)
    if place is None or place.terms != (ast.Register(_STACK_POINTER),) or size % _WORD or place.offset % _WORD:
        return None
    return tuple(f"[R1+{place.offset + step:#x}]" for step in range(0, size, _WORD))


def _registers(op: SassOp, statement: ast.SassInstruction) -> tuple[str, ...] | None:
    register = next((o for o in statement.operands if isinstance(o, ast.Register)), None)
    if register is None or register.prefix:
        return None
    return register_range(register.name, access_bytes(op) // _WORD)
