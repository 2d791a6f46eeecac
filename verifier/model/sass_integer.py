"""Moves, integer arithmetic and shifts of SASS, in the operations of `isa.compute`."""

from __future__ import annotations

import struct

from verifier.model.program import Arg, Assign, Const, Reg
from verifier.model.sass_operands import ZERO, arg_of, constant_word, register_range, signed_arg
from verifier.model.sass_work import Rule, Work, names_predicate, one, plain, total
from verifier.parse import sass_ast as ast

_SIGNED_WORDS = frozenset({"S32", "S64"})


def _mov(work: Work) -> list[Assign] | None:
    if work.op.has("64"):
        return _wide_mov(work)
    return one(work, "mov", work.args(0, 1)) if work.only("SPILL") else None


def _wide_mov(work: Work) -> list[Assign] | None:
    source, target = work.sources[0], work.results[0]
    if not isinstance(target, ast.Register):
        return None
    pair = register_range(target.name, 2)
    if isinstance(source, ast.Immediate) and isinstance(source.value, int):
        halves: list[Arg] = [Const(source.value & 0xFFFFFFFF), Const(source.value >> 32 & 0xFFFFFFFF)]
    elif isinstance(source, ast.Register) and not source.prefix:
        halves = [Reg(name) for name in register_range(source.name, 2)] or [ZERO, ZERO]
    else:
        return None
    return [Assign(dst, "mov", 32, (half,)) for dst, half in zip(pair, halves, strict=False)]


def _add(work: Work) -> list[Assign] | None:
    """IADD3, VIADD, IADD: the low word of a 64-bit addition is a 32-bit one."""
    if work.op.has("X"):
        return None
    count = 2 if work.op.root in ("VIADD", "UVIADD", "IADD", "UIADD") else 3
    terms = work.sources[:count]
    return total(work, [signed_arg(term, work.machine) for term in terms])


def _imad(work: Work) -> list[Assign] | None:
    if not work.only("MOV", "U32", "S32", "SHL", "IADD", "WIDE"):
        return None
    a, b = arg_of(work.sources[0], work.machine), arg_of(work.sources[1], work.machine)
    left = signed_arg(work.sources[0], work.machine)
    addend = signed_arg(work.sources[2], work.machine)
    if left is None or b is None or addend is None:
        return None
    a, sign = left
    if ZERO in (a, b):
        return total(work, [addend])
    if Const(1) in (a, b):
        return total(work, [(b if a == Const(1) else a, sign), addend])
    if (sign, addend[1]) == (1, 1):
        return one(work, "mul", (a, b)) if addend[0] == ZERO else one(work, "mad", (a, b, addend[0]))
    return one(work, "mul_add", (a, b, Const(sign), addend[0], Const(addend[1])))


def _lea(work: Work) -> list[Assign] | None:
    if work.op.has("X"):
        return None
    if work.op.has("HI"):
        return _lea_high(work)
    args = work.args(0, 3)
    return one(work, "lea", args) if args and not work.op.words else None


def _lea_high(work: Work) -> list[Assign] | None:
    if work.op.has("SX32"):
        return one(work, "lea_hi_s", work.args(0, 3))
    return one(work, "lea_hi", work.args(0, 4)) if work.op.words == ("HI",) else None


def _shf(work: Work) -> list[Assign] | None:
    """Funnel shifts. `.HI` selects the upper word: of {c, a} shifted right that is c shifted alone."""
    words = work.op.words
    args = work.args(0, 3)
    if args is None or len(words) < 2 or not isinstance(args[1], Const) or int(args[1].value) >= 32:
        return _variable_shift(work, args)
    low, count, high = args
    if words[0] == "L":
        return one(work, "shf_l", (low, count, high)) if words[-1] == "HI" else one(work, "shl", (low, count))
    if words[-1] == "HI":
        return one(work, "shr_s" if _SIGNED_WORDS.intersection(words) else "shr_u", (high, count))
    return one(work, "shf_r", (low, count, high))


def _variable_shift(work: Work, args: tuple[Arg, ...] | None) -> list[Assign] | None:
    """Shifts by a register, which saturate unless `.W` wraps the count."""
    if args is None or work.op.has("W"):
        return None
    if work.op.words in (("L", "U32"), ("L", "S32")):
        return one(work, "shl", args[:2])
    if work.op.words == ("R", "U32", "HI") and args[0] == ZERO:
        return one(work, "shr_u", (args[2], args[1]))
    if work.op.words == ("R", "S32", "HI") and args[0] == ZERO:
        return one(work, "shr_s", (args[2], args[1]))
    return None


def _shift(work: Work) -> list[Assign] | None:
    operation = {"SHL": "shl", "USHL": "shl"}.get(work.op.root) or ("shr_u" if work.op.has("U32") else "shr_s")
    return one(work, operation, work.args(0, 2)) if work.only("U32", "S32") else None


