"""What a path knows about numbers, and under which names expressions live on from block to block.

`conditions` decides whether the same test asked twice has one answer. This goes further for a few unknowns of interest:
where a merge takes over a value (`last = expert`), expressions made of the old name are rewritten to the new one, and a
branch that finds two unknowns equal makes expressions of one into expressions of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import rustworkx

from verifier.analyses.conditions import conditions_of
from verifier.analyses.ranges import is_far
from verifier.analyses.rewriting import Rewriter, atoms
from verifier.model.cfg import Edge
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value

Known = frozenset[tuple[Value, int]]
NOTHING: Known = frozenset()
NO_SYMBOLS: frozenset[Symbol] = frozenset()
_MERGED = frozenset({"phi", "def", "iter"})
MOST_MAPS = 1 << 24  # no kernel has that many tensor maps: 2 GB of them
_ROUNDS = 4
_HEIRS = 4


class PathFacts:
    """Facts along the paths of one stream about `interest`, and about the merges that these come from or go to."""

    def __init__(self, stream: Stream, interest: Iterable[Symbol]) -> None:
        self._stream = stream
        self._table = stream.evaluator.table
        self._conditions = conditions_of(stream)
        self.interest = self.closed(set(interest))
        self._fresh: dict[Edge, dict[Symbol, list[Value]]] = {}
        self._cycles = self._counting()

    # what is known

    def rewrite(self, value: Value, known: Known) -> Value:
        """The value with the known numbers put in. Raises `rewriting.TooDeep`."""
        numbers = {v.base: Value(n) for v, n in known if v.lanes == 0 and v.base is not None}
        return Rewriter(self._table, numbers).value(value)

    def learn(self, predicate: Value, truth: bool, known: Known) -> Known | None:
        """`known` and what follows for the unknowns of interest; None when that is a contradiction."""
        if not atoms(predicate) & self.interest:
            return known
        found = dict(known)
        now = self.rewrite(predicate, known)
        if now.constant is not None:
            return known if bool(now.constant & 1) == truth else None
        for value, number in [*self._implied(predicate, truth), *self._implied(now, truth)]:
            if atoms(value) & self.interest and found.setdefault(value, number) != number:
                return None
        learned = frozenset(found.items())
        return learned if self._consistent(learned) else None

    def _implied(self, predicate: Value, truth: bool) -> Iterator[tuple[Value, int]]:
        for symbol, number in self._conditions.implied(predicate, truth):
            yield Value(0, ((symbol, 1),)), number
            for left, right in _equations(symbol) if number else ():
                if right.constant is not None and left.base in self.interest:
                    yield left, right.constant

    def _consistent(self, known: Known) -> bool:
        for value, number in known:
            constant = self.rewrite(value, known - {(value, number)}).constant
            if constant is not None and constant != number:
                return False
        return True

    def equal(self, predicate: Value, truth: bool, values: frozenset[Value]) -> frozenset[Value]:
        """Where the predicate says that two unknowns are equal: each value also under its other name."""
        found = set(values)
        for symbol, number in self._conditions.implied(predicate, truth):
            for old, new in _equations(symbol) if number else ():
                if old.lanes == 0 and old.base is not None:
                    rename = Rewriter(self._table, {old.base: new})
                    inside = atoms(old)
                    found |= {rename.value(v) for v in values if inside <= atoms(v)}
        return frozenset(found)

    def nones(
        self, predicate: Value, truth: bool, known: Known, indices: frozenset[Symbol]
    ) -> Iterator[tuple[Value, int]]:
        """(index, its width) where the predicate says that an index is a number that cannot be one."""
        if not atoms(predicate) & indices:
            return
        now = self.rewrite(predicate, known)
        for symbol, number in self._conditions.implied(now, truth):
            for left, right in _equations(symbol) if number else ():
                bits = symbol.key[4].constant if isinstance(symbol.key[4], Value) else None
                constant = right.constant
                if bits and constant is not None and atoms(left) & indices and is_far(constant, bits, MOST_MAPS):
                    yield left, bits

    # from block to block

    def cross(self, edge: Edge, values: Iterable[Value]) -> Iterator[tuple[Value, Value]]:
        """(value, what it is called in the edge's block), for each name that it has there."""
        fresh = self._taken_over(edge)
        for value in values:
            parts = atoms(value)
            gone = {s for s in parts if self._made_in(s, edge.dst)}
            if not gone:
                yield value, value
            for symbol in fresh:
                others = {s: fresh[s][0] for s in gone & fresh.keys() if s is not symbol}
                if not atoms(Value(0, ((symbol, 1),))) <= parts or not self._all_named(value, gone, {*others, symbol}):
                    continue
                for heir in fresh[symbol]:
                    yield value, Rewriter(self._table, {**others, symbol: heir}).value(value)

    def _all_named(self, value: Value, gone: set[Symbol], named: set[Symbol]) -> bool:
        """Whether no unknown that is gone is left in the value once those with a new name are taken out."""
        marks = {symbol: self._table.value("mark", number) for number, symbol in enumerate(named)}
        rest = Rewriter(self._table, marks).value(value)
        return rest != value and not atoms(rest) & gone

    def cross_known(self, edge: Edge, known: Known) -> Known:
        """What is known in the edge's block: what was, under its new names, and merges that become a number."""
        numbers = dict(known)
        found = {new: numbers[old] for old, new in self.cross(edge, numbers)}
        for own, value in self._incoming(edge):
            counts = atoms(value) & self._cycles.get(own.base, NO_SYMBOLS) if own.base is not None else NO_SYMBOLS
            constant = None if counts else self.rewrite(value, known).constant  # a counter has too many to tell apart
            if constant is not None and own.base is not None and own.lanes == 0:
                found[own] = constant
        return frozenset(found.items())

    def _incoming(self, edge: Edge) -> Iterator[tuple[Value, Value]]:
        """(merge of interest, the value it takes along the edge)."""
        evaluator = self._stream.evaluator
        for phi in self._stream.ssa.phis(edge.dst).values():
            incoming = (phi.incoming or {}).get(edge.src)
            own = evaluator.value(phi)
            if incoming is not None and atoms(own) & self.interest:
                value = evaluator.value(incoming)
                if value != own:
                    yield own, value

    def _counting(self) -> dict[Symbol, frozenset[Symbol]]:
        """Merge -> the merges that it goes round with while a loop changes the number."""
        evaluator = self._stream.evaluator
        graph: rustworkx.PyDiGraph[Symbol, bool] = rustworkx.PyDiGraph()
        nodes: dict[Symbol, int] = {}
        for phi in (p for block in self._stream.cfg.reachable for p in self._stream.ssa.phis(block).values()):
            own = evaluator.value(phi).base
            for value in map(evaluator.value, (phi.incoming or {}).values() if own is not None else ()):
                assert own is not None
                for symbol in atoms(value):
                    ends = [nodes[s] if s in nodes else nodes.setdefault(s, graph.add_node(s)) for s in (own, symbol)]
                    graph.add_edge(ends[0], ends[1], value.base is not symbol or value.lanes != 0)
        found: dict[Symbol, frozenset[Symbol]] = {}
        for ring in rustworkx.strongly_connected_components(graph):
            inside = set(ring)
            if any(changes and to in inside for node in ring for _, to, changes in graph.out_edges(node)):
                found.update({graph[node]: frozenset(graph[n] for n in ring) for node in ring})
        return found

    def _taken_over(self, edge: Edge) -> dict[Symbol, list[Value]]:
        """Unknown -> merges of the edge's block that take its value over."""
        found = self._fresh.get(edge)
        if found is None:
            found = self._fresh[edge] = {}
            for own, value in self._incoming(edge):
                if value.base is not None and value.lanes == 0:
                    found.setdefault(value.base, []).append(own)
            for heirs in found.values():
                del heirs[_HEIRS:]
        return found

    def _made_in(self, symbol: Symbol, block: int) -> bool:
        """Whether entering the block makes the symbol stand for a new number."""
        if symbol.kind not in ("phi", "def", "elect", "iter") or not isinstance(symbol.key[1], int):
            return False
        return self._stream.ssa.values[symbol.key[1]].block == block

    def closed(self, found: set[Symbol]) -> frozenset[Symbol]:
        """Also the unknowns that feed one of interest through merges, and the merges that take one over."""
        evaluator = self._stream.evaluator
        merges = []
        for block in self._stream.cfg.reachable:
            for phi in self._stream.ssa.phis(block).values():
                bases = [evaluator.value(v).base for v in (phi.incoming or {}).values()]
                merges.append((atoms(evaluator.value(phi)), frozenset(s for s in bases if s is not None)))
        for _ in range(_ROUNDS):
            for own, feeding in merges:
                if own & found:
                    found |= feeding
                elif feeding & found:
                    found |= own
        return frozenset(s for s in found if s.kind in _MERGED)


def _equations(symbol: Symbol) -> tuple[tuple[Value, Value], ...]:
    """Both sides of a test for equality, either way round."""
    if not symbol.kind.startswith("setp_eq"):
        return ()
    left, right = symbol.key[2], symbol.key[3]
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    return ((left, right), (right, left))
