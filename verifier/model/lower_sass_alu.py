"""What a SASS instruction computes, in the operations of `isa.compute`.

Integer and predicate work is modelled as far as warp roles, branches, addresses and barrier operands need it; any
other register that an instruction writes gets an "opaque" assignment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from verifier.isa.sass_ops import SassOp
from verifier.model.program import Arg, Assign, Const, Reg
from verifier.model.sass_operands import (
    ZERO,
    Operands,
    arg_of,
    constant_word,
    predicate_arg,
    read_registers,
    register_range,
    signed_arg,
    split,
    written_registers,
)
from verifier.parse import sass_ast as ast

_W = Const(32)
_FULL_TABLE = 0xFF
_SIGNED_WORDS = frozenset({"S32", "S64"})


class Work:
    """One instruction: its opcode, split operands and the architecture number."""

    __slots__ = ("arch", "op", "results", "sources")

    def __init__(self, op: SassOp, operands: Operands, arch: int) -> None:
        self.op = op
        self.results = operands.results
        self.sources = operands.sources
        self.arch = arch

    def dst(self, place: int = 0) -> str | None:
        """Name of result register `place`, None when it is a constant register or missing."""
        operand = self.results[place] if place < len(self.results) else None
        names = register_range(operand.name, 1) if isinstance(operand, ast.Register) else ()
        return names[0] if names else None

    def args(self, first: int, last: int) -> tuple[Arg, ...] | None:
        """Plain arguments of sources first..last-1, or None when one of them is not plain."""
        args = [arg_of(operand, self.arch) for operand in self.sources[first:last]]
        return None if len(args) < last - first or None in args else tuple(a for a in args if a is not None)

    def only(self, *words: str) -> bool:
        """Whether the opcode carries no modifier beside these."""
        return all(word in words for word in self.op.words)


_Rule = Callable[[Work], "list[Assign] | None"]


def lower_assigns(
    op: SassOp, operands: tuple[ast.Operand, ...], arch: int
) -> tuple[tuple[Assign, ...], tuple[str, ...]]:
    """(assignments, registers read) of one instruction; guards are not included."""
    parts = split(op, operands)
    rule = _RULES.get(op.root)
    known = (rule(Work(op, parts, arch)) if rule else None) or []
    missing = dict.fromkeys(written_registers(op, parts))
    for assign in known:
        missing.pop(assign.dst, None)
    opaque = [Assign(reg, "opaque", 32) for reg in missing]
    return (*known, *opaque), read_registers(op, parts)


def _one(work: Work, operation: str, args: Sequence[Arg] | None, width: int = 32) -> list[Assign] | None:
    dst = work.dst()
    return None if args is None or dst is None else [Assign(dst, operation, width, tuple(args))]


def _sum(work: Work, terms: Sequence[tuple[Arg, int] | None]) -> list[Assign] | None:
    """Addition of signed arguments, by the simplest operation that does it."""
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    real = [term for term in known if term[0] != ZERO]
    signs = [sign for _, sign in real]
    if not real:
        return _one(work, "mov", (ZERO,))
    if signs in ([1], [-1]):
        return _one(work, "mov" if signs == [1] else "neg", (real[0][0],))
    if signs in ([1, 1], [1, -1]):
        return _one(work, "add" if signs == [1, 1] else "sub", (real[0][0], real[1][0]))
    return _one(work, "sum", tuple(part for arg, sign in real for part in (arg, Const(sign))))


def _mov(work: Work) -> list[Assign] | None:
    if work.op.has("64"):
        return _wide_mov(work)
    return _one(work, "mov", work.args(0, 1)) if work.only("SPILL") else None


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
    return _sum(work, [signed_arg(term, work.arch) for term in terms])


def _imad(work: Work) -> list[Assign] | None:
    if not work.only("MOV", "U32", "S32", "SHL", "IADD", "WIDE"):
        return None
    a, b = arg_of(work.sources[0], work.arch), arg_of(work.sources[1], work.arch)
    left = signed_arg(work.sources[0], work.arch)
    addend = signed_arg(work.sources[2], work.arch)
    if left is None or b is None or addend is None:
        return None
    a, sign = left
    if ZERO in (a, b):
        return _sum(work, [addend])
    if Const(1) in (a, b):
        return _sum(work, [(b if a == Const(1) else a, sign), addend])
    if (sign, addend[1]) == (1, 1):
        return _one(work, "mul", (a, b)) if addend[0] == ZERO else _one(work, "mad", (a, b, addend[0]))
    return _one(work, "mul_add", (a, b, Const(sign), addend[0], Const(addend[1])))


def _lea(work: Work) -> list[Assign] | None:
    if work.op.has("X"):
        return None
    if work.op.has("HI"):
        return _lea_high(work)
    args = work.args(0, 3)
    return _one(work, "lea", args) if args and not work.op.words else None


def _lea_high(work: Work) -> list[Assign] | None:
    if work.op.has("SX32"):
        return _one(work, "lea_hi_s", work.args(0, 3))
    return _one(work, "lea_hi", work.args(0, 4)) if work.op.words == ("HI",) else None


def _shf(work: Work) -> list[Assign] | None:
    """Funnel shifts. `.HI` selects the upper word: of {c, a} shifted right that is c shifted alone."""
    words = work.op.words
    args = work.args(0, 3)
    if args is None or len(words) < 2 or not isinstance(args[1], Const) or int(args[1].value) >= 32:
        return _variable_shift(work, args)
    low, count, high = args
    if words[0] == "L":
        return _one(work, "shf_l", (low, count, high)) if words[-1] == "HI" else _one(work, "shl", (low, count))
    if words[-1] == "HI":
        return _one(work, "shr_s" if _SIGNED_WORDS.intersection(words) else "shr_u", (high, count))
    return _one(work, "shf_r", (low, count, high))


def _variable_shift(work: Work, args: tuple[Arg, ...] | None) -> list[Assign] | None:
    """Shifts by a register, which saturate unless `.W` wraps the count."""
    if args is None or work.op.has("W"):
        return None
    if work.op.words in (("L", "U32"), ("L", "S32")):
        return _one(work, "shl", args[:2])
    if work.op.words in (("R", "U32", "HI"), ("R", "S32", "HI")) and args[0] == ZERO:
        return _one(work, "shr_s" if work.op.words[1] == "S32" else "shr_u", (args[2], args[1]))
    return None


def _shift(work: Work) -> list[Assign] | None:
    operation = {"SHL": "shl", "USHL": "shl"}.get(work.op.root) or ("shr_u" if work.op.has("U32") else "shr_s")
    return _one(work, operation, work.args(0, 2)) if work.only("U32", "S32") else None


def _lop3(work: Work) -> list[Assign] | None:
    """`LOP3.LUT [P,] R, a, b, c, table, !PT`; the predicate tells whether the result is not zero."""
    table = work.sources[3] if len(work.sources) > 4 else None
    args = work.args(0, 3)
    if args is None or not isinstance(table, ast.Immediate) or not work.only("LUT"):
        return None
    every = (*args, Const(int(table.value) & _FULL_TABLE))
    assigns = []
    for place in range(len(work.results)):
        dst = work.dst(place)
        if dst is None:
            continue
        if dst.startswith(("P", "UP")):
            if predicate_arg(work.sources[4]) != (ZERO, False):
                return None
            assigns.append(Assign(dst, "lop3_ne", 1, every))
        else:
            assigns.append(Assign(dst, "lop3", 32, every))
    return assigns


def _plop3(work: Work) -> list[Assign] | None:
    """`PLOP3.LUT P, P, a, b, c, table, table`: one table for each result."""
    inputs = [predicate_arg(operand) for operand in work.sources[:3]]
    tables = work.sources[3:5]
    if None in inputs or len(tables) < 2 or not work.only("LUT"):
        return None
    args = tuple(pair[0] for pair in inputs if pair)
    inverted = sum(1 << place for place, pair in enumerate(inputs) if pair and pair[1])
    assigns = []
    for place, table in enumerate(tables):
        dst = work.dst(place)
        if dst is not None and isinstance(table, ast.Immediate):
            assigns.append(Assign(dst, "lop3", 1, (*args, Const(_invert_inputs(int(table.value), inverted)))))
    return assigns


def _invert_inputs(table: int, inverted: int) -> int:
    """The table of f(a ^ i0, b ^ i1, c ^ i2); row 4a+2b+c moves where its inputs are inverted."""
    flip = (inverted & 1) << 2 | (inverted & 2) | inverted >> 2
    return sum((table >> (row ^ flip) & 1) << row for row in range(8))


def _isetp(work: Work) -> list[Assign] | None:
    """`ISETP.cmp[.U32].bool P, Q, a, b, c`: P is `cmp bool c`, Q is `not cmp bool c`."""
    words = work.op.words
    args = work.args(0, 2)
    other = predicate_arg(work.sources[2]) if len(work.sources) == 3 else None
    if args is None or other is None or not work.only(words[0], "U32", "S32", "AND", "OR", "XOR"):
        return None
    comparison = words[0].lower()
    kind = "u" if work.op.has("U32") else "s"
    combine = words[-1].lower()
    assigns = []
    for place, name in enumerate((comparison, _OPPOSITE.get(comparison))):
        dst = work.dst(place)
        if dst is not None and name is not None:
            assigns.append(_comparison(dst, f"setp_{name}_{kind}", combine, (*args, _W), other))
    return assigns


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _comparison(dst: str, name: str, combine: str, args: tuple[Arg, ...], other: tuple[Arg, bool]) -> Assign:
    neutral = Const(1) if combine == "and" else ZERO
    if other[0] == neutral:
        return Assign(dst, name, 1, args)
    return Assign(dst, f"{name}_{combine}", 1, (*args, other[0], Const(int(other[1]))))


def _select(work: Work) -> list[Assign] | None:
    args = work.args(0, 2)
    chooser = predicate_arg(work.sources[2])
    if args is None or chooser is None or work.op.words:
        return None
    a, b = reversed(args) if chooser[1] else args
    return _one(work, "selp", (a, b, chooser[0]))


def _minmax(work: Work) -> list[Assign] | None:
    """The minimum where the predicate holds, the maximum where it does not."""
    args = work.args(0, 2)
    chooser = predicate_arg(work.sources[2]) if len(work.sources) == 3 else None
    if args is None or chooser is None or not isinstance(chooser[0], Const) or not work.only("U32", "S32"):
        return None
    kind = "u" if work.op.has("U32") else "s"
    return _one(work, f"min_{kind}" if chooser[0].value else f"max_{kind}", args)


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
    return _one(work, "first_lane" if work.op.root.endswith("UR") else "mov", args)


def _to_uniform(work: Work) -> list[Assign] | None:
    """R2UR: the value of the first active lane."""
    if work.op.words not in ((), ("FILL",), ("BROADCAST",)):
        return None
    dst = next((work.dst(place) for place, r in enumerate(work.results) if not _is_predicate(r)), None)
    args = work.args(0, 1)
    return [Assign(dst, "first_lane", 32, args)] if dst and args else None


def _is_predicate(operand: ast.Operand) -> bool:
    return isinstance(operand, ast.Register) and operand.name.startswith(("P", "UP"))


def _constant(work: Work) -> list[Assign] | None:
    """LDC, LDCU, ULDC: words of a constant bank."""
    source, target = work.sources[0], work.results[0]
    size = {(): 1, ("64",): 2, ("128",): 4, ("32",): 1}.get(work.op.words)
    if size is None or not isinstance(source, ast.Address) or not isinstance(target, ast.Register):
        return None
    if size == 1:
        return _one(work, "mov", work.args(0, 1))
    if source.terms or not isinstance(source.head, ast.Immediate):
        return None
    bank = int(source.head.value)
    return [
        Assign(dst, "mov", 32, (constant_word(bank, source.offset + 4 * step, work.arch),))
        for step, dst in enumerate(register_range(target.name, size))
    ]


def _elect(work: Work) -> list[Assign] | None:
    return _one(work, "elect", (Const(0xFFFFFFFF),), 1)


def _shfl(work: Work) -> list[Assign] | None:
    args = work.args(0, 3)
    dst = work.dst(1) if len(work.results) > 1 else work.dst()
    modes = {"IDX": "shfl_idx", "UP": "shfl_up", "DOWN": "shfl_down", "BFLY": "shfl_bfly"}
    mode = modes.get(work.op.words[0]) if work.op.words else None
    return [Assign(dst, mode, 32, args)] if dst and mode and args else None


def _vote(work: Work) -> list[Assign] | None:
    """`VOTE.ANY R, P, a`: R is the ballot, P the vote."""
    mode = {"ANY": "vote_any", "ALL": "vote_all"}.get(work.op.words[0]) if work.op.words else None
    source = predicate_arg(work.sources[0]) if work.sources else None
    if mode is None or source is None or source[1]:
        return None
    assigns = []
    for place, operand in enumerate(work.results):
        dst = work.dst(place)
        if dst is not None:
            predicate = _is_predicate(operand)
            operation, width = (mode, 1) if predicate else ("ballot", 32)
            assigns.append(Assign(dst, operation, width, (source[0], Const(0xFFFFFFFF))))
    return assigns


def _half_constant(work: Work) -> list[Assign] | None:
    """`HFMA2 R, -RZ, RZ, hi, lo` is how ptxas likes to load a constant: -0 * 0 plus two half floats."""
    first, second, high, low = work.sources if len(work.sources) == 4 else (None,) * 4
    if first != ast.Register("RZ", "-") or second != ast.Register("RZ"):
        return None
    if not (isinstance(high, ast.Immediate) and isinstance(low, ast.Immediate)) or not work.only("MMA", "BF16_V2"):
        return None
    encode = _bfloat_bits if work.op.has("BF16_V2") else _half_bits
    return _one(work, "mov", (Const(encode(float(high.value)) << 16 | encode(float(low.value))),))


def _half_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<e", value), "little")


def _bfloat_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little") >> 16


def _plain(operation: str, count: int, *words: str) -> _Rule:
    def rule(work: Work) -> list[Assign] | None:
        return _one(work, operation, work.args(0, count)) if work.only(*words) else None

    return rule


def _prmt(work: Work) -> list[Assign] | None:
    args = work.args(0, 3)
    return _one(work, "prmt", (args[0], args[2], args[1])) if args and not work.op.words else None


def _sgxt(work: Work) -> list[Assign] | None:
    args = work.args(0, 2)
    operation = "bfe_u" if work.op.has("U32") else "bfe_s"
    return _one(work, operation, (args[0], ZERO, args[1])) if args and work.only("U32") else None


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("MOV", "UMOV"), _mov),
    **dict.fromkeys(("IADD3", "UIADD3", "VIADD", "UVIADD", "IADD", "UIADD"), _add),
    **dict.fromkeys(("IMAD", "UIMAD"), _imad),
    **dict.fromkeys(("LEA", "ULEA"), _lea),
    **dict.fromkeys(("SHF", "USHF"), _shf),
    **dict.fromkeys(("SHL", "USHL", "SHR"), _shift),
    **dict.fromkeys(("LOP3", "ULOP3"), _lop3),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _plop3),
    **dict.fromkeys(("ISETP", "UISETP"), _isetp),
    **dict.fromkeys(("SEL", "USEL"), _select),
    **dict.fromkeys(("IMNMX", "VIMNMX", "UVIMNMX"), _minmax),
    **dict.fromkeys(("S2R", "S2UR", "CS2R", "CS2UR"), _special),
    **dict.fromkeys(("LDC", "LDCU", "ULDC"), _constant),
    **dict.fromkeys(("VOTE", "VOTEU"), _vote),
    **dict.fromkeys(("PRMT", "UPRMT"), _prmt),
    **dict.fromkeys(("SGXT", "USGXT"), _sgxt),
    **dict.fromkeys(("POPC", "UPOPC"), _plain("popc", 1)),
    "R2UR": _to_uniform,
    "ELECT": _elect,
    "SHFL": _shfl,
    "HFMA2": _half_constant,
    "IABS": _plain("abs", 1),
}
