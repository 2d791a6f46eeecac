"""Events of one stream in control-flow order, and the two questions most proofs ask of them.

`may_reach` is a forward gen/kill analysis over bit sets (which of these may still be pending here?); `find_path` gives
the path that a witness prints. An event under a guard that may not hold never kills, unless what it would kill ran
under the very same guard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec

from verifier.model.cfg import Cfg, Edge
from verifier.model.events import Event
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.model.values import Value

Test = Callable[[Event], bool]


class EventFlow:
    """The events that a stream can execute, block by block."""

    def __init__(self, stream: Stream, events: Sequence[Event]) -> None:
        self.stream = stream
        self.cfg = stream.cfg
        block_of = stream.cfg.block_of
        self.events = [e for e in events if stream.runs(e)]
        self.in_block: dict[int, list[Event]] = {}
        for event in self.events:
            self.in_block.setdefault(block_of[event.instr], []).append(event)

    def select(self, test: Test) -> list[Event]:
        return [event for event in self.events if test(event)]

    def certain(self, event: Event) -> bool:
        """Whether the event runs in all lanes whenever control passes it."""
        return self.stream.truth(event.instr) is True

    def same_guard(self, a: Event, b: Event) -> bool:
        """Whether two events run under the very same predicate value."""
        return self._guards(a) == self._guards(b)

    def _guards(self, event: Event) -> list[tuple[int, bool]]:
        reads = self.stream.ssa.reads[event.instr]
        return [(reads[g.reg].id, g.negated) for g in self.stream.function.instrs[event.instr].guards]

    @cached_property
    def lane_skips(self) -> frozenset[Edge]:
        """Edges that only some lanes take, past code that the other lanes of the warp run (`if (elected) {...}`).

        Seen as a warp, the code is always run: a path along such an edge is a lane's, not the warp's.
        """
        skips = set()
        for block in self.cfg.reachable:
            edges = self.cfg.successors[block]
            if len(edges) == 2 and edges[0].guard is not None and self._splits_lanes(edges[0]):
                for edge, other in ((edges[0], edges[1]), (edges[1], edges[0])):
                    if self._rejoins(other.dst, edge.dst):
                        skips.add(edge)
        return frozenset(skips)

    def _splits_lanes(self, edge: Edge) -> bool:
        assert edge.guard is not None
        last = self.cfg.blocks[edge.src].end - 1
        return self._is_split(self.stream.ssa.reads[last][edge.guard.reg])

    def _is_split(self, predicate: SsaValue) -> bool:
        """Whether a predicate is true in some lanes and false in others, whatever the inputs."""
        value = self.stream.evaluator.value(predicate)
        if isinstance(value.lanes, tuple):
            return not value.terms
        symbol = value.base
        if symbol is None:
            return False
        if symbol.kind == "not" and isinstance(symbol.key[2], Value):
            symbol = symbol.key[2].base
        return symbol is not None and symbol.kind == "elect"

    def _rejoins(self, block: int, join: int) -> bool:
        """Whether every way on from `block` comes to `join`."""
        parents = self.cfg.post_dominator
        while block != join:
            parent = parents.get(block, block)
            if parent == block:
                return False
            block = parent
        return True

    def in_warp(self, event: Event) -> bool:
        """Whether the event runs in at least one lane whenever the warp passes it."""
        reads = self.stream.ssa.reads[event.instr]
        guards = self.stream.function.instrs[event.instr].guards
        return self.certain(event) or all(self._is_split(reads[g.reg]) for g in guards)

    @cached_property
    def _warp_cfg(self) -> Cfg:
        return self.cfg.restrict(e for e in self.cfg.edges if e not in self.lane_skips)

    def always_before(self, earlier: Event, later: Event) -> bool:
        """Whether the warp has run `earlier` on every path from the entry to `later`."""
        if not self.in_warp(earlier):
            return False
        first, last = self.cfg.block_of[earlier.instr], self.cfg.block_of[later.instr]
        return earlier.instr < later.instr if first == last else self._warp_cfg.dominates(first, last)

    def may_reach(
        self, sources: Sequence[Event], kills: Test, without: frozenset[Edge] = frozenset()
    ) -> dict[int, int]:
        """For each event (by instruction), the bit set of `sources` that some kill-free path brings to just before it.

        Bit i stands for `sources[i]`; paths along the edges `without` do not count.
        """
        bits = {event.instr: 1 << i for i, event in enumerate(sources)}
        killed = {event.instr: self._kill_mask(event, sources) for event in self.events if kills(event)}
        order = self.cfg.order
        at_end: dict[int, int] = dict.fromkeys(order, 0)
        before: dict[int, int] = {}
        work = deque(order)
        queued = set(order)
        while work:
            block = work.popleft()
            queued.discard(block)
            state = 0
            for edge in self.cfg.predecessors[block]:
                if edge not in without:
                    state |= at_end.get(edge.src, 0)
            for event in self.in_block.get(block, ()):
                before[event.instr] = state
                state = state & ~killed.get(event.instr, 0) | bits.get(event.instr, 0)
            if state != at_end[block]:
                at_end[block] = state
                for edge in self.cfg.successors[block]:
                    if edge.dst not in queued and edge.dst in at_end:
                        queued.add(edge.dst)
                        work.append(edge.dst)
        return before

    def _kill_mask(self, event: Event, sources: Sequence[Event]) -> int:
        if self.certain(event):
            return -1
        return sum(1 << i for i, source in enumerate(sources) if self.same_guard(event, source))

    def find_path(self, source: Event | None, goal: Test, stop: Test) -> tuple[Event, ...] | None:
        """A shortest event path from just after `source` (None: the entry) to the first event that meets `goal`.

        No event on the way meets `stop` with certainty. The result ends with the goal event and starts with `source`.
        None when there is no such path.
        """
        start = self.cfg.entry if source is None else self.cfg.block_of[source.instr]
        first = _Node(start, source is not None)
        parents: dict[_Node, _Node | None] = {first: None}
        queue = deque([first])
        while queue:
            node = queue.popleft()
            passed = self._scan(node, source, goal, stop)
            if isinstance(passed, Event):
                return self._trace(parents, node, source, passed)
            if not passed:
                continue
            for edge in self.cfg.successors[node.block]:
                following = _Node(edge.dst, False)
                if following not in parents:
                    parents[following] = node
                    queue.append(following)
        return None

    def _scan(self, node: _Node, source: Event | None, goal: Test, stop: Test) -> Event | bool:
        """The goal event if the block holds one, False if the path ends here, True if it goes on."""
        for event in self._events_of(node, source):
            if goal(event):
                return event
            if stop(event) and (self.certain(event) or (source is not None and self.same_guard(event, source))):
                return False
        return True

    def _events_of(self, node: _Node, source: Event | None) -> list[Event]:
        events = self.in_block.get(node.block, [])
        if not node.midway or source is None:
            return events
        return [event for event in events if event.instr > source.instr]

    def _trace(
        self, parents: Mapping[_Node, _Node | None], last: _Node, source: Event | None, goal: Event
    ) -> tuple[Event, ...]:
        nodes: list[_Node] = []
        node: _Node | None = last
        while node is not None:
            nodes.append(node)
            node = parents[node]
        steps = [] if source is None else [source]
        for node in reversed(nodes[1:]):
            steps += self._events_of(node, source)
        steps += [event for event in self._events_of(last, source) if event.instr < goal.instr]
        return (*steps, goal)


class _Node(msgspec.Struct, frozen=True):
    """A block of a path; `midway` for the source's block entered just after the source."""

    block: int
    midway: bool
