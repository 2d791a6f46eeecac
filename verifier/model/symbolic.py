"""Operations on values that contain symbols: what stays affine, what cancels, what gets a name of its own."""

from __future__ import annotations

from collections.abc import Callable

from verifier.isa.compute import COMPOSITES, LANE_OPERATIONS, OPERATIONS, mask, signed
from verifier.model.values import WARP, Lanes, Symbol, SymbolTable, Value, add, collapse, scale, spread

# Bit that tells the two CTAs of a pair apart in a shared::cluster address; producers clear it to reach the
# even CTA's barrier (`and addr, 0xFEFFFFF8`). Undocumented; every transaction count balances with this reading.
_PAIR_BIT = 1 << 24


def compute(table: SymbolTable, op: str, width: int, args: list[Value]) -> Value | None:
    """Apply one operation of `isa.compute`; None when nothing better than a fresh symbol is known."""
    if op in ("opaque", "reg"):
        return None
    if all(not a.terms for a in args) and op in OPERATIONS:
        return _pointwise(op, width, args)
    if op in LANE_OPERATIONS:
        return _across_lanes(op, args)
    composite = COMPOSITES.get(op)
    if composite is not None:
        return composite(_Calculator(table), width, args)
    return simplify(table, op, width, args)


class _Calculator:
    """Lets the recipes of `isa.compute` work on values."""

    def __init__(self, table: SymbolTable) -> None:
        self._table = table

    def apply(self, op: str, width: int, *args: Value) -> Value:
        result = compute(self._table, op, width, list(args))
        return self._table.value(op, width, *args, uniform=all(a.uniform for a in args)) if result is None else result

    def constant(self, number: int) -> Value:
        return Value(number)

    def number(self, value: Value) -> int:
        number = value.constant
        assert number is not None, "an immediate argument of a composite operation"
        return number


def _pointwise(op: str, width: int, args: list[Value]) -> Value:
    function = OPERATIONS[op]
    if all(isinstance(a.lanes, int) for a in args):
        return Value(function(width, *(_unsigned(a.lanes) for a in args)))
    rows = zip(*(spread(a.lanes) for a in args), strict=True)
    return Value(collapse(tuple(function(width, *(_unsigned(x) for x in row)) for row in rows)))


def _unsigned(lane: Lanes) -> int:
    assert isinstance(lane, int)
    return lane & mask(64) if lane < 0 else lane


def _across_lanes(op: str, args: list[Value]) -> Value | None:
    value = args[0]
    if value.uniform and (op == "first_lane" or op.startswith("shfl")):
        return value
    if op == "shfl_idx" and not value.terms and args[1].constant is not None:
        lanes = spread(value.lanes)
        return Value(lanes[args[1].constant % WARP])
    if op in ("vote_any", "vote_all") and value.constant is not None:
        return Value(value.constant & 1)
    return None


def simplify(table: SymbolTable, op: str, width: int, args: list[Value]) -> Value:
    """The result of `op` on values of which at least one has symbols."""
    rule = _RULES.get(op)
    if rule is not None:
        result = rule(table, width, [_wrap(a, width) for a in args] if op in _WRAPPED else args)
        if result is not None:
            return result
    if op.startswith("setp_"):
        decided = _compare(table, op, args)
        if decided is not None:
            return decided
    return table.value(op, width, *args, uniform=all(a.uniform for a in args))


def _wrap(value: Value, width: int) -> Value:
    """Constants beside symbols are signed: an address minus 16384 is not an address plus 2^32 - 16384."""
    if value.terms:
        return value
    if isinstance(value.lanes, int):
        return Value(signed(value.lanes, width))
    return Value(tuple(signed(x, width) for x in value.lanes))


def _unwrap(value: Value, width: int) -> Value:
    if value.terms:
        return value
    if isinstance(value.lanes, int):
        return Value(value.lanes & mask(width))
    return Value(tuple(x & mask(width) for x in value.lanes))


def _add(_table: SymbolTable, width: int, args: list[Value]) -> Value:
    return _unwrap(add(args[0], args[1]), width)


def _sub(_table: SymbolTable, width: int, args: list[Value]) -> Value:
    return _unwrap(add(args[0], args[1], -1), width)


