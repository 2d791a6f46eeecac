"""Asynchronous operations that complete in groups: which may still be in flight, and how many groups have followed.

A group is closed by a commit; `wait N` returns when all but the N newest groups are complete. For an operation with k
commits after it (its own included), it is complete after `wait N` when k > N; on several paths the smallest k counts.
Source: PTX ISA 9.4, 9.7.17.7.2 "wgmma.wait_group", 9.7.10.28.6 "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from verifier.analyses.flow import EventFlow
from verifier.model.events import Event, Kind

InFlight = dict[int, int]  # index of the operation -> commits since, at least
_CAP = 64


class Groups:
    """Operations of one kind in one stream, their commits and their waits."""

    def __init__(self, flow: EventFlow, operations: Sequence[Event], commit: Kind, wait: Kind) -> None:
        self._flow = flow
        self._index = {event.instr: i for i, event in enumerate(operations)}
        self._commit = commit
        self._wait = wait
        self._entering = self._solve()

    def states(self, block: int) -> Iterator[tuple[int, InFlight]]:
        """(first instruction, what may be in flight from it on) through a block, in order."""
        state = self._entering.get(block, {})
        yield self._flow.cfg.blocks[block].start, state
        for event in self._flow.in_block.get(block, ()):
            state = self._step(event, state)
            yield event.instr + 1, state

    def before(self, event: Event) -> InFlight:
        """What may be in flight just before an event of the stream."""
        found: InFlight = {}
        for start, state in self.states(self._flow.cfg.block_of[event.instr]):
            if start <= event.instr:
                found = state
        return found

    def _solve(self) -> dict[int, InFlight]:
        order = self._flow.cfg.order
        entering: dict[int, InFlight] = {}
        leaving: dict[int, InFlight] = {}
        work = deque(order)
        while work:
            block = work.popleft()
            state = _join([leaving[e.src] for e in self._flow.cfg.predecessors[block] if e.src in leaving])
            entering[block] = state
            for event in self._flow.in_block.get(block, ()):
                state = self._step(event, state)
            if leaving.get(block) != state:
                leaving[block] = state
                work.extend(e.dst for e in self._flow.cfg.successors[block] if e.dst not in work)
        return entering

    def _step(self, event: Event, state: InFlight) -> InFlight:
        if event.instr in self._index:
            return {**state, self._index[event.instr]: 0}
        if event.kind is self._commit and self._flow.in_warp(event):
            return {operation: min(commits + 1, _CAP) for operation, commits in state.items()}
        if event.kind is self._wait and self._flow.in_warp(event):
            newest = self._newest(event)
            if newest is not None:
                return {operation: commits for operation, commits in state.items() if commits <= newest}
        return state

    def _newest(self, wait: Event) -> int | None:
        """N of a wait; None (not known) completes nothing."""
        if wait.number is None:
            return None
        return self._flow.stream.value(wait.instr, wait.number).constant


def _join(states: Sequence[InFlight]) -> InFlight:
    joined: InFlight = {}
    for state in states:
        for operation, commits in state.items():
            joined[operation] = min(commits, joined.get(operation, commits))
    return joined
