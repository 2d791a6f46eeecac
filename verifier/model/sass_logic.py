"""Bitwise, predicate, selection and warp-wide instructions of SASS, in the operations of `isa.compute`."""

from __future__ import annotations

from verifier.model.program import Arg, Assign, Const
from verifier.model.sass_operands import ZERO, predicate_arg
from verifier.model.sass_work import WORD, Rule, Work, names_predicate, one
from verifier.parse import sass_ast as ast

_FULL_TABLE = 0xFF


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
            assigns.append(_comparison(dst, f"setp_{name}_{kind}", combine, (*args, WORD), other))
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
    return one(work, "selp", (a, b, chooser[0]))


def _minmax(work: Work) -> list[Assign] | None:
    """The minimum where the predicate holds, the maximum where it does not."""
    args = work.args(0, 2)
    chooser = predicate_arg(work.sources[2]) if len(work.sources) == 3 else None
    if args is None or chooser is None or not isinstance(chooser[0], Const) or not work.only("U32", "S32"):
        return None
    kind = "u" if work.op.has("U32") else "s"
    return one(work, f"min_{kind}" if chooser[0].value else f"max_{kind}", args)


def _add_minmax(work: Work) -> list[Assign] | None:
    """VIADDMNMX: like VIMNMX, with a sum as its first input."""
    args = work.args(0, 3)
    chooser = predicate_arg(work.sources[3]) if len(work.sources) == 4 else None
    if args is None or chooser is None or not isinstance(chooser[0], Const) or not work.only("U32", "S32"):
        return None
    kind = "u" if work.op.has("U32") else "s"
    return one(work, f"add_min_{kind}" if chooser[0].value else f"add_max_{kind}", args)


def _elect(work: Work) -> list[Assign] | None:
    return one(work, "elect", (Const(0xFFFFFFFF),), 1)


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
            predicate = names_predicate(operand)
            operation, width = (mode, 1) if predicate else ("ballot", 32)
            assigns.append(Assign(dst, operation, width, (source[0], Const(0xFFFFFFFF))))
    return assigns


RULES: dict[str, Rule] = {
    **dict.fromkeys(("LOP3", "ULOP3"), _lop3),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _plop3),
    **dict.fromkeys(("ISETP", "UISETP"), _isetp),
    **dict.fromkeys(("SEL", "USEL"), _select),
    **dict.fromkeys(("IMNMX", "VIMNMX", "UVIMNMX"), _minmax),
    **dict.fromkeys(("VIADDMNMX", "UVIADDMNMX"), _add_minmax),
    **dict.fromkeys(("VOTE", "VOTEU"), _vote),
    "ELECT": _elect,
    "SHFL": _shfl,
}
