"""Values with some of their symbols replaced: what an expression becomes when a part of it is known or renamed."""

from __future__ import annotations

from collections.abc import Mapping

from verifier.model.symbolic import compute
from verifier.model.values import Symbol, SymbolTable, Value, add, scale

_ATOMS = frozenset({"sym", "param", "ld_param", "sreg", "phi", "def", "undef", "elect", "iter", "tmem", "float", "reg"})
_DEPTH = 40


class TooDeep(Exception):
    """The expression is nested too deeply to be rewritten: the caller answers unknown."""


def atoms(value: Value) -> frozenset[Symbol]:
    """The unknowns and objects that a value is made of, at any depth."""
    found: set[Symbol] = set()
    work = [symbol for symbol, _ in value.terms]
    seen: set[Symbol] = set(work)
    while work:
        symbol = work.pop()
        if symbol.kind in _ATOMS:
            found.add(symbol)
            continue
        inner = {s for part in symbol.key if isinstance(part, Value) for s, _ in part.terms} - seen
        seen |= inner
        work += inner
    return frozenset(found)


class Rewriter:
    """Replaces symbols by values and computes anew what they were part of."""

    def __init__(self, table: SymbolTable, known: Mapping[Symbol, Value]) -> None:
        self._table = table
        self._known = known
        self._memo: dict[Symbol, Value] = {}

    def value(self, value: Value, depth: int = 0) -> Value:
        """Raises `TooDeep` where expressions are nested beyond reason."""
        if not value.terms:
            return value
        total = Value(value.lanes)
        for symbol, coef in value.terms:
            total = add(total, scale(self._symbol(symbol, depth), coef))
        return total

    def _symbol(self, symbol: Symbol, depth: int) -> Value:
        known = self._known.get(symbol)
        if known is not None:
            return known
        found = self._memo.get(symbol)
        if found is None:
            found = self._memo[symbol] = self._compute(symbol, depth)
        return found

    def _compute(self, symbol: Symbol, depth: int) -> Value:
        own = Value(0, ((symbol, 1),))
        if symbol.kind in _ATOMS:
            return own
        if depth > _DEPTH:
            raise TooDeep
        parts = symbol.key[1:]
        fresh = tuple(self.value(part, depth + 1) if isinstance(part, Value) else part for part in parts)
        if fresh == parts:
            return own
        width, args = fresh[0], [part for part in fresh[1:] if isinstance(part, Value)]
        if isinstance(width, int) and len(args) == len(fresh) - 1:
            result = compute(self._table, symbol.kind, width, args)
            if result is not None:
                return result
        uniform = all(part.uniform for part in fresh if isinstance(part, Value))
        return self._table.value(symbol.kind, *fresh, uniform=uniform)
