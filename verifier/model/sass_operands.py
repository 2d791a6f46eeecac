"""Operands of a SASS instruction: which it writes, which registers it reads, addresses, arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from verifier.isa.sass_ops import Part, Results, SassOp
from verifier.isa.sass_regs import (
    INDEXED_LAUNCH_WORDS,
    SPECIAL_REGISTERS,
    bundle_registers,
    launch_word,
    result_registers,
    source_registers,
    writes_flags,
)
from verifier.model.program import AddressExpr, Arg, Const, Reg, SReg, Sym
from verifier.parse import sass_ast as ast

ZERO = Const(0)
_CONSTANT_REGISTERS: dict[str, Arg] = {"RZ": ZERO, "URZ": ZERO, "PT": Const(1), "UPT": Const(1)}
_HARMLESS = (("reuse",), ())
_CONSTANT_KINDS = ("c", "cx")
_MASK32 = 0xFFFFFFFF
_REPEATED = {"X4": 4, "X8": 8, "X16": 16}


class Machine(msgspec.Struct, frozen=True):
    """What operands mean on one machine: the architecture number, and the known words of constant banks."""

    arch: int
    tables: dict[int, tuple[int, ...]] = {}


class Operands(msgspec.Struct, frozen=True):
    """Operands split at the last result. `results` are operands that are written, `sources` the rest."""

    results: tuple[ast.Operand, ...]
    sources: tuple[ast.Operand, ...]


def split(op: SassOp, operands: tuple[ast.Operand, ...]) -> Operands:
    """Tell results from sources by the opcode's row."""
    count = _COUNTERS[op.row.results](operands)
    return Operands(operands[:count], operands[count:])


def is_predicate(operand: ast.Operand) -> bool:
    """A predicate register as written in a result: no prefix."""
    return isinstance(operand, ast.Register) and not operand.prefix and _is_predicate_name(operand.name)


def _is_predicate_name(name: str) -> bool:
    return name.startswith(("P", "UP"))


def _count_carries(operands: tuple[ast.Operand, ...]) -> int:
    count = 1
    while count < min(3, len(operands)) and is_predicate(operands[count]):
        count += 1
    return count if not is_predicate(operands[0]) else 2


def _count_maybe_predicate(operands: tuple[ast.Operand, ...]) -> int:
    if not is_predicate(operands[0]):
        return 1
    return 2 if len(operands) > 1 and isinstance(operands[1], ast.Register) else 1


def _count_vote(operands: tuple[ast.Operand, ...]) -> int:
    return 1 if is_predicate(operands[0]) else 2


def _count_two(operands: tuple[ast.Operand, ...]) -> int:
    return 2 if len(operands) > 1 and isinstance(operands[1], ast.Register) else 1


_COUNTERS: dict[Results, Callable[[tuple[ast.Operand, ...]], int]] = {
    Results.NONE: lambda operands: 0,
    Results.REGISTER: lambda operands: min(1, len(operands)),
    Results.CARRIES: _count_carries,
    Results.MAYBE_PREDICATE: _count_maybe_predicate,
    Results.PREDICATE: lambda operands: 1,
    Results.PREDICATES: lambda operands: 2,
    Results.VOTE: _count_vote,
    Results.TWO: _count_two,
    Results.FLAGS: lambda operands: 1,
}


def register_range(name: str, count: int) -> tuple[str, ...]:
    """`count` consecutive registers from `name` on; none for the constant registers."""
    if name in _CONSTANT_REGISTERS:
        return ()
    digits = len(name.rstrip("0123456789"))
    if digits == len(name):
        return ()
    first = int(name[digits:])
    return tuple(f"{name[:digits]}{first + step}" for step in range(count))


def written_registers(op: SassOp, operands: Operands) -> tuple[str, ...]:
    """Every register that the instruction may write."""
    written: list[str] = list(writes_flags(op))
    width = result_registers(op)
    for operand in operands.results:
        if isinstance(operand, ast.Register):
            written += register_range(operand.name, 1 if _is_predicate_name(operand.name) else width)
    if op.has("256") and op.part is Part.LOAD and isinstance(operands.sources[0], ast.Register):
        written += register_range(operands.sources[0].name, 4)
    return tuple(written)


def read_registers(op: SassOp, operands: Operands) -> tuple[str, ...]:
    """Every register that the instruction reads, addresses and descriptors included, guards not."""
    read: list[str] = []
    position = place = 0
    for operand in operands.sources:
        if isinstance(operand, ast.Address):
            read += _address_registers(op, operand, place)
            place += 1
            position += operand.kind in _CONSTANT_KINDS
        elif isinstance(operand, ast.Immediate):
            position += 1
        elif isinstance(operand, ast.Register):
            if _is_predicate_name(operand.name):
                read += register_range(operand.name, 1)
            else:
                # With .F32 it is one register, for both halves of a pair.
                count = 1 if "F32" in operand.suffixes else source_registers(op, position)
                read += register_range(operand.name, count)
                position += 1
    if op.part is Part.WGMMA_MMA:  # accumulates
        read += written_registers(op, operands)
    return tuple(read)


