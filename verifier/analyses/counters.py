"""Loop counters as numbers along a path: what a merge becomes on each edge, and which branches that decides."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

from verifier.analyses.rewriting import Rewriter, atoms
from verifier.analyses.sampling import Sampler
from verifier.model.cfg import Edge
from verifier.model.events import Event
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value, add

Numbers = frozenset[tuple[Symbol, int]]
_ROUNDS = 40  # chains of merges are shorter
_BROADCASTS = frozenset({"shfl_idx", "first_lane"})
_STATE_LIMIT = 6_000
_REACH_LIMIT = 16
_FREE_RANGE = 4
_FREE_LIMIT = 64


class Counters:
    """The counters of one stream that addresses `values` depend on, directly or through later iterations."""

    def __init__(self, stream: Stream, values: Iterable[Value]) -> None:
        self._stream = stream
        self.sampler = Sampler(stream)
        self._objects = self.sampler.objects()
        self._phis = [phi for block in stream.cfg.reachable for phi in stream.ssa.phis(block).values()]
        self._merges: dict[Edge, list[tuple[Symbol, Value, Value]]] = {}
        self._reaching: dict[int, list[Numbers]] = {}
        self._parts: dict[Value, frozenset[Symbol]] = {}
        self._memo: dict[tuple[Value, Numbers], tuple[int, ...] | None] = {}
        self._opened: dict[Value, Value] = {}
        self.interest = self._closed(set(self._counters_in(values)))

    def reaching(self, event: Event) -> list[Numbers]:
        """Numbers with which control comes to an event from the entry: the first few, by distance."""
        known = self._reaching.get(event.instr)
        if known is None:
            known = self._reaching[event.instr] = self._reach(self._stream.cfg.block_of[event.instr])
        return known

    def _reach(self, goal: int) -> list[Numbers]:
        first: tuple[int, Numbers] = (self._stream.cfg.entry, frozenset())
        seen = {first}
        queue = deque([first])
        found: dict[Numbers, None] = {}
        while queue and len(seen) < _STATE_LIMIT and len(found) < _REACH_LIMIT:
            block, numbers = queue.popleft()
            if block == goal:
                found[numbers] = None
            for edge in self._stream.cfg.successors[block]:
                state = (edge.dst, self.cross(edge, numbers))
                if self.takes(edge, numbers) is not False and state not in seen:
                    seen.add(state)
                    queue.append(state)
        return list(found)

    def number(self, value: Value, numbers: Numbers) -> tuple[int, ...] | None:
        """The value in each lane, None when something in it has no number."""
        value = self._open(value)
        parts = self._parts.get(value)
        if parts is None:
            parts = self._parts[value] = atoms(value) & self.interest
        relevant = frozenset(n for n in numbers if n[0] in parts)
        key = (value, relevant)
        if key not in self._memo:
            known = {**self._objects, **{s: Value(n) for s, n in relevant}}
            self._memo[key] = self.sampler.numbers(value, known)
        return self._memo[key]

    def lacks(self, value: Value, numbers: Numbers) -> bool:
        """Whether a counter that `value` depends on has no number."""
        return bool((atoms(value) & self.interest) - {symbol for symbol, _ in numbers})

    def possible(self, value: Value, numbers: Numbers) -> frozenset[int] | None:
        """What the value can be in any lane; counters without a number may have a small one. None as for `number`."""
        missing = sorted(self._counters_in([value]) - {symbol for symbol, _ in numbers}, key=str)
        found: set[int] = set()
        for choice in itertools.islice(itertools.product(range(_FREE_RANGE), repeat=len(missing)), _FREE_LIMIT):
            lanes = self.number(value, numbers | frozenset(zip(missing, choice, strict=True)))
            if lanes is None:
                return None
            found |= set(lanes)
        return frozenset(found)

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
        """Also the counters that feed one through later iterations, and those that end its loops."""
        for _ in range(_ROUNDS):
            before = len(found)
            headers = set()
            for phi in self._phis:
                if _counter_of(phi, self._stream.evaluator.value(phi)) in found:
                    headers.add(phi.block)
                    incoming = [self._stream.evaluator.value(v) for v in (phi.incoming or {}).values()]
                    found |= self._counters_in(incoming)
            found |= self._ending(headers)
            if len(found) == before:
                break
        return frozenset(found)

    def _ending(self, headers: set[int]) -> frozenset[Symbol]:
        """Counters that the branches out of these loops ask for."""
        cfg = self._stream.cfg
        guards = []
        for loop in cfg.loops:
            if loop.header not in headers:
                continue
            for edge in (e for block in loop.blocks for e in cfg.successors[block]):
                if edge.guard is not None and edge.dst not in loop.blocks:
                    last = cfg.blocks[edge.src].end - 1
                    guards.append(self._stream.evaluator.value(self._stream.ssa.reads[last][edge.guard.reg]))
        return self._counters_in(g for g in guards if atoms(g) == self.sampler.counters([g]))

    def _counters_in(self, values: Iterable[Value]) -> frozenset[Symbol]:
        return self.sampler.counters([self._open(value) for value in values])

    def _open(self, value: Value) -> Value:
        """The value with what was broadcast to the warp put in for the results of shuffles: all lanes pass the same."""
        found = self._opened.get(value)
        if found is None:
            broadcast: dict[Symbol, Value] = {}
            for symbol in atoms(value):
                if symbol.kind == "def" and isinstance(symbol.key[1], int):
                    made = self._stream.ssa.values[symbol.key[1]]
                    if made.assign is not None and made.assign.op in _BROADCASTS and isinstance(made.args[0], SsaValue):
                        broadcast[symbol] = self._open(self._stream.evaluator.value(made.args[0]))
            found = Rewriter(self._stream.evaluator.table, broadcast).value(value) if broadcast else value
            self._opened[value] = found
        return found


def _counter_of(phi: SsaValue, own: Value) -> Symbol | None:
    """The counter that a merge brings in: its own symbol, or the number of iterations."""
    return next((s for s, _ in own.terms if s.kind in ("phi", "iter") and s.key[1] == phi.id), None)
