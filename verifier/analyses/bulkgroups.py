"""Bulk stores of one thread that may not have read their source yet: along paths, with the groups counted.

A store is complete once `wait_group N` leaves at most N groups pending and its own is not among the N newest (PTX ISA
9.4, 9.7.10.28.6.2). Only the issuing thread's commits and waits count, and an uncommitted store is covered by no wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from verifier.analyses.conditions import Facts, conditions_of, dominating_facts
from verifier.analyses.counters import Counters, Numbers
from verifier.analyses.threads import Thread
from verifier.model.cfg import Edge
from verifier.model.events import Event, Kind
from verifier.model.values import Value

UNCOMMITTED = -1
_STATE_LIMIT = 20_000
_GROUP_LIMIT = 64
_FAR = 24  # rounds of a counter; rings are much shorter


class PathLimit(Exception):
    """More paths than the walk may visit: the caller answers unknown."""


class Pending(msgspec.Struct, frozen=True):
    """A store under way: `newer` groups were committed after its own; UNCOMMITTED: its own is still open."""

    newer: int

    def after(self, event: Event, number: int | None) -> Pending | None:
        """What an event of the same thread leaves; None when the store is complete. `number` is N of a wait."""
        if event.kind is Kind.BULK_COMMIT:
            return Pending(min(self.newer + 1, _GROUP_LIMIT))
        if event.kind is Kind.BULK_WAIT and number is not None and self.newer >= number:
            return None
        return self


class _State(msgspec.Struct, frozen=True):
    """At the start of a block, or just after the store when `midway`."""

    block: int
    midway: bool
    pending: Pending
    facts: Facts
    numbers: Numbers
    doubt: bool = False  # a branch around a wait was taken that hangs on a counter without a number


Goal = Callable[[Event, Numbers], bool]


class StoreWalk:
    """Paths of one thread from one bulk store to where it is complete."""

    def __init__(
        self, thread: Thread, store: Event, counters: Counters | None = None, steering: frozenset[Value] = frozenset()
    ) -> None:
        self._thread = thread
        self._flow = thread.flow
        self._store = store
        self._counters = counters
        self._conditions = conditions_of(thread.flow.stream)
        self._steering = steering  # predicates of branches around waits
        self.doubted = False  # only a path that may not exist led to the goal
        self._first: Numbers = frozenset()
        self._parents: dict[_State, _State | None] = {}

    def find(self, goal: Goal, numbers: Numbers = frozenset(), *, leaves: bool = False) -> tuple[Event, ...] | None:
        """A shortest path to an event that meets `goal` while the store is pending: from the store to that event.

        `leaves`: also a path to the thread's exit counts. Raises `PathLimit`.
        """
        block = self._flow.cfg.block_of[self._store.instr]
        facts = dominating_facts(self._conditions, self._flow.stream, block)
        self._first = numbers
        first = _State(block, True, Pending(UNCOMMITTED), facts, numbers)
        self._parents = {first: None}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for pending, last in self._through(state, goal):
                if pending is None and state.doubt:
                    self.doubted = True
                    break
                if pending is None:
                    return self._trace(state, last)
                for edge in self._flow.cfg.successors[state.block]:
                    if not self._takes(edge, state):
                        continue
                    if leaves and edge.dst == self._flow.cfg.exit and not self._aborts(state.block):
                        return self._trace(state, self._exit_of(state.block))
                    following = self._follow(edge, state, pending)
                    if following not in self._parents and not self._far(following):
                        self._parents[following] = state
                        queue.append(following)
            if len(self._parents) > _STATE_LIMIT:
                raise PathLimit
        return None

    def _through(self, state: _State, goal: Goal) -> Iterator[tuple[Pending | None, Event | None]]:
        """(what is pending at the end of the block, None) for each outcome of guards, or (None, goal event)."""
        possible = {state.pending}
        for event in self._events(state):
            runs = self._thread.runs(event)
            if goal(event, state.numbers):
                yield None, event
                return
            if runs is False:
                continue
            after = {p.after(event, self._number(event)) for p in possible}
            kept = {p for p in after if p is not None}
            possible = kept if runs else kept | possible
            if not possible:
                return
        for pending in possible:
            yield pending, None

    def _events(self, state: _State) -> list[Event]:
        events = self._flow.in_block.get(state.block, [])
        return [e for e in events if e.instr > self._store.instr] if state.midway else events

    def _number(self, event: Event) -> int | None:
        if event.number is None:
            return None
        return self._flow.stream.value(event.instr, event.number).constant

    def _takes(self, edge: Edge, state: _State) -> bool:
        if not self._thread.takes(edge) or self._conditions.takes(edge, state.facts) is False:
            return False
        return self._counters is None or self._counters.takes(edge, state.numbers) is not False

    def _follow(self, edge: Edge, state: _State, pending: Pending) -> _State:
        numbers = state.numbers if self._counters is None else self._counters.cross(edge, state.numbers)
        doubt = state.doubt or self._is_doubtful(edge, state)
        return _State(edge.dst, False, pending, self._conditions.follow(edge, state.facts), numbers, doubt)

    def _is_doubtful(self, edge: Edge, state: _State) -> bool:
        """Whether a counter would decide a branch around a wait if its number were known."""
        value = self._conditions.guard(edge)
        if value is None or self._counters is None or value not in self._steering:
            return False
        return self._counters.lacks(value, state.numbers) and self._conditions.takes(edge, state.facts) is None

    def _far(self, state: _State) -> bool:
        """Whether counters have come so far from the store that whatever is to be seen was seen on the way."""
        return any(abs(n) > _FAR and dict(self._first).get(s, 0) + _FAR < abs(n) for s, n in state.numbers)

    def _aborts(self, block: int) -> bool:
        last = self._flow.cfg.blocks[block].end - 1
        return self._flow.stream.function.instrs[last].opcode.startswith("trap")

    def _exit_of(self, block: int) -> Event | None:
        return next((e for e in reversed(self._flow.in_block.get(block, [])) if e.kind is Kind.EXIT), None)

    def _trace(self, state: _State, last: Event | None) -> tuple[Event, ...]:
        """Events of the thread from the store to `last`, which is in the block of `state` (None: at its end)."""
        states = [state]
        while (parent := self._parents[states[-1]]) is not None:
            states.append(parent)
        events = [e for s in reversed(states[1:]) for e in self._events(s)]
        events += [e for e in self._events(state) if last is None or e.instr < last.instr]
        ran = [e for e in events if self._thread.runs(e) is not False]
        return (self._store, *ran) if last is None else (self._store, *ran, last)