def _mul(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    for a, b in (args, reversed(args)):
        factor = b.constant
        if factor is not None:
            return _unwrap(scale(a, signed(factor, width)), width)
    return None


def _mad(table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    product = _mul(table, width, args[:2])
    return None if product is None else _add(table, width, [_wrap(product, width), args[2]])


def _shl(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    count = args[1].constant
    return _unwrap(scale(args[0], 1 << count), width) if count is not None and count < width else None


def _lea(table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    shifted = _shl(table, width, [args[0], args[2]])
    return None if shifted is None else _add(table, width, [_wrap(shifted, width), args[1]])


def _shr(_table: SymbolTable, _width: int, args: list[Value]) -> Value | None:
    """Exact when every part is divisible."""
    count = args[1].constant
    return None if count is None else _divide(args[0], 1 << count)


def _div(_table: SymbolTable, _width: int, args: list[Value]) -> Value | None:
    divisor = args[1].constant
    return _divide(args[0], divisor) if divisor else None


def _divide(value: Value, divisor: int) -> Value | None:
    if any(coef % divisor for _, coef in value.terms) or not isinstance(value.lanes, int) or value.lanes % divisor:
        return None
    return Value(value.lanes // divisor, tuple((s, c // divisor) for s, c in value.terms))


def _rem(_table: SymbolTable, _width: int, args: list[Value]) -> Value | None:
    """Low bits are known where the symbols contribute multiples of a power of two."""
    divisor = args[1].constant
    if not divisor or divisor & (divisor - 1):
        return None
    return _low_bits(args[0], divisor)


def _low_bits(value: Value, modulus: int) -> Value | None:
    if any(coef * symbol.align % modulus for symbol, coef in value.terms):
        return None
    lanes = value.lanes
    return Value(lanes % modulus if isinstance(lanes, int) else tuple(x % modulus for x in lanes))


def _and(table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    for value, other in (args, reversed(args)):
        bits = other.constant
        if bits is None:
            continue
        bits &= mask(width)
        if bits == 0:
            return Value(0)
        if bits == mask(width):
            return value
        if bits & (bits + 1) == 0:  # keeps the low bits
            return _low_bits(value, bits + 1)
        return _clear(table, value, ~bits & mask(width))
    return args[0] if args[0] == args[1] else None


def _clear(table: SymbolTable, value: Value, cleared: int) -> Value | None:
    """Clear low bits that are known to be zero or constant; with the pair bit: the address in the even CTA."""
    low = cleared & (_PAIR_BIT - 1)
    if cleared & ~low not in (0, _PAIR_BIT) or low & (low + 1):
        return None
    known = _low_bits(value, low + 1)
    if known is None:
        return None
    aligned = add(value, known, -1)
    return table.value("leader", 32, aligned, uniform=aligned.uniform) if cleared & _PAIR_BIT else aligned


def _or(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    """Addition when the constant's bits are known to be clear in the other; absorbing for predicates."""
    for value, other in (args, reversed(args)):
        bits = other.constant
        if bits is None:
            continue
        bits &= mask(width)
        if bits == 0:
            return value
        if bits == mask(width):
            return Value(bits)
        known = _low_bits(value, 1 << bits.bit_length())
        if known is not None and isinstance(known.lanes, int) and known.lanes & bits == 0:
            return add(value, Value(bits))
    return args[0] if args[0] == args[1] else None


def _xor(table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    if args[0] == args[1]:
        return Value(0)
    for value, other in (args, reversed(args)):
        if other.constant == 0:
            return value
        if width == 1 and other.constant == 1:
            return _not(table, width, [value])
    return None


def _not(table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    if width != 1:
        return None
    inner = args[0].base
    if inner is not None and args[0].lanes == 0 and inner.key[:2] == ("not", 1):
        operand = inner.key[2]
        assert isinstance(operand, Value)
        return operand
    return None


def _selp(_table: SymbolTable, _width: int, args: list[Value]) -> Value | None:
    chosen = args[2].constant
    if chosen is not None:
        return args[0] if chosen & 1 else args[1]
    return args[0] if args[0] == args[1] else None


def _convert(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    """Widening and narrowing between 32 and 64 bits keeps addresses and indices, which never wrap."""
    source = args[1].constant
    return args[0] if width >= 32 and source is not None and source >= 32 else None


def _mov(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    return args[0]


def _field(_table: SymbolTable, width: int, args: list[Value]) -> Value | None:
    inner = args[0].base
    position = args[1].constant
    if inner is not None and args[0].lanes == 0 and inner.kind == "pack" and position is not None:
        low, high, half = inner.key[2], inner.key[3], inner.key[4]
        assert isinstance(low, Value)
        assert isinstance(high, Value)
        assert isinstance(half, Value)
        if half.constant == width:
            return low if position == 0 else high
    return args[0] if position == 0 and width >= 32 else None


def _mapa(table: SymbolTable, _width: int, args: list[Value]) -> Value:
    """Keep the offset outside, so that `mapa(a) + 8` and `mapa(a + 8)` are one address."""
    address, rank = args
    offset = Value(address.lanes)
    symbol = table.get("mapa", Value(0, address.terms), rank, uniform=address.uniform and rank.uniform)
    return add(Value(0, ((symbol, 1),)), offset)


def _shf(_table: SymbolTable, _width: int, args: list[Value]) -> Value | None:
    low, count, high = args
    return _divide(low, 1 << count.constant) if high.constant == 0 and count.constant is not None else None


def _compare(table: SymbolTable, op: str, args: list[Value]) -> Value | None:
    """Equality is decided when the symbols cancel; a select of numbers compares as its predicate or its opposite."""
    chosen = _compare_select(table, op, args)
    if chosen is not None:
        return chosen
    extreme = _compare_extreme(op, args)
    if extreme is not None:
        return extreme
    difference = add(args[0], args[1], -1)
    comparison = op.split("_")[1]
    if difference.terms or comparison not in ("eq", "ne"):
        return None
    wanted = comparison == "eq"
    if isinstance(difference.lanes, int):
        return Value(int((difference.lanes == 0) == wanted))
    return Value(tuple(int((x == 0) == wanted) for x in difference.lanes))


def _compare_extreme(op: str, args: list[Value]) -> Value | None:
    """No unsigned number is below zero or above the largest one."""
    if op not in ("setp_lt_u", "setp_ge_u", "setp_gt_u", "setp_le_u") or args[2].constant is None:
        return None
    most = (1 << args[2].constant) - 1
    low, high = (args[0], args[1]) if op in ("setp_lt_u", "setp_ge_u") else (args[1], args[0])
    if high.constant == 0 or (low.constant is not None and low.constant & most == most):
        return Value(int(op in ("setp_ge_u", "setp_le_u")))
    return None


def _compare_select(table: SymbolTable, op: str, args: list[Value]) -> Value | None:
    """`(p ? a : b) == k`, the way C++ carries the predicate of elect.sync through an integer."""
    symbol = args[0].base
    if symbol is None or symbol.kind != "selp" or args[0].lanes != 0 or args[1].constant is None:
        return None
    true, false, predicate = symbol.key[2:5]
    assert isinstance(true, Value)
    assert isinstance(false, Value)
    assert isinstance(predicate, Value)
    if true.constant is None or false.constant is None:
        return None
    when_true = bool(_pointwise(op, 1, [true, *args[1:]]).constant)
    when_false = bool(_pointwise(op, 1, [false, *args[1:]]).constant)
    if when_true == when_false:
        return Value(int(when_true))
    return predicate if when_true else compute(table, "not", 1, [predicate])


_Rule = Callable[[SymbolTable, int, "list[Value]"], "Value | None"]
_WRAPPED = frozenset({"add", "sub", "mul", "mad", "shl", "lea"})
_RULES: dict[str, _Rule] = {
    "mov": _mov,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "mul_wide_s": lambda table, width, args: _mul(table, width, args[:2]),
    "mad": _mad,
    "shl": _shl,
    "lea": _lea,
    "shr_u": _shr,
    "shr_s": _shr,
    "shf_r": _shf,
    "div_u": _div,
    "div_s": _div,
    "rem_u": _rem,
    "rem_s": _rem,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "not": _not,
    "selp": _selp,
    "zext": _convert,
    "sext": _convert,
    "field": _field,
    "mapa": _mapa,
}


def remote_target(symbol: Symbol) -> tuple[Value, Value | None] | None:
    """(local address, rank) behind a `mapa` or `leader` symbol; rank None means the even CTA of the pair."""
    if symbol.kind == "mapa":
        address, rank = symbol.key[1], symbol.key[2]
        assert isinstance(address, Value)
        assert isinstance(rank, Value)
        return address, rank
    if symbol.kind == "leader":
        address = symbol.key[2]
        assert isinstance(address, Value)
        return address, None
    return None
