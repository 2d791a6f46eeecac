"""Which tensor maps a warp has acquired when it uses one, on every path.

The walk keeps, along each path, the addresses that were acquired, as expressions over merges and loaded words. An
acquire of an earlier iteration counts exactly as long as the address is known to be the same (`pathfacts`). A path on
which an index equals a number that is none (the -1 of "no map yet") is set apart: whether it can be that number is not
in the code, unless its range is (`ranges`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from verifier.analyses.conditions import conditions_of
from verifier.analyses.flow import EventFlow
from verifier.analyses.pathfacts import NOTHING, Known, PathFacts
from verifier.analyses.protocol.slicing import control_dependence
from verifier.analyses.ranges import WORD, Ranges
from verifier.analyses.rewriting import atoms
from verifier.analyses.visibility import acquires_map, names_map
from verifier.isa.proxies import MAP_BYTES
from verifier.model.cfg import Edge
from verifier.model.events import Event, Kind
from verifier.model.program import Reg
from verifier.model.values import Symbol, Value, add

_STATE_LIMIT = 20_000
Changes = Mapping[int, tuple[Value, ...] | None]  # instruction -> maps that may have changed once it has run; None: all


class PathLimit(Exception):
    """More paths than the walk may visit: the caller answers unknown."""


class _State(msgspec.Struct, frozen=True):
    block: int
    acquired: frozenset[Value]
    known: Known
    odd: bool = False  # on this path an index is a number that stands for none


_After = tuple[frozenset[Value], Known, tuple[Event, ...]]


def map_address(flow: EventFlow, event: Event) -> Value:
    """Address of the tensor map that a bulk tensor copy or prefetch, an acquire or a change of a map names."""
    expr = event.source if event.kind in (Kind.BULK_LOAD, Kind.BULK_PREFETCH) else event.address
    assert expr is not None
    return flow.stream.address(event.instr, expr)


class AcquireWalk:
    """One walk over a stream, from its entry.

    `changes` are events after which earlier acquires no longer count; `adopted` are maps that other warps of the CTA
    have acquired when this one passes a barrier with them.
    """

    def __init__(self, flow: EventFlow, changes: Changes, adopted: Mapping[int, frozenset[Value]]) -> None:
        self._flow = flow
        self._conditions = conditions_of(flow.stream)
        self._changes = changes
        self._adopted = adopted
        self._facts = PathFacts(flow.stream, self._of_interest())
        parts = {symbol for symbol in self._addresses() if symbol.kind != "sym"}
        self._indices = self._facts.closed(set(parts)) | parts
        self._ranges = Ranges(flow)
        self._parents: dict[_State, tuple[_State, tuple[Event, ...]] | None] = {}
        self.bare: dict[int, tuple[Event, ...]] = {}  # use -> events of a path that reaches it without an acquire
        self.odd: dict[int, tuple[Event, ...]] = {}  # the same for paths on which an index is a number that is none
        self.at_sync: dict[int, frozenset[Value]] = {}  # barrier of the CTA -> what is acquired there on every path

    def run(self) -> None:
        """Visit every path. Raises `PathLimit` or `rewriting.TooDeep` when that is too much."""
        first = _State(self._flow.cfg.entry, frozenset(), NOTHING)
        self._parents[first] = None
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for acquired, known, seen in self._through(state):
                for edge in self._flow.cfg.successors[state.block]:
                    following = self._follow(edge, acquired, known, state.odd)
                    if following is not None and following not in self._parents:
                        self._parents[following] = (state, seen)
                        queue.append(following)
            if len(self._parents) > _STATE_LIMIT:
                raise PathLimit

    def _through(self, state: _State) -> Iterator[_After]:
        """What holds at the end of the block: once for each outcome of the guards in it."""
        events = [e for e in self._flow.in_block.get(state.block, ()) if self._matters(e)]
        work: list[tuple[int, _After]] = [(0, (state.acquired, state.known, ()))]
        while work:
            position, (acquired, known, seen) = work.pop()
            if position == len(events):
                yield acquired, known, seen
                continue
            event = events[position]
            for runs, learned in self._outcomes(event, known):
                after = self._step(state, event, (acquired, learned, seen)) if runs else acquired
                work.append((position + 1, (after, learned, (*seen, event) if runs else seen)))

    def _matters(self, event: Event) -> bool:
        return event.kind is Kind.CTA_SYNC or acquires_map(event) or names_map(event) or event.instr in self._changes

    def _outcomes(self, event: Event, known: Known) -> list[tuple[bool, Known]]:
        """(whether the event runs, what is known then). What chosen lanes run, the warp runs."""
        guards = self._flow.stream.function.instrs[event.instr].guards
        if self._flow.certain(event) or len(guards) != 1:
            return [(True, known)]
        predicate = self._flow.stream.value(event.instr, Reg(guards[0].reg))
        if not isinstance(predicate.lanes, int) or any(s.kind == "elect" for s in atoms(predicate)):
            return [(True, known)]
        outcomes = [(runs, self._facts.learn(predicate, runs != guards[0].negated, known)) for runs in (True, False)]
        return [(runs, learned) for runs, learned in outcomes if learned is not None]

    def _step(self, state: _State, event: Event, so_far: _After) -> frozenset[Value]:
        """The acquired addresses after an event; notes a use of one that is not among them."""
        acquired, known, seen = so_far
        if event.instr in self._changes:
            changed = self._changes[event.instr]
            acquired = frozenset(v for v in acquired if changed is not None and all(apart(v, c) for c in changed))
        if event.kind is Kind.CTA_SYNC:
            self.at_sync[event.instr] = self.at_sync.get(event.instr, acquired) & acquired
            return acquired | self._adopted.get(event.instr, frozenset())
        if not acquires_map(event) and not names_map(event):
            return acquired
        address = map_address(self._flow, event)
        names = frozenset((address, self._facts.rewrite(address, known)))
        if acquires_map(event):
            return acquired | names
        found = self.odd if state.odd else self.bare
        if event.instr not in found and not names & acquired:
            found[event.instr] = (*self._trace(state), *seen)
        return acquired

    def _trace(self, state: _State) -> tuple[Event, ...]:
        events: list[Event] = []
        link = self._parents[state]
        while link is not None:
            state, seen = link
            events += reversed(seen)
            link = self._parents[state]
        return tuple(reversed(events))

    def _follow(self, edge: Edge, acquired: frozenset[Value], known: Known, odd: bool) -> _State | None:
        """The state in which the edge's block is entered; None when what is known rules the edge out."""
        predicate = self._conditions.guard(edge)
        if predicate is not None and edge.guard is not None:
            truth = not edge.guard.negated
            learned = self._facts.learn(predicate, truth, known)
            if learned is None:
                return None
            for index, bits in self._facts.nones(predicate, truth, known, self._indices):
                if bits == WORD and self._ranges.never_negative(index):
                    return None
                odd = True
            acquired, known = self._facts.equal(predicate, truth, acquired), learned
        acquired = frozenset(new for _, new in self._facts.cross(edge, acquired))
        return _State(edge.dst, acquired, self._facts.cross_known(edge, known), odd)

    def _addresses(self) -> set[Symbol]:
        events = (e for e in self._flow.events if acquires_map(e) or names_map(e))
        return {symbol for event in events for symbol in atoms(map_address(self._flow, event))}

    def _of_interest(self) -> set[Symbol]:
        """What the addresses of maps are made of, and what decides whether one is acquired or used."""
        found = self._addresses()
        depends = control_dependence(self._flow.cfg)
        for event in self._flow.events:
            if not (acquires_map(event) or names_map(event)):
                continue
            for guard in self._flow.stream.function.instrs[event.instr].guards:
                found |= atoms(self._flow.stream.value(event.instr, Reg(guard.reg)))
            if acquires_map(event):
                for block in depends.get(self._flow.cfg.block_of[event.instr], ()):
                    found |= self._asked_at(block)
        return found

    def _asked_at(self, block: int) -> set[Symbol]:
        guards = [self._conditions.guard(edge) for edge in self._flow.cfg.successors[block]]
        return {symbol for guard in guards if guard is not None for symbol in atoms(guard)}


def apart(a: Value, b: Value) -> bool:
    """Whether two addresses are known to name different maps."""
    difference = add(a, b, -1).constant
    return difference is not None and abs(difference) >= MAP_BYTES
