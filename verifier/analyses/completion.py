"""Which try_wait results steer the code, and what runs when a wait is taken to have failed.

A `try_wait` may come back false although the phase will complete: only a path on which its result was seen true has
observed the completion. The walk below follows every path from a wait as if it had failed: branches on its result (also
carried through merges into a later iteration, as a peek is) take the failing side. It ends at the next wait on the same
barrier, which is a retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property

import msgspec

from verifier.analyses.conditions import Facts, conditions_of, dominating_facts
from verifier.analyses.flow import EventFlow
from verifier.model.cfg import Edge
from verifier.model.events import Event
from verifier.model.ssa import SsaValue
from verifier.model.values import Symbol

_STATE_LIMIT = 20_000


class PathLimit(Exception):
    """More paths than the walk may visit: the caller answers unknown."""


class _State(msgspec.Struct, frozen=True):
    """A block entered with some facts; `credit`: an earlier completion still covers uses of the data."""

    block: int
    facts: Facts
    credit: bool


def result_of(flow: EventFlow, wait: Event) -> SsaValue | None:
    """The predicate that a wait writes."""
    written = flow.stream.ssa.writes[wait.instr]
    return next((written[r] for r in wait.registers if r in written), None)


def result_is_read(flow: EventFlow, wait: Event) -> bool:
    """Whether any instruction depends on the result of a wait, through any chain of merges."""
    value = result_of(flow, wait)
    if value is None:
        return False
    ssa = flow.stream.ssa
    merges = [phi for block in flow.cfg.reachable for phi in ssa.phis(block).values()]
    carriers = {value.id}
    grown = True
    while grown:
        if any(ssa.users.get(id_) for id_ in carriers):
            return True
        more = {p.id for p in merges if p.incoming and any(v.id in carriers for v in p.incoming.values())}
        grown = not more <= carriers
        carriers |= more
    return False


class FailedWait:
    """Follows the paths of one stream on which one wait has failed."""

    def __init__(self, flow: EventFlow, wait: Event, is_retry: Callable[[Event], bool], uses: Callable[[Event], bool]):
        self._flow = flow
        self.wait = wait
        self._is_retry = is_retry
        self._uses = uses
        self.result = result_of(flow, wait)

    @cached_property
    def covered(self) -> bool:
        """Whether every path from the entry to this wait passes another wait on the same barrier."""

        def scan(block: int, _midway: bool) -> bool | None:
            for event in self._flow.in_block.get(block, ()):
                if event is self.wait:
                    return True
                if self._is_retry(event):
                    return False
            return None

        return not _walk(self._flow, _Start(self._flow.cfg.entry, frozenset(), False), scan)

    def first_use(self, credit: bool) -> Event | None:
        """A use of guarded data that a path reaches though the wait failed; None when there is none.

        `credit` says that an earlier completion of the same barrier covers uses until the result is tested.
        Raises PathLimit when there are too many paths to tell.
        """
        stream = self._flow.stream
        block = self._flow.cfg.block_of[self.wait.instr]
        symbol = stream.evaluator.value(self.result).base if self.result is not None else None
        known = dominating_facts(conditions_of(stream), stream, block)
        start = _State(block, known | _failed(symbol), credit)
        seen = {start}
        queue = deque([(start, True)])
        while queue:
            state, midway = queue.popleft()
            found = self._scan(state, midway)
            if isinstance(found, Event):
                return found
            if found:
                for following in self._successors(state):
                    if following not in seen:
                        seen.add(following)
                        queue.append((following, False))
            if len(seen) > _STATE_LIMIT:
                raise PathLimit
        return None

    def _scan(self, state: _State, midway: bool) -> Event | bool:
        for event in self._flow.in_block.get(state.block, ()):
            if midway and event.instr <= self.wait.instr:
                continue
            if self._is_retry(event) and self._flow.certain(event):
                return False
            if not state.credit and self._uses(event):
                return event
        return True

    def _successors(self, state: _State) -> list[_State]:
        conditions = conditions_of(self._flow.stream)
        following = []
        for edge in self._flow.cfg.successors[state.block]:
            taken = conditions.takes(edge, state.facts)
            if taken is False:
                continue
            credit = state.credit and not self._tests_result(edge)
            following.append(_State(edge.dst, conditions.follow(edge, state.facts), credit))
        return following

    def _tests_result(self, edge: Edge) -> bool:
        """Whether the branch asks for the result of this wait, directly or through merges."""
        value = conditions_of(self._flow.stream).guard(edge)
        return value is not None and any(symbol in self._carriers for symbol, _ in value.terms)

    @cached_property
    def _carriers(self) -> frozenset[Symbol]:
        stream = self._flow.stream
        own = stream.evaluator.value(self.result).base if self.result is not None else None
        found = {own} if own is not None else set()
        grown = True
        while grown:
            grown = False
            for block in self._flow.cfg.reachable:
                for phi in stream.ssa.phis(block).values():
                    symbol = stream.evaluator.value(phi).base
                    feeding = {stream.evaluator.value(v).base for v in (phi.incoming or {}).values()}
                    if symbol is not None and symbol not in found and feeding & found:
                        found.add(symbol)
                        grown = True
        return frozenset(found)


class _Start(msgspec.Struct, frozen=True):
    block: int
    facts: Facts
    midway: bool


def _walk(flow: EventFlow, start: _Start, scan: Callable[[int, bool], bool | None]) -> bool:
    """Whether some path that facts allow reaches a block for which `scan` is True; False ends a path, None goes on."""
    conditions = conditions_of(flow.stream)
    seen = {(start.block, start.facts)}
    queue = deque([(start.block, start.facts, start.midway)])
    while queue:
        block, facts, midway = queue.popleft()
        verdict = scan(block, midway)
        if verdict is not None:
            if verdict:
                return True
            continue
        for edge in flow.cfg.successors[block]:
            if conditions.takes(edge, facts) is not False:
                state = (edge.dst, conditions.follow(edge, facts))
                if state not in seen:
                    seen.add(state)
                    queue.append((*state, False))
        if len(seen) > _STATE_LIMIT:
            raise PathLimit
    return False


def _failed(symbol: Symbol | None) -> Facts:
    return frozenset() if symbol is None else frozenset({(symbol, 0)})