def _special(work: Work) -> list[Assign] | None:
    """S2R, CS2R: one special register; a pair for the 64-bit form."""
    args = work.args(0, 1)
    if args is None:
        return None
    if work.sources[0] == ast.Word("SRZ"):
        names = register_range(work.dst() or "RZ", 1 if work.op.has("32") else 2)
        return [Assign(name, "mov", 32, (ZERO,)) for name in names]
    if work.op.root.startswith("CS2") and not work.op.has("32"):
        return None
    return one(work, "first_lane" if work.op.root.endswith("UR") else "mov", args)


def _to_uniform(work: Work) -> list[Assign] | None:
    """R2UR: the value of the first active lane."""
    if work.op.words not in ((), ("FILL",), ("BROADCAST",)):
        return None
    dst = next((work.dst(place) for place, r in enumerate(work.results) if not names_predicate(r)), None)
    args = work.args(0, 1)
    return [Assign(dst, "first_lane", 32, args)] if dst and args else None


def _constant(work: Work) -> list[Assign] | None:
    """LDC, LDCU, ULDC: words of a constant bank."""
    source, target = work.sources[0], work.results[0]
    size = {(): 1, ("64",): 2, ("128",): 4, ("32",): 1}.get(work.op.words)
    if size is None or not isinstance(source, ast.Address) or not isinstance(target, ast.Register):
        return None
    if size == 1:
        return _from_table(work, source) or one(work, "mov", work.args(0, 1))
    if source.terms or not isinstance(source.head, ast.Immediate):
        return None
    bank = int(source.head.value)
    return [
        Assign(dst, "mov", 32, (constant_word(bank, source.offset + 4 * step, work.machine),))
        for step, dst in enumerate(register_range(target.name, size))
    ]


def _from_table(work: Work, source: ast.Address) -> list[Assign] | None:
    """A word of a table whose contents are known, at an index in bytes: the targets of a switch."""
    term = source.terms[0] if len(source.terms) == 1 else None
    bank = source.head.value if isinstance(source.head, ast.Immediate) else -1
    words = work.machine.tables.get(int(bank), ())
    if not isinstance(term, ast.Register) or term.suffixes or not words:
        return None
    return one(work, "lookup", (Reg(term.name), Const(source.offset), *map(Const, words)))


def _half_constant(work: Work) -> list[Assign] | None:
    """`HFMA2 R, -RZ, RZ, hi, lo` is how ptxas likes to load a constant: -0 * 0 plus two half floats."""
    first, second, high, low = work.sources if len(work.sources) == 4 else (None,) * 4
    if first != ast.Register("RZ", "-") or second != ast.Register("RZ"):
        return None
    if not (isinstance(high, ast.Immediate) and isinstance(low, ast.Immediate)) or not work.only("MMA", "BF16_V2"):
        return None
    encode = _bfloat_bits if work.op.has("BF16_V2") else _half_bits
    return one(work, "mov", (Const(encode(float(high.value)) << 16 | encode(float(low.value))),))


def _half_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<e", value), "little")


def _bfloat_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little") >> 16


def _prmt(work: Work) -> list[Assign] | None:
    args = work.args(0, 3)
    return one(work, "prmt", (args[0], args[2], args[1])) if args and not work.op.words else None


def _sgxt(work: Work) -> list[Assign] | None:
    args = work.args(0, 2)
    operation = "bfe_u" if work.op.has("U32") else "bfe_s"
    return one(work, operation, (args[0], ZERO, args[1])) if args and work.only("U32") else None


RULES: dict[str, Rule] = {
    **dict.fromkeys(("MOV", "UMOV"), _mov),
    **dict.fromkeys(("IADD3", "UIADD3", "VIADD", "UVIADD", "IADD", "UIADD"), _add),
    **dict.fromkeys(("IMAD", "UIMAD"), _imad),
    **dict.fromkeys(("LEA", "ULEA"), _lea),
    **dict.fromkeys(("SHF", "USHF"), _shf),
    **dict.fromkeys(("SHL", "USHL", "SHR"), _shift),
    **dict.fromkeys(("S2R", "S2UR", "CS2R", "CS2UR"), _special),
    **dict.fromkeys(("LDC", "LDCU", "ULDC"), _constant),
    **dict.fromkeys(("PRMT", "UPRMT"), _prmt),
    **dict.fromkeys(("SGXT", "USGXT"), _sgxt),
    **dict.fromkeys(("POPC", "UPOPC"), plain("popc", 1)),
    "R2UR": _to_uniform,
    "HFMA2": _half_constant,
    "IABS": plain("abs", 1),
}
