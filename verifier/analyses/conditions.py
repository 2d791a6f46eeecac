"""What a path knows about branch predicates: the same test asked twice has one answer.

A walk carries facts `symbol = number`. Taking an edge adds what its guard says (`a && b` true makes both true, `x >
0` is the negation of `x < 1`); entering a block gives each merge the value that comes in along the edge, if facts
make it a number. Facts about values that a block computes anew are dropped on entering it.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from verifier.isa.compute import mask, signed
from verifier.model.cfg import Edge
from verifier.model.streams import Stream
from verifier.model.symbolic import compute
from verifier.model.values import Symbol, Value, add, scale

Facts = frozenset[tuple[Symbol, int]]
NO_FACTS: Facts = frozenset()
_DEPTH = 12


class Conditions:
    """Facts along the paths of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._table = stream.evaluator.table
        self._guards: dict[Edge, Value] = {}
        self._blocks: dict[Symbol, frozenset[int]] = {}
        self._useful = self._asked_more_than_once()

    def guard(self, edge: Edge) -> Value | None:
        """Value of the predicate an edge depends on; None for an unguarded edge."""
        if edge.guard is None:
            return None
        value = self._guards.get(edge)
        if value is None:
            last = self._stream.cfg.blocks[edge.src].end - 1
            predicate = self._stream.ssa.reads[last][edge.guard.reg]
            value = self._guards[edge] = self._stream.evaluator.value(predicate)
        return value

    def takes(self, edge: Edge, facts: Facts) -> bool | None:
        """Whether the facts decide that the edge is taken (True), not taken (False), or neither (None)."""
        value = self.guard(edge)
        if value is None or edge.guard is None:
            return None
        decided = self.decide(value, facts)
        return None if decided is None else decided != edge.guard.negated

    def follow(self, edge: Edge, facts: Facts) -> Facts:
        """Facts after taking the edge and entering its block."""
        value = self.guard(edge)
        if value is not None and edge.guard is not None:
            facts = facts | frozenset(
                (s, n) for s, n in self._implied(value, not edge.guard.negated, 0) if s in self._useful
            )
        merged = self._merges(edge, facts)
        kept = {(s, n) for s, n in facts if edge.dst not in self._defined_in(s)}
        return frozenset(kept | merged)

    def implied(self, value: Value, truth: bool) -> list[tuple[Symbol, int]]:
        """Predicates that are decided when `value` has this truth, with their own."""
        return self._implied(value, truth, 0)

    def decide(self, value: Value, facts: Facts) -> bool | None:
        constant = self._substitute(value, dict(facts), 0).constant
        return None if constant is None else bool(constant & 1)

    def _merges(self, edge: Edge, facts: Facts) -> set[tuple[Symbol, int]]:
        known = dict(facts)
        found = set()
        for phi in self._stream.ssa.phis(edge.dst).values():
            own = self._stream.evaluator.value(phi).base
            incoming = (phi.incoming or {}).get(edge.src)
            if own is None or own.kind != "phi" or own not in self._useful or incoming is None:
                continue
            constant = self._substitute(self._stream.evaluator.value(incoming), known, 0).constant
            if constant is not None:
                found.add((own, constant))
        return found

    def _implied(self, value: Value, truth: bool, depth: int) -> list[tuple[Symbol, int]]:
        symbol = value.base
        if symbol is None or value.lanes != 0 or depth > _DEPTH:
            return []
        key = symbol.key
        parts = [part for part in key[2:] if isinstance(part, Value)]
        if symbol.kind == "not":
            return self._implied(parts[0], not truth, depth + 1)
        found = [(symbol, int(truth))]
        if (symbol.kind, truth) in (("and", True), ("or", False)):
            for part in parts:
                found += self._implied(part, truth, depth + 1)
        atom, same = self._canonical(symbol)
        found.append((atom, int(truth == same)))
        if (symbol.kind.split("_")[1:2], truth) in ((["lt"], True), (["gt"], True), (["le"], False), (["ge"], False)):
            found.append((self._equality(symbol), 0))  # a strict order excludes equality
        return found

    def _equality(self, comparison: Symbol) -> Symbol:
        """`a == b` of the operands of any comparison, in one order."""
        left, right, width = comparison.key[2:5]
        assert isinstance(left, Value)
        assert isinstance(right, Value)
        if _order(right) < _order(left):
            left, right = right, left
        return self._table.get("setp_eq_u", 1, left, right, width)

    def _canonical(self, symbol: Symbol) -> tuple[Symbol, bool]:
        """A comparison as `x < k` or `x == k`, and whether it has the same truth."""
        parts = symbol.kind.split("_")
        if parts[0] != "setp" or len(parts) != 3:
            return symbol, True
        left, right, width = symbol.key[2:5]
        assert isinstance(left, Value)
        assert isinstance(right, Value)
        assert isinstance(width, Value)
        comparison, kind = parts[1], parts[2]
        if comparison in ("eq", "ne"):
            return self._equality(symbol), comparison == "eq"
        limit = right.constant
        bits = width.constant or 32
        if limit is None:
            return symbol, True
        bound = signed(limit, bits) if kind == "s" else limit
        if comparison in ("gt", "le"):
            bound += 1
        canonical = self._table.get(f"setp_lt_{kind}", 1, left, Value(bound & mask(bits)), width)
        return canonical, comparison in ("lt", "le")

    def _substitute(self, value: Value, known: dict[Symbol, int], depth: int) -> Value:
        if not value.terms or depth > _DEPTH:
            return value
        total = Value(value.lanes)
        for symbol, coef in value.terms:
            total = add(total, scale(self._replace(symbol, known, depth), coef))
        return total

    def _replace(self, symbol: Symbol, known: dict[Symbol, int], depth: int) -> Value:
        own = Value(0, ((symbol, 1),))
        if symbol in known:
            return Value(known[symbol])
        atom, same = self._canonical(symbol)
        if atom in known:
            return Value(int(bool(known[atom]) == same))
        if len(symbol.key) < 3 or not isinstance(symbol.key[1], int) or not known:
            return own
        parts = symbol.key[2:]
        args = [self._substitute(part, known, depth + 1) for part in parts if isinstance(part, Value)]
        if len(args) != len(parts) or list(parts) == args:
            return own
        return compute(self._table, symbol.kind, symbol.key[1], args) or own

    def _defined_in(self, symbol: Symbol) -> frozenset[int]:
        """Blocks that compute something the symbol is made of."""
        blocks = self._blocks.get(symbol)
        if blocks is None:
            self._blocks[symbol] = frozenset()
            found: set[int] = set()
            if symbol.kind in ("phi", "def", "elect") and isinstance(symbol.key[1], int):
                found.add(self._stream.ssa.values[symbol.key[1]].block)
            for part in symbol.key:
                if isinstance(part, Value):
                    for inner, _ in part.terms:
                        found |= self._defined_in(inner)
            blocks = self._blocks[symbol] = frozenset(found)
        return blocks

    def _asked_more_than_once(self) -> frozenset[Symbol]:
        """Symbols that occur in the guards of two branches, or are merges that some guard reads."""
        counts: Counter[Symbol] = Counter()
        for block in self._stream.cfg.reachable:
            seen: set[Symbol] = set()
            for edge in self._stream.cfg.successors[block]:
                value = self.guard(edge)
                if value is not None:
                    self._collect(value, seen, 0)
            counts.update(seen)
        asked = {s for s, n in counts.items() if n > 1 or s.kind == "phi"}
        return frozenset(asked | self._feeding({s for s in asked if s.kind == "phi"}))

    def _feeding(self, merges: set[Symbol]) -> set[Symbol]:
        """Merges that reach one of `merges` through other merges."""
        values = self._stream.ssa.values
        found: set[Symbol] = set()
        work = [values[s.key[1]] for s in merges if isinstance(s.key[1], int)]
        while work:
            for incoming in (work.pop().incoming or {}).values():
                symbol = self._stream.evaluator.value(incoming).base
                if (
                    symbol is not None
                    and symbol.kind == "phi"
                    and symbol not in found
                    and isinstance(symbol.key[1], int)
                ):
                    found.add(symbol)
                    work.append(values[symbol.key[1]])
        return found

    def _collect(self, value: Value, seen: set[Symbol], depth: int) -> None:
        for symbol, _ in value.terms:
            if symbol in seen or depth > _DEPTH:
                continue
            seen.add(symbol)
            seen.add(self._canonical(symbol)[0])
            if symbol.kind.startswith("setp_"):
                seen.add(self._equality(symbol))
            for part in symbol.key:
                if isinstance(part, Value):
                    self._collect(part, seen, depth + 1)


def _order(value: Value) -> tuple[list[int], str]:
    return [id(symbol) for symbol, _ in value.terms], str(value.lanes)


@lru_cache(maxsize=64)
def conditions_of(stream: Stream) -> Conditions:
    return Conditions(stream)


def dominating_facts(conditions: Conditions, stream: Stream, block: int) -> Facts:
    """What every path into `block` has learned from branches since the values were computed."""
    cfg = stream.cfg
    chain: list[Edge] = []
    current = block
    while current != cfg.entry:
        edges = cfg.predecessors[current]
        if len(edges) == 1:
            chain.append(edges[0])
        parent = cfg.dominator.get(current, current)
        if parent == current:
            break
        current = parent
    facts = NO_FACTS
    for edge in reversed(chain):
        facts = conditions.follow(edge, facts)
    return facts
