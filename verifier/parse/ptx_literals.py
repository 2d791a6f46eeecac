"""Numbers as PTX writes them, and the folding of constant expressions (PTX ISA, "Constants")."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from verifier.parse.ptx_ast import Imm

MAX_DIGITS = 100
"""Longest literal that is read; nothing that PTX can hold comes near it."""

WARP_SIZE = "WARP_SZ"
"""The one name that is a number."""

NAN = math.nan
"""The one NaN object: equal syntax trees must compare equal, and NaN equals only itself by identity."""


class LiteralError(ValueError):
    """A constant without a value: too long, or an operation that is not defined."""


def decode(text: str) -> int | float:
    """Value of an integer or floating-point literal, with an optional sign."""
    if len(text) > MAX_DIGITS:
        raise LiteralError("the number is too long")
    if text == WARP_SIZE:
        return 32
    if text[0] in "+-":
        value = _unsigned(text[1:])
        return -value if text[0] == "-" else value
    return _unsigned(text)


def _unsigned(text: str) -> int | float:
    prefix = text[:2].lower()
    if prefix == "0x":
        return int(text.rstrip("U")[2:], 16)
    if prefix == "0b":
        return int(text.rstrip("U")[2:], 2)
    if prefix == "0f":
        return _canonical(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if prefix == "0d":
        return _canonical(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    if "." in text or "e" in prefix or "e" in text.lower():
        return float(text)
    digits = text.rstrip("U")
    return int(digits, 8) if len(digits) > 1 and digits[0] == "0" else int(digits)


def _canonical(value: float) -> float:
    return NAN if math.isnan(value) else value


def wrap64(value: int) -> int:
    """Integer constants have 64 bits; values that fit as signed or unsigned stay as they are."""
    return value if -(1 << 63) <= value < (1 << 64) else value & ((1 << 64) - 1)


def cast(kind: str, value: int | float) -> int:
    """`(.s64) value` or `(.u64) value`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise LiteralError("this value has no integer form")
    bits = int(value) & ((1 << 64) - 1)
    return bits - (1 << 64) if kind == ".s64" and bits >> 63 else bits


def unary(operator: str, value: int | float) -> int | float:
    """Value of a unary operator applied to a constant."""
    if operator == "!":
        return int(not value)
    if operator == "~":
        return ~_integer(value)
    return -value if operator == "-" else value


def fold(items: Sequence[Imm | str]) -> int | float:
    """Value of a flat expression: constants and operators in turn, C precedence, `? :` last."""
    value, at = _ternary(items, 0)
    if at != len(items):
        raise LiteralError("':' without '?'")
    return value


def _ternary(items: Sequence[Imm | str], at: int) -> tuple[int | float, int]:
    condition, at = _binary(items, at, 0)
    chain: list[tuple[int | float, int | float]] = []
    while at < len(items) and items[at] == "?":
        yes, at = _binary(items, at + 1, 0)
        if at >= len(items) or items[at] != ":":
            raise LiteralError("'?' without ':'")
        chain.append((condition, yes))
        condition, at = _binary(items, at + 1, 0)
    for test, yes in chain:
        if test:
            return yes, at
    return condition, at


def _binary(items: Sequence[Imm | str], at: int, level: int) -> tuple[int | float, int]:
    """Precedence climbing; the depth is bounded by the number of levels."""
    if level == len(_LEVELS):
        item = items[at]
        assert isinstance(item, Imm)
        return item.value, at + 1
    left, at = _binary(items, at, level + 1)
    while at < len(items) and items[at] in _LEVELS[level]:
        operator = str(items[at])
        right, at = _binary(items, at + 1, level + 1)
        left = _apply(operator, left, right)
    return left, at


_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


def _apply(operator: str, left: int | float, right: int | float) -> int | float:
    value = _OPERATORS[operator](left, right)
    return wrap64(value) if isinstance(value, int) else value


def _integer(value: int | float) -> int:
    if not isinstance(value, int):
        raise LiteralError("this operator needs integers")
    return value


def _shift(left: int | float, right: int | float, sign: int) -> int:
    value, count = _integer(left), _integer(right)
    if not 0 <= count < 64:
        raise LiteralError("the shift count is not between 0 and 63")
    return value << count if sign > 0 else value >> count


def _divide(left: int | float, right: int | float) -> int | float:
    if right == 0:
        raise LiteralError("division by zero")
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _remainder(left: int | float, right: int | float) -> int:
    a, b = _integer(left), _integer(right)
    return a - b * int(_divide(a, b))


_OPERATORS: dict[str, Callable[[int | float, int | float], int | float]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: _integer(a) | _integer(b),
    "^": lambda a, b: _integer(a) ^ _integer(b),
    "&": lambda a, b: _integer(a) & _integer(b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: _shift(a, b, 1),
    ">>": lambda a, b: _shift(a, b, -1),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": _remainder,
}
