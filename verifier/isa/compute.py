"""Integer operations that both instruction sets lower to, and what each computes.

A function takes the result width in bits and unsigned operands and returns an unsigned result of that width.
Operations that cross lanes (`shfl_idx`, `elect`, `ballot`, ...) are listed in `LANE_OPERATIONS`; the evaluator in
`model.values` knows them. Anything else is "opaque": its result is a fresh symbol.

Sources: PTX ISA 9.4 "Integer Arithmetic", "Comparison and Selection", "Logic and Shift", "Data Movement";
the SASS spellings were matched against ptxas 13.5.37 output.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, TypeVar


def mask(width: int) -> int:
    return (1 << width) - 1


def signed(value: int, width: int) -> int:
    """The two's-complement reading of the low `width` bits."""
    value &= mask(width)
    return value - (1 << width) if value >> (width - 1) else value


def _shift_left(width: int, a: int, n: int) -> int:
    return (a << n) & mask(width) if n < width else 0


def _shift_right(width: int, a: int, n: int) -> int:
    return a >> n if n < width else 0


def _shift_right_signed(width: int, a: int, n: int) -> int:
    return (signed(a, width) >> min(n, width - 1)) & mask(width)


def _divide_signed(width: int, a: int, b: int) -> int:
    x, y = signed(a, width), signed(b, width)
    if y == 0:
        return mask(width)
    quotient = abs(x) // abs(y)
    return (quotient if (x < 0) == (y < 0) else -quotient) & mask(width)


def _remainder_signed(width: int, a: int, b: int) -> int:
    x, y = signed(a, width), signed(b, width)
    if y == 0:
        return a
    magnitude = abs(x) % abs(y)
    return (-magnitude if x < 0 else magnitude) & mask(width)


def _lop3(width: int, a: int, b: int, c: int, table: int) -> int:
    """Bitwise function of three inputs; bit (4a+2b+c) of `table` is the result (PTX ISA, lop3)."""
    result = 0
    everything = mask(width)
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            result |= x & y & z
    return result & everything


def _prmt(_width: int, a: int, b: int, selector: int) -> int:
    """Default mode of `prmt`: each selector nibble picks a byte of {b,a}; its top bit replicates the sign."""
    source = b << 32 | a
    result = 0
    for lane in range(4):
        nibble = selector >> (4 * lane) & 0xF
        byte = source >> (8 * (nibble & 7)) & 0xFF
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * lane)
    return result


def _bfe_unsigned(width: int, a: int, position: int, length: int) -> int:
    return a >> (position & 0xFF) & mask(length & 0xFF) & mask(width)


def _bfe_signed(width: int, a: int, position: int, length: int) -> int:
    length = min(length & 0xFF, width)
    return signed(_bfe_unsigned(width, a, position, length), length) & mask(width) if length else 0


def _bfi(width: int, a: int, b: int, position: int, length: int) -> int:
    field = mask(length & 0xFF) << (position & 0xFF)
    return (b & ~field | (a << (position & 0xFF)) & field) & mask(width)


def _multiply_wide_signed(width: int, a: int, b: int, source: int) -> int:
    return signed(a, source) * signed(b, source) & mask(width)


def _multiply_high_signed(width: int, a: int, b: int) -> int:
    return (signed(a, width) * signed(b, width) >> width) & mask(width)


def _select(_width: int, a: int, b: int, predicate: int) -> int:
    return a if predicate else b


def _funnel_right(width: int, low: int, n: int, high: int) -> int:
    return ((high << width | low) >> min(n, width)) & mask(width)


def _funnel_left(width: int, low: int, n: int, high: int) -> int:
    return ((high << width | low) << min(n, width) >> width) & mask(width)


