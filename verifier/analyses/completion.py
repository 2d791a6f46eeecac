"""Which try_wait results steer the code, and what runs when a wait is taken to have failed.

A `try_wait` may come back false although the phase will complete: only a path on which its result was seen true has
observed the completion. The walk below follows every path from a wait as if it had failed: branches on its result (also
carried through merges into a later iteration, as a peek is) take the failing side. It ends at the next wait on the same
barrier, which is a retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from verifier.analyses.flow import EventFlow
from verifier.model.cfg import Edge
from verifier.model.evaluator import Evaluator
from verifier.model.events import Event
from verifier.model.ssa import SsaValue
from verifier.model.values import Value


class _State(msgspec.Struct, frozen=True):
    """A block entered with these SSA values known false; `credit`: an earlier completion still covers data."""

    block: int
    false: frozenset[int]
    credit: bool


class FailedWait:
    """Follows the paths of one stream on which one wait has failed."""

    def __init__(self, flow: EventFlow, wait: Event, is_retry: Callable[[Event], bool], uses: Callable[[Event], bool]):
        self._flow = flow
        self._wait = wait
        self._is_retry = is_retry
        self._uses = uses
        written = flow.stream.ssa.writes[wait.instr]
        self.result: SsaValue | None = next((written[r] for r in wait.registers if r in written), None)

    @property
    def result_is_read(self) -> bool:
        """Whether anything at all depends on the result."""
        return self.result is not None and self._reaches_a_reader(self.result)

    def _reaches_a_reader(self, value: SsaValue) -> bool:
        ssa = self._flow.stream.ssa
        if ssa.users.get(value.id):
            return True
        merges = (phi for block in self._flow.cfg.reachable for phi in ssa.phis(block).values())
        return any(value in (phi.incoming or {}).values() and ssa.users.get(phi.id) for phi in merges)

    def first_use(self, credit: bool) -> tuple[Event, ...] | None:
        """Waits and the use on a path that reaches guarded data though the wait failed; None when there is none.

        `credit` says that an earlier completion of the same barrier covers uses until the result is tested.
        """
        assert self.result is not None
        start = _State(self._flow.cfg.block_of[self._wait.instr], frozenset({self.result.id}), credit)
        seen = {start}
        queue = deque([(start, True)])
        while queue:
            state, midway = queue.popleft()
            found = self._scan(state, midway)
            if isinstance(found, Event):
                return (self._wait, found)
            if found:
                for following in self._successors(state):
                    if following not in seen and len(seen) < _STATE_LIMIT:
                        seen.add(following)
                        queue.append((following, False))
        return None

    def _scan(self, state: _State, midway: bool) -> Event | bool:
        for event in self._flow.in_block.get(state.block, ()):
            if midway and event.instr <= self._wait.instr:
                continue
            if self._is_retry(event) and self._flow.certain(event):
                return False
            if self._uses(event) and not state.credit:
                return event
        return True

    def _successors(self, state: _State) -> list[_State]:
        following = []
        for edge in self._flow.cfg.successors[state.block]:
            verdict = self._holds(edge, state.false)
            if verdict is False:
                continue
            credit = state.credit and verdict is not True
            following.append(_State(edge.dst, self._carried(edge, state.false), credit))
        return following

    def _holds(self, edge: Edge, false: frozenset[int]) -> bool | None:
        """Whether the edge is taken given the failed results: True or False when they decide it, else None."""
        if edge.guard is None:
            return None
        stream = self._flow.stream
        last = stream.cfg.blocks[edge.src].end - 1
        predicate = stream.ssa.reads[last][edge.guard.reg]
        if predicate.id in false:
            return edge.guard.negated
        value = _Assuming(stream.evaluator, false).value(predicate)
        plain = stream.evaluator.value(predicate).constant
        if value.constant is None or plain is not None:
            return None
        return bool(value.constant & 1) != edge.guard.negated

    def _carried(self, edge: Edge, false: frozenset[int]) -> frozenset[int]:
        """Results known false after the edge: merges that take one over, and those still live."""
        phis = self._flow.stream.ssa.phis(edge.dst).values()
        taken = {p.id for p in phis if p.incoming and (v := p.incoming.get(edge.src)) is not None and v.id in false}
        dropped = {p.id for p in phis} - taken
        return (false | taken) - dropped


_STATE_LIMIT = 20_000


class _Assuming(Evaluator):
    """The stream's evaluator, with some predicates assumed false."""

    def __init__(self, base: Evaluator, false: frozenset[int]) -> None:
        super().__init__(base.table, base.context, base.aligns)
        self.feasible = base.feasible
        self.known = {**base.known, **{id_: Value(0) for id_ in false}}
