"""Integer operations that both instruction sets lower to, and what each computes.

A function takes the result width in bits and unsigned operands and returns an unsigned result of that width.
Operations that cross lanes (`shfl_idx`, `elect`, `ballot`, ...) are listed in `LANE_OPERATIONS`; the evaluator in
`model.values` knows them. Anything else is "opaque": its result is a fresh symbol.

Sources: PTX ISA 9.4 "Integer Arithmetic", "Comparison and Selection", "Logic and Shift", "Data Movement";
the SASS spellings were matched against ptxas 13.5.37 output.
"""

from __future__ import annotations

from collections.abc import Callable


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
LANE_OPERATIONS = frozenset(
    {"shfl_idx", "shfl_up", "shfl_down", "shfl_bfly", "elect", "ballot", "vote_any", "vote_all"}
)

# Known only by name: equal arguments give equal results, nothing else is assumed.
#   mapa (address, rank)  leader (address): the same shared address in the even CTA of the pair
NAMED_OPERATIONS = frozenset({"mapa", "ld_param", "leader"})