def _lookup(_width: int, index: int, offset: int, *words: int) -> int:
    """A 32-bit word of a constant table; 0 outside of it."""
    at = index + offset
    return words[at // 4] if at % 4 == 0 and 0 <= at // 4 < len(words) else 0


OPERATIONS: dict[str, Callable[..., int]] = {
    "mov": lambda w, a: a & mask(w),
    "add": lambda w, a, b: a + b & mask(w),
    "sub": lambda w, a, b: a - b & mask(w),
    "mul": lambda w, a, b: a * b & mask(w),
    "mad": lambda w, a, b, c: a * b + c & mask(w),
    "mul_hi_u": lambda w, a, b: a * b >> w & mask(w),
    "mul_hi_s": _multiply_high_signed,
    "mul_wide_s": _multiply_wide_signed,  # (a, b, source width)
    "div_u": lambda w, a, b: a // b if b else mask(w),
    "rem_u": lambda w, a, b: a % b if b else a,
    "div_s": _divide_signed,
    "rem_s": _remainder_signed,
    "shl": _shift_left,
    "shr_u": _shift_right,
    "shr_s": _shift_right_signed,
    "shf_r": _funnel_right,  # (low, shift, high)
    "shf_l": _funnel_left,  # (low, shift, high)
    "lea": lambda w, a, b, n: (a << n) + b & mask(w),  # (a, b, shift)
    "and": lambda w, a, b: a & b,
    "or": lambda w, a, b: a | b,
    "xor": lambda w, a, b: a ^ b,
    "not": lambda w, a: ~a & mask(w),
    "neg": lambda w, a: -a & mask(w),
    "abs": lambda w, a: abs(signed(a, w)) & mask(w),
    "min_u": lambda w, a, b: min(a, b),
    "max_u": lambda w, a, b: max(a, b),
    "min_s": lambda w, a, b: min(signed(a, w), signed(b, w)) & mask(w),
    "max_s": lambda w, a, b: max(signed(a, w), signed(b, w)) & mask(w),
    "selp": _select,  # (value if true, value if false, predicate)
    "zext": lambda w, a, source: a & mask(source) & mask(w),
    "sext": lambda w, a, source: signed(a, source) & mask(w),
    "lop3": _lop3,
    "prmt": _prmt,
    "bfe_u": _bfe_unsigned,
    "bfe_s": _bfe_signed,
    "bfi": _bfi,
    "popc": lambda w, a: a.bit_count(),
    "clz": lambda w, a, source: source - (a & mask(source)).bit_length(),
    "pack": lambda w, low, high, half: (high << half | low) & mask(w),  # (low, high, bits of each half)
    "lookup": _lookup,  # (index in bytes, offset, words...)
    "field": lambda w, a, position: a >> position & mask(w),  # bits [position, position + w) of a
}

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _comparison(name: str, is_signed: bool) -> Callable[..., int]:
    compare = _COMPARISONS[name]
    if is_signed:
        return lambda w, a, b, source: int(compare(signed(a, source), signed(b, source)))
    return lambda w, a, b, source: int(compare(a & mask(source), b & mask(source)))


# `setp_lt_s` (a, b, source width): a predicate, width 1.
OPERATIONS.update({f"setp_{name}_{kind}": _comparison(name, kind == "s") for name in _COMPARISONS for kind in "us"})

# Result depends on other lanes. Arguments:
#   shfl_idx (value, source lane, clamp word)   elect (membermask)   ballot (predicate, membermask)
#   vote_any (predicate, membermask)            vote_all (predicate, membermask)
#   first_lane (value): that of the first active lane
LANE_OPERATIONS = frozenset(
    {"first_lane", "shfl_idx", "shfl_up", "shfl_down", "shfl_bfly", "elect", "ballot", "vote_any", "vote_all"}
)

# Known only by name: equal arguments give equal results, nothing else is assumed.
#   mapa (address, rank)  leader (address): the same shared address in the even CTA of the pair
NAMED_OPERATIONS = frozenset({"mapa", "ld_param", "leader"})


# ---- Composites -----------------------------------------------------------------------------------------------
# SASS instructions do several things at once. Each composite is a recipe over the operations above, so that constants,
# lanes and symbols go through one set of rules.

T = TypeVar("T")


class Calculator(Protocol[T]):
    """What a recipe needs of a kind of value."""

    def apply(self, op: str, width: int, *args: T) -> T: ...

    def constant(self, number: int) -> T: ...

    def number(self, value: T) -> int:
        """The integer of an argument that is always an immediate."""
        ...


def _sum(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
    """(value, coefficient)...: the sum of the products."""
    total = calc.constant(0)
    for value, coefficient in zip(args[::2], args[1::2], strict=True):
        factor = calc.number(coefficient)
        if factor == -1:
            total = calc.apply("sub", width, total, value)
        else:
            total = calc.apply(
                "add", width, total, value if factor == 1 else calc.apply("mul", width, value, coefficient)
            )
    return total


def _mul_add(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
    """(a, b, sign of the product, c, sign of c)."""
    product = calc.apply("mul", width, args[0], args[1])
    return _sum(calc, width, (product, args[2], args[3], args[4]))


def _lea_high(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
    """(low, b, high, shift): b plus the upper word of {high, low} << shift."""
    low, addend, high, shift = args
    return calc.apply("add", width, calc.apply("shf_l", width, low, shift, high), addend)


def _lea_high_signed(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
    """(a, b, shift): b plus the upper word of the sign-extended a << shift."""
    value, addend, shift = args
    count = calc.constant(width - calc.number(shift))
    return calc.apply("add", width, calc.apply("shr_s", width, value, count), addend)


def _lop3_nonzero(calc: Calculator[T], _width: int, args: Sequence[T]) -> T:
    """(a, b, c, table): whether the 32-bit result has a bit set."""
    return calc.apply("setp_ne_u", 1, calc.apply("lop3", 32, *args), calc.constant(0), calc.constant(32))


def _lop3_by_parts(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
    """(a, b, c, table): at most two bitwise operations on inputs that may be inverted, where there is such a form."""
    form = logic_form(calc.number(args[3]) & 0xFF)
    if form is None:
        return calc.apply("lop3_table", width, *args)
    places, operations, inverted = form
    if not places:
        return calc.constant(mask(width) if inverted else 0)
    inputs = [calc.apply("not", width, args[p]) if inverted >> p & 1 else args[p] for p in places]
    result = inputs[0]
    for operation, value in zip(operations, inputs[1:], strict=True):
        result = calc.apply(operation, width, result, value)
    return result


LogicForm = tuple[tuple[int, ...], tuple[str, ...], int]


def logic_form(table: int) -> LogicForm | None:
    """(inputs in order, operations between them from the left, mask of inverted inputs) that compute lop3."""
    return _logic_forms().get(table)


@cache
def _logic_forms() -> dict[int, LogicForm]:
    forms: dict[int, LogicForm] = {0x00: ((), (), 0), 0xFF: ((), (), 1)}
    orders = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 2, 1), (1, 2, 0))
    for places in orders:
        for inverted in sorted(range(8), key=int.bit_count):
            for operations in itertools.product(("and", "or", "xor"), repeat=len(places) - 1):
                forms.setdefault(_logic_table(places, operations, inverted), (places, operations, inverted))
    return forms


def _logic_table(places: tuple[int, ...], operations: tuple[str, ...], inverted: int) -> int:
    inputs = [(0xF0, 0xCC, 0xAA)[p] ^ (0xFF if inverted >> p & 1 else 0) for p in places]
    result = inputs[0]
    for operation, value in zip(operations, inputs[1:], strict=True):
        result = OPERATIONS[operation](8, result, value)
    return result


def _added_choice(choice: str) -> Composite:
    def recipe(calc: Calculator[T], width: int, args: Sequence[T]) -> T:
        """(a, b, c): minimum or maximum of a + b and c."""
        return calc.apply(choice, width, calc.apply("add", width, args[0], args[1]), args[2])

    return recipe


def _combined_comparison(comparison: str, combine: str) -> Composite:
    def recipe(calc: Calculator[T], _width: int, args: Sequence[T]) -> T:
        """(a, b, source width, predicate, whether the predicate is negated)."""
        a, b, source, predicate, negated = args
        other = calc.apply("not", 1, predicate) if calc.number(negated) else predicate
        return calc.apply(combine, 1, calc.apply(comparison, 1, a, b, source), other)

    return recipe


class Composite(Protocol):
    def __call__(self, calc: Calculator[T], width: int, args: Sequence[T], /) -> T: ...


COMPOSITES: dict[str, Composite] = {
    "sum": _sum,
    "mul_add": _mul_add,
    "lea_hi": _lea_high,
    "lea_hi_s": _lea_high_signed,
    "lop3": _lop3_by_parts,
    "lop3_ne": _lop3_nonzero,
    **{f"add_{choice}": _added_choice(choice) for choice in ("min_u", "max_u", "min_s", "max_s")},
    **{
        f"setp_{name}_{kind}_{combine}": _combined_comparison(f"setp_{name}_{kind}", combine)
        for name in _COMPARISONS
        for kind in "us"
        for combine in ("and", "or", "xor")
    },
}
