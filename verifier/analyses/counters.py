"""Loop counters as numbers along a path: what a merge becomes on each edge, and which branches that decides."""

from __future__ import annotations

from collections.abc import Iterable

from verifier.analyses.rewriting import atoms
from verifier.analyses.sampling import Sampler
from verifier.model.cfg import Edge
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value, add

Numbers = frozenset[tuple[Symbol, int]]
_ROUNDS = 6


class Counters:
    """The counters of one stream that addresses `values` depend on, directly or through later iterations."""

    def __init__(self, stream: Stream, values: Iterable[Value]) -> None:
        self._stream = stream
        self.sampler = Sampler(stream)
        self._objects = self.sampler.objects(list(values))
        self._phis = [phi for block in stream.cfg.reachable for phi in stream.ssa.phis(block).values()]
        self.interest = self._closed(set(self.sampler.counters(values)))
        self._merges: dict[Edge, list[tuple[Symbol, Value, Value]]] = {}

    def starts(self) -> list[Numbers]:
        """Numbers to begin a path with."""
        values = [Value(0, ((symbol, 1),)) for symbol in self.interest]
        found = []
        for sample in self.sampler.samples(values):
            found.append(frozenset((s, v.constant) for s, v in sample.items() if v.constant is not None))
        return list(dict.fromkeys(found))

    def number(self, value: Value, numbers: Numbers) -> tuple[int, ...] | None:
        """The value in each lane, None when something in it has no number."""
        return self.sampler.numbers(value, {**self._objects, **{s: Value(n) for s, n in numbers}})

    def takes(self, edge: Edge, numbers: Numbers) -> bool | None:
        """Whether numbers alone decide that the edge is taken or not."""
        if edge.guard is None:
            return None
        last = self._stream.cfg.blocks[edge.src].end - 1
        predicate = self._stream.evaluator.value(self._stream.ssa.reads[last][edge.guard.reg])
        if not atoms(predicate) & self.interest:
            return None
        lanes = self.number(predicate, numbers)
        if lanes is None or len(set(lanes)) > 1:
            return None
        return bool(lanes[0] & 1) != edge.guard.negated

    def cross(self, edge: Edge, numbers: Numbers) -> Numbers:
        """Numbers in the edge's block: merges take new ones, or none when theirs is not known."""
        merges = self._merges.get(edge)
        if merges is None:
            merges = self._merges[edge] = self._merges_of(edge)
        if not merges:
            return numbers
        found = dict(numbers)
        for symbol, own, incoming in merges:
            lanes = self.number(incoming, numbers)
            new = None if lanes is None or len(set(lanes)) > 1 else self._solve(symbol, own, lanes[0], numbers)
            if new is None:
                found.pop(symbol, None)
            else:
                found[symbol] = new
        return frozenset(found.items())

    def _merges_of(self, edge: Edge) -> list[tuple[Symbol, Value, Value]]:
        """(counter, what the merge is in its terms, what it takes along the edge)."""
        found = []
        for phi in self._stream.ssa.phis(edge.dst).values():
            incoming = (phi.incoming or {}).get(edge.src)
            own = self._stream.evaluator.value(phi)
            symbol = _counter_of(phi, own)
            if incoming is not None and symbol is not None and symbol in self.interest:
                found.append((symbol, own, self._stream.evaluator.value(incoming)))
        return found

    def _solve(self, symbol: Symbol, own: Value, number: int, numbers: Numbers) -> int | None:
        """The counter's number when the merge `own = rest + coefficient * counter` is `number`."""
        coefficient = dict(own.terms)[symbol]
        rest = self.number(add(own, Value(0, ((symbol, coefficient),)), -1), numbers)
        if rest is None or len(set(rest)) > 1 or (number - rest[0]) % coefficient:
            return None
        return (number - rest[0]) // coefficient

    def _closed(self, found: set[Symbol]) -> frozenset[Symbol]:
        for _ in range(_ROUNDS):
            before = len(found)
            for phi in self._phis:
                symbol = _counter_of(phi, self._stream.evaluator.value(phi))
                if symbol in found:
                    incoming = [self._stream.evaluator.value(v) for v in (phi.incoming or {}).values()]
                    found |= self.sampler.counters(incoming)
            if len(found) == before:
                break
        return frozenset(found)


def _counter_of(phi: SsaValue, own: Value) -> Symbol | None:
    """The counter that a merge brings in: its own symbol, or the number of iterations."""
    return next((s for s, _ in own.terms if s.kind in ("phi", "iter") and s.key[1] == phi.id), None)
