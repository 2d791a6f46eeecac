"""What a PTX instruction computes, in the operations of `isa.compute`.

Only integer and predicate work is modelled, since addresses, barrier operands and branches depend on nothing
else. A register that an instruction writes in any other way gets an "opaque" assignment: written, value unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from verifier.isa.ptx_ops import PtxOp, is_type, width_of
from verifier.model.program import Arg, Assign, Const, Reg, Sym
from verifier.parse import ptx_ast as ast

Namer = Callable[[str], Arg]
_Operands = Sequence[ast.Operand]
_Rule = Callable[[PtxOp, _Operands, Namer], "list[Assign] | None"]

_FLOATS = frozenset({"f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "tf32"})


def lower_assigns(op: PtxOp, operands: _Operands, name: Namer) -> tuple[tuple[Assign, ...], tuple[str, ...]]:
    """(assignments, registers read) of one instruction; guards are not included."""
    results = _results(op, operands)
    written = [reg for operand in results for reg in _registers(operand, name)]
    read = [reg for operand in operands[len(results) :] for reg in _registers(operand, name)]
    read += [reg for operand in results if isinstance(operand, ast.Address) for reg in _registers(operand, name)]
    if op.family == "wgmma.mma_async":  # accumulates into its first operand
        read += written
    rule = _RULES.get(op.family)
    assigns = rule(op, operands, name) if rule and not _is_float(op) else None
    known = assigns or []
    missing = set(written) - {a.dst for a in known}
    opaque = [Assign(reg, "opaque", 32) for reg in written if reg in missing]
    return (*known, *opaque), tuple(read)


def arg_of(operand: ast.Operand, name: Namer) -> Arg | None:
    """A scalar operand as an argument, or None when it is something else."""
    if isinstance(operand, ast.Name):
        return name(operand.text)
    if isinstance(operand, ast.Imm):
        return Const(operand.value)
    return None


def _is_float(op: PtxOp) -> bool:
    return any(word in _FLOATS for word in op.words) and op.family not in ("mov", "selp", "ld")


def _results(op: PtxOp, operands: _Operands) -> _Operands:
    if not operands or not op.writes_result:
        return ()
    if op.family == "call":
        return operands[:1] if isinstance(operands[0], ast.Args) and len(operands) > 1 else ()
    return operands[:1] if isinstance(operands[0], (ast.Name, ast.Pair, ast.Vector)) else ()


def _registers(operand: ast.Operand, name: Namer) -> Iterator[str]:
    if isinstance(operand, ast.Name):
        arg = name(operand.text)
        if isinstance(arg, Reg):
            yield arg.name
    elif isinstance(operand, (ast.Vector, ast.Args)):
        for item in operand.items:
            yield from _registers(item, name)
    elif isinstance(operand, ast.Address):
        yield from _registers(operand.base, name)
        for item in operand.extra:
            yield from _registers(item, name)
    elif isinstance(operand, ast.Pair):
        yield from _registers(operand.first, name)
        yield from _registers(operand.second, name)
    elif isinstance(operand, ast.Not):
        yield from _registers(operand.operand, name)
    elif isinstance(operand, ast.Sum):
        yield from _registers(operand.base, name)


def _destination(operand: ast.Operand, name: Namer) -> str | None:
    arg = name(operand.text) if isinstance(operand, ast.Name) else None
    return arg.name if isinstance(arg, Reg) else None


def _type(op: PtxOp) -> str:
    return next((word for word in reversed(op.words) if is_type(word)), "b32")


def _signed(op: PtxOp) -> str:
    return "s" if _type(op).startswith("s") else "u"


def _scalar_args(operands: _Operands, name: Namer) -> list[Arg] | None:
    args = []
    for operand in operands:
        arg = arg_of(operand, name)
        if arg is None or (isinstance(arg, Const) and isinstance(arg.value, float)):
            return None
        args.append(arg)
    return args


def _plain(operation: str, *, by_sign: bool = False) -> _Rule:
    """dst, sources... with one operation; `by_sign` adds the `_u`/`_s` of the type."""

    def rule(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
        dst = _destination(operands[0], name)
        args = _scalar_args(operands[1:], name)
        if dst is None or args is None:
            return None
        suffix = f"_{_signed(op)}" if by_sign else ""
        return [Assign(dst, operation + suffix, width_of(_type(op)), tuple(args))]

    return rule


def _mov(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    width = width_of(_type(op))
    target, source = operands[0], operands[1]
    if isinstance(target, ast.Vector):
        return _unpack(width, target, source, name)
    dst = _destination(target, name)
    if dst is None:
        return None
    if isinstance(source, ast.Vector):
        return _pack(width, dst, source, name)
    if isinstance(source, ast.Sum):
        return [Assign(dst, "add", width, (name(source.base.text), Const(source.offset)))]
    args = _scalar_args([source], name)
    return [Assign(dst, "mov", width, tuple(args))] if args else None


def _unpack(width: int, target: ast.Vector, source: ast.Operand, name: Namer) -> list[Assign] | None:
    arg = arg_of(source, name)
    if arg is None:
        return None
    part = width // len(target.items)
    return [
        Assign(dst, "field", part, (arg, Const(index * part)))
        for index, item in enumerate(target.items)
        if (dst := _destination(item, name)) is not None
    ]


def _pack(width: int, dst: str, source: ast.Vector, name: Namer) -> list[Assign] | None:
    args = _scalar_args(source.items, name)
    if args is None or len(args) != 2:
        return None
    return [Assign(dst, "pack", width, (args[0], args[1], Const(width // 2)))]


def _mul(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    dst = _destination(operands[0], name)
    args = _scalar_args(operands[1:], name)
    if dst is None or args is None:
        return None
    width = width_of(_type(op))
    if op.has("wide"):
        return _wide(op, dst, width, args)
    if op.has("hi"):
        if len(args) != 2:
            return None
        return [Assign(dst, f"mul_hi_{_signed(op)}", width, tuple(args))]
    return [Assign(dst, "mul" if len(args) == 2 else "mad", width, tuple(args))]


def _wide(op: PtxOp, dst: str, width: int, args: list[Arg]) -> list[Assign] | None:
    if _signed(op) == "s":
        wide = Assign(dst, "mul_wide_s", 2 * width, (args[0], args[1], Const(width)))
        return [wide] if len(args) == 2 else None
    factors = tuple(_zero_extended(arg, width) for arg in args[:2])
    return [Assign(dst, "mul" if len(args) == 2 else "mad", 2 * width, (*factors, *args[2:]))]


def _zero_extended(arg: Arg, width: int) -> Arg:
    """An immediate of an unsigned type may be written as a negative number."""
    return Const(arg.value & (1 << width) - 1) if isinstance(arg, Const) and isinstance(arg.value, int) else arg


def _setp(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    """`setp.cmp[.boolop].type p[|q], a, b[, c]`; only the plain form computes p, others stay opaque."""
    comparison = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(op.words[0], op.words[0])
    args = _scalar_args(operands[1:3], name)
    dst = _destination(operands[0], name)
    if dst is None or args is None or len(operands) != 3 or comparison not in ("eq", "ne", "lt", "le", "gt", "ge"):
        return None
    width = Const(width_of(_type(op)))
    return [Assign(dst, f"setp_{comparison}_{_signed(op)}", 1, (*args, width))]


def _cvt(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    dst = _destination(operands[0], name)
    args = _scalar_args(operands[1:], name)
    types = op.types
    if dst is None or args is None or len(types) != 2 or op.has("sat"):
        return None
    operation = "sext" if types[1].startswith("s") else "zext"
    return [Assign(dst, operation, width_of(types[0]), (args[0], Const(width_of(types[1]))))]


def _ld(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    """Loads of kernel parameters have a name, so that equal loads are equal; other loads are opaque."""
    source = operands[1]
    if not any(word.startswith("param") for word in op.words) or not isinstance(source, ast.Address):
        return None
    base = arg_of(source.base, name)
    if not isinstance(base, Sym) or base.space != "param":
        return None
    width = width_of(_type(op))
    items = operands[0].items if isinstance(operands[0], ast.Vector) else (operands[0],)
    return [
        Assign(dst, "ld_param", width, (base, Const(source.offset + index * width // 8)))
        for index, item in enumerate(items)
        if (dst := _destination(item, name)) is not None
    ]


def _identity(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    """`cvta` between generic and a state space: the verifier keys objects by symbol, not by window."""
    return _plain("mov")(op, operands, name)


def _mapa(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    dst = _destination(operands[0], name)
    base, rank = operands[1], arg_of(operands[2], name)
    address: Arg | None = name(base.base.text) if isinstance(base, ast.Sum) else arg_of(base, name)
    if dst is None or address is None or rank is None or isinstance(base, ast.Sum):
        return None
    return [Assign(dst, "mapa", width_of(_type(op)), (address, rank))]


def _shfl(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    mode = op.first_of(("idx", "up", "down", "bfly"))
    target = operands[0].first if isinstance(operands[0], ast.Pair) else operands[0]
    dst = _destination(target, name)
    args = _scalar_args(operands[1:4], name)
    if mode is None or dst is None or args is None:
        return None
    return [Assign(dst, f"shfl_{mode}", 32, tuple(args))]


def _elect(_op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    pair = operands[0]
    mask = arg_of(operands[1], name)
    dst = _destination(pair.second, name) if isinstance(pair, ast.Pair) else None
    return [Assign(dst, "elect", 1, (mask,))] if dst is not None and mask is not None else None


def _vote(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    dst = _destination(operands[0], name)
    args = _scalar_args(operands[1:], name)
    mode = {"all": "vote_all", "any": "vote_any", "ballot": "ballot"}.get(op.words[0])
    if dst is None or args is None or mode is None:
        return None
    return [Assign(dst, mode, 32 if mode == "ballot" else 1, tuple(args))]


# The manual does not say how a try_cancel response is laid out. Whoever scripts responses uses this layout.
CANCEL_VALID_BIT = 96
_CANCEL_AXES = {"x": 0, "y": 32, "z": 64}


def _query_cancel(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    """`query_cancel.is_canceled p, response` and `.get_first_ctaid[::axis]`: fields of the 128-bit response."""
    response = arg_of(operands[1], name)
    if response is None:
        return None
    target = operands[0]
    if op.has("is_canceled"):
        fields = [(target, 1, CANCEL_VALID_BIT)]
    elif isinstance(target, ast.Vector):
        fields = [(item, 32, 32 * index) for index, item in enumerate(target.items[:3])]
    else:
        fields = [(target, 32, _CANCEL_AXES.get(op.value_of("get_first_ctaid") or "x", 0))]
    return [
        Assign(dst, "field", width, (response, Const(position)))
        for item, width, position in fields
        if (dst := _destination(item, name)) is not None
    ]


def _funnel(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    """`shf.{l,r}.{wrap,clamp} d, low, high, count`; a wrapping count must be a number."""
    dst = _destination(operands[0], name)
    args = _scalar_args(operands[1:4], name)
    if dst is None or args is None or len(args) != 3:
        return None
    low, high, count = args
    if op.has("wrap"):
        if not isinstance(count, Const):
            return None
        count = Const(int(count.value) & 31)
    return [Assign(dst, "shf_l" if op.has("l") else "shf_r", 32, (low, count, high))]


def _clz(op: PtxOp, operands: _Operands, name: Namer) -> list[Assign] | None:
    dst = _destination(operands[0], name)
    args = _scalar_args(operands[1:], name)
    if dst is None or args is None:
        return None
    return [Assign(dst, "clz", 32, (args[0], Const(width_of(_type(op)))))]


_RULES: dict[str, _Rule] = {
    "mov": _mov,
    "add": _plain("add"),
    "sub": _plain("sub"),
    "mul": _mul,
    "mad": _mul,
    "div": _plain("div", by_sign=True),
    "rem": _plain("rem", by_sign=True),
    "min": _plain("min", by_sign=True),
    "max": _plain("max", by_sign=True),
    "shl": _plain("shl"),
    "shr": _plain("shr", by_sign=True),
    "and": _plain("and"),
    "or": _plain("or"),
    "xor": _plain("xor"),
    "not": _plain("not"),
    "neg": _plain("neg"),
    "abs": _plain("abs"),
    "selp": _plain("selp"),
    "shf": _funnel,
    "lop3": _plain("lop3"),
    "prmt": _plain("prmt"),
    "bfe": _plain("bfe", by_sign=True),
    "bfi": _plain("bfi"),
    "popc": _plain("popc"),
    "clz": _clz,
    "setp": _setp,
    "cvt": _cvt,
    "cvta": _identity,
    "ld": _ld,
    "mapa": _mapa,
    "shfl.sync": _shfl,
    "elect.sync": _elect,
    "vote.sync": _vote,
    "clusterlaunchcontrol.query_cancel": _query_cancel,
}
