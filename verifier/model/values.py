"""Values of registers as one warp sees them: a constant per lane plus a sum of symbols.

`Value` is `lanes + sum(coefficient * symbol)`: exact for what addresses, barrier operands and role tests are made of. A
symbol stands for something not known at compile time (a parameter, a loop-carried stage, a loaded word) or for the
address of an object; symbols are interned, so equal symbols are the same unknown. Lanes are an int when all 32
agree, a 32-tuple otherwise.
"""

from __future__ import annotations

import msgspec

WARP = 32
Lanes = int | tuple[int, ...]


class Symbol:
    """An unknown. `key` says what it is; `uniform` that all lanes of a warp see the same; `align` what divides it.

    Keys: ("sym", space, name) address of an object; ("param", name, offset, width); ("sreg", name);
    ("phi", id), ("def", id), ("undef", id): the SSA value; ("elect", id): true in exactly one lane;
    (operation, width, arguments...): a named or opaque function of values.
    """

    __slots__ = ("align", "key", "uniform")

    def __init__(self, key: tuple[object, ...], uniform: bool, align: int) -> None:
        self.key = key
        self.uniform = uniform
        self.align = align

    @property
    def kind(self) -> str:
        return str(self.key[0])

    def __repr__(self) -> str:
        """Operands that are values are left out: written in full, a chain of selects grows exponentially."""
        parts = ["..." if isinstance(part, Value) and part.terms else str(part) for part in self.key]
        return ":".join(parts)


class Value(msgspec.Struct, frozen=True):
    lanes: Lanes
    terms: tuple[tuple[Symbol, int], ...] = ()

    @property
    def constant(self) -> int | None:
        """The number, when there is one and it is the same in all lanes."""
        return self.lanes if not self.terms and isinstance(self.lanes, int) else None

    @property
    def uniform(self) -> bool:
        return isinstance(self.lanes, int) and all(symbol.uniform for symbol, _ in self.terms)

    @property
    def base(self) -> Symbol | None:
        """The only symbol, with coefficient 1, of an address `symbol + constants`; None otherwise."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 else None

    def __str__(self) -> str:
        parts = [f"{coef}*{symbol}" if coef != 1 else str(symbol) for symbol, coef in self.terms]
        if isinstance(self.lanes, tuple):
            parts.append("f(lane)")
        elif self.lanes or not parts:
            parts.append(str(self.lanes))
        return " + ".join(parts)


class SymbolTable:
    """Interns symbols; one table serves all warps of a kernel, so their values can be compared."""

    def __init__(self) -> None:
        self._symbols: dict[tuple[object, ...], Symbol] = {}

    def get(self, *key: object, uniform: bool = False, align: int = 1) -> Symbol:
        symbol = self._symbols.get(key)
        if symbol is None:
            symbol = self._symbols[key] = Symbol(key, uniform, align)
        return symbol

    def value(self, *key: object, uniform: bool = False, align: int = 1) -> Value:
        return Value(0, ((self.get(*key, uniform=uniform, align=align), 1),))


def collapse(lanes: tuple[int, ...]) -> Lanes:
    first = lanes[0]
    return first if all(lane == first for lane in lanes) else lanes


def add(a: Value, b: Value, sign: int = 1) -> Value:
    """a + sign * b, without regard to width."""
    if isinstance(a.lanes, int) and isinstance(b.lanes, int):
        lanes: Lanes = a.lanes + sign * b.lanes
    else:
        lanes = collapse(tuple(x + sign * y for x, y in zip(spread(a.lanes), spread(b.lanes), strict=True)))
    if not b.terms:
        return Value(lanes, a.terms)
    coefs = dict(a.terms)
    for symbol, coef in b.terms:
        coefs[symbol] = coefs.get(symbol, 0) + sign * coef
    return Value(lanes, _sorted_terms(coefs))


def scale(a: Value, factor: int) -> Value:
    lanes: Lanes = a.lanes * factor if isinstance(a.lanes, int) else tuple(x * factor for x in a.lanes)
    return Value(lanes, tuple((symbol, coef * factor) for symbol, coef in a.terms) if factor else ())


def spread(lanes: Lanes) -> tuple[int, ...]:
    return lanes if isinstance(lanes, tuple) else (lanes,) * WARP


def _sorted_terms(coefs: dict[Symbol, int]) -> tuple[tuple[Symbol, int], ...]:
    return tuple(sorted(((s, c) for s, c in coefs.items() if c), key=lambda item: id(item[0])))