def _address_registers(op: SassOp, operand: ast.Address, place: int) -> Iterator[str]:
    if isinstance(operand.head, ast.Register):
        yield from register_range(operand.head.name, 2)
    for term in operand.terms:
        if isinstance(term, ast.Register):
            wide = "64" in term.suffixes or operand.kind in ("gdesc", "desc")
            yield from register_range(term.name, max(2 if wide else 1, bundle_registers(op, place)))


def address_of(operand: ast.Address) -> AddressExpr:
    """The sum of a bracketed operand: low words of 64-bit registers, scaled registers as often as they are scaled."""
    terms: list[Arg] = []
    for term in operand.terms:
        if isinstance(term, ast.Symbol):
            terms.append(Sym(term.text, "code"))
        elif term.name not in _CONSTANT_REGISTERS:
            times = next((_REPEATED[s] for s in term.suffixes if s in _REPEATED), 1)
            terms += [Reg(term.name)] * times
    return AddressExpr(tuple(terms), operand.offset)


def addresses_of(instruction: ast.SassInstruction) -> tuple[AddressExpr, ...]:
    """Addresses of all bracketed operands that are no constants, in order."""
    return tuple(
        address_of(o) for o in instruction.operands if isinstance(o, ast.Address) and o.kind not in _CONSTANT_KINDS
    )


def bundle_member(instruction: ast.SassInstruction, place: int, member: int) -> Reg | None:
    """Register `member` of the group that bracketed operand `place` names: `[UR8]` of UTMALDG stands for UR8 (shared
    address), UR9 (barrier), UR10... (coordinates)."""
    found = [o for o in instruction.operands if isinstance(o, ast.Address)]
    if place >= len(found) or not found[place].terms:
        return None
    term = found[place].terms[0]
    names = register_range(term.name, member + 1) if isinstance(term, ast.Register) else ()
    return Reg(names[member]) if len(names) > member else None


def constant_of(operand: ast.Address, machine: Machine) -> Arg | None:
    """A constant-bank operand: a launch fact by its PTX name, any other word of a fixed place as a symbol."""
    if operand.prefix or operand.suffixes or not isinstance(operand.head, ast.Immediate):
        return None
    registers = [t for t in operand.terms if not isinstance(t, ast.Register) or t.name not in _CONSTANT_REGISTERS]
    if registers:
        name = INDEXED_LAUNCH_WORDS.get(operand.offset) if operand.head.value == 0 and machine.arch >= 100 else None
        return SReg(name) if name else None
    return constant_word(int(operand.head.value), operand.offset, machine)


def constant_word(bank: int, offset: int, machine: Machine) -> Arg:
    """The word at a fixed place of a constant bank."""
    name = launch_word(machine.arch, offset) if bank == 0 else None
    return SReg(name) if name else Sym(f"c[{bank:#x}][{offset:#x}]", "const")


def arg_of(operand: ast.Operand, machine: Machine) -> Arg | None:
    """An integer or predicate operand as an argument; None when it is negated, a float, or a part of a register."""
    if isinstance(operand, ast.Register):
        if operand.prefix or operand.suffixes not in _HARMLESS:
            return None
        return _CONSTANT_REGISTERS.get(operand.name) or Reg(operand.name)
    if isinstance(operand, ast.Immediate):
        return Const(operand.value & _MASK32) if isinstance(operand.value, int) and not operand.prefix else None
    if isinstance(operand, ast.Address):
        return constant_of(operand, machine) if operand.kind == "c" else None
    if isinstance(operand, ast.Symbol):
        return Sym(f"{operand.relocation}({operand.text})", "global") if operand.relocation else None
    return SReg(SPECIAL_REGISTERS.get(operand.text, operand.text)) if isinstance(operand, ast.Word) else None


def signed_arg(operand: ast.Operand, machine: Machine) -> tuple[Arg, int] | None:
    """(argument, sign) of an operand that may carry a minus."""
    if isinstance(operand, ast.Register | ast.Address) and operand.prefix == "-":
        arg = arg_of(msgspec.structs.replace(operand, prefix=""), machine)
        return None if arg is None else (arg, -1)
    arg = arg_of(operand, machine)
    return None if arg is None else (arg, 1)


def predicate_arg(operand: ast.Operand) -> tuple[Arg, bool] | None:
    """(argument, negated) of a predicate source; a constant is given without negation."""
    if not isinstance(operand, ast.Register) or operand.prefix not in ("", "!"):
        return None
    negated = operand.prefix == "!"
    if operand.name in ("PT", "UPT"):
        return Const(int(not negated)), False
    return Reg(operand.name), negated
