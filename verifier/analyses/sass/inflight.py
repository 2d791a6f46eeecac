"""Which TMEM loads may still be in flight at an instruction, by the scoreboards alone.

`LDTM` delivers in order, and ptxas relies on it: of a row of loads only the last may name a scoreboard, and an older
load's own scoreboard stays unwaited when a younger one's is waited for. So a load is complete as soon as one scoreboard
is zero that the load itself, or a younger load, releases. Along a path a load is described by the set of those
scoreboards; a wait for any of them completes it. Waits count on instructions that are predicated off, too.

The state of one load at one place is the set of all such sets, over all paths: 64 of them, one bit each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property

import msgspec

from verifier.analyses.completion import PathLimit
from verifier.analyses.conditions import Facts, conditions_of, dominating_facts
from verifier.analyses.flow import EventFlow
from verifier.analyses.sass.controls import Controls
from verifier.model.events import Event, Kind

_SETS = 64
_PATH_LIMIT = 20_000

# For each wait mask: the sets of scoreboards that it does not complete.
_KEPT = [sum(1 << owned for owned in range(_SETS) if not owned & mask) for mask in range(_SETS)]
_HAVING = [sum(1 << owned for owned in range(_SETS) if owned >> n & 1) for n in range(6)]


def _with(states: int, scoreboard: int) -> int:
    """The sets after a younger load with this scoreboard."""
    having = _HAVING[scoreboard]
    return (states & having) | (states & ~having) << (1 << scoreboard)


class Pending(msgspec.Struct, frozen=True):
    """`load` may be in flight at the instruction asked about; `scoreboards`: a wait for any of these would complete it
    on some path (0: no scoreboard would)."""

    load: Event
    scoreboards: int


class Completion(msgspec.Struct, frozen=True):
    """Instruction `instr` completes a load by waiting for the scoreboards of `mask`."""

    instr: int
    mask: int


class _Trace(msgspec.Struct, frozen=True):
    """What becomes of one load: its state at each sink, after the sink's own wait, and what completes it (instruction
    to mask)."""

    states: dict[int, int]
    completions: dict[int, int]


class InFlight:
    """TMEM loads of one stream and how far they may be outstanding. `sinks` are the places asked about."""

    def __init__(self, flow: EventFlow, controls: Controls, sinks: Sequence[Event]) -> None:
        self._flow = flow
        self._controls = controls
        self.loads = flow.select(lambda e: e.kind is Kind.TMEM_LOAD)
        self._sinks = frozenset(sink.instr for sink in sinks)
        self._issues = {load.instr: load for load in self.loads}
        self._traces: dict[int, _Trace] = {}

    @cached_property
    def _issued(self) -> dict[int, int]:
        return self._flow.may_reach(self.loads, lambda e: False)

    def before(self, sink: Event) -> list[Event]:
        """Loads that some path brings to `sink`."""
        reached = self._issued.get(sink.instr, 0)
        return [load for i, load in enumerate(self.loads) if reached >> i & 1]

    def pending(self, sink: Event) -> list[Pending]:
        """Loads that may be in flight when `sink` acts, its own wait included."""
        found = []
        for load in self.before(sink):
            states = self._trace(load).states.get(sink.instr, 0)
            if states:
                found.append(Pending(load, _union(states)))
        return found

    def completions(self, load: Event) -> tuple[Completion, ...]:
        """Instructions that complete `load` on some path, in the order of the code."""
        return tuple(Completion(instr, mask) for instr, mask in sorted(self._trace(load).completions.items()))

    def path(self, load: Event, sink: Event, around: bool = False) -> bool:
        """Whether branches that agree with each other allow a path on which `load` is in flight at `sink`.

        With `around`, only paths that go round a loop count. Raises PathLimit when there are too many paths to tell.
        """
        return _Walk(self, self._flow, load, sink, around).found()

    def _trace(self, load: Event) -> _Trace:
        trace = self._traces.get(load.instr)
        if trace is None:
            trace = self._traces[load.instr] = self._follow(load)
        return trace

    @cached_property
    def _steps(self) -> dict[int, list[int]]:
        """Per block, the instructions that wait, load or are asked about."""
        waits, cfg = self._controls.waits, self._flow.cfg
        return {
            block: [
                index
                for index in range(cfg.blocks[block].start, cfg.blocks[block].end)
                if waits[index] or index in self._issues or index in self._sinks
            ]
            for block in cfg.reachable
        }

    def steps(self, block: int, start: int | None = None) -> list[int]:
        """The instructions of a block that matter, from `start` on."""
        steps = self._steps[block]
        return steps if start is None else [index for index in steps if index >= start]

    def _follow(self, load: Event) -> _Trace:
        cfg = self._flow.cfg
        trace = _Trace({}, {})
        at_entry: dict[int, int] = {}
        start = cfg.block_of[load.instr]
        work: deque[tuple[int, bool]] = deque([(start, True)])
        while work:
            block, midway = work.popleft()
            steps = self.steps(block, load.instr if midway else None)
            state = self._run(steps, load, 0 if midway else at_entry[block], trace)
            for edge in cfg.successors[block] if state else ():
                known = at_entry.get(edge.dst, 0)
                if state & ~known:
                    at_entry[edge.dst] = known | state
                    work.append((edge.dst, False))
        return trace

    def _run(self, steps: Sequence[int], load: Event, state: int, trace: _Trace) -> int:
        """State of `load` behind `steps`."""
        for index in steps:
            wait = self._controls.waits[index]
            left = state & _KEPT[wait]
            if left != state:
                used = _union(state & ~left) & wait
                trace.completions[index] = trace.completions.get(index, 0) | used
                state = left
            if state and index in self._sinks:
                trace.states[index] = trace.states.get(index, 0) | state
            if index in self._issues:
                state = self.issue(state, index, load)
        return state

    def issue(self, state: int, index: int, load: Event) -> int:
        """State of `load` after the TMEM load at `index` is issued, which may be itself."""
        scoreboard = self._controls.writes[index]
        younger = state if scoreboard is None else _with(state, scoreboard)
        if not self._flow.certain(self._issues[index]):
            younger |= state
        if index == load.instr:
            younger |= 1 << (0 if scoreboard is None else 1 << scoreboard)
        return younger

    def wait(self, state: int, index: int) -> int:
        """State after what the instruction at `index` waits for."""
        return state & _KEPT[self._controls.waits[index]]

    def issues(self, index: int) -> bool:
        return index in self._issues


def _union(states: int) -> int:
    """Scoreboards that occur in some of the sets."""
    return sum(1 << n for n in range(6) if states & _HAVING[n])


class _Node(msgspec.Struct, frozen=True):
    """A block entered with a state and facts; `counts`: what is found from here on counts."""

    block: int
    state: int
    facts: Facts
    counts: bool


class _Walk:
    """Follows single paths from a load, with what their branches imply."""

    def __init__(self, inflight: InFlight, flow: EventFlow, load: Event, sink: Event, around: bool) -> None:
        self._in = inflight
        self._flow = flow
        self._around = around
        self._load = load
        self._sink = sink

    def found(self) -> bool:
        stream = self._flow.stream
        conditions = conditions_of(stream)
        start = self._flow.cfg.block_of[self._load.instr]
        first = _Node(start, 0, dominating_facts(conditions, stream, start), not self._around)
        seen = {first}
        work = deque([(first, True)])
        while work:
            node, midway = work.popleft()
            state = self._through(node, midway)
            if state is None:
                return True
            if not state:
                continue
            for edge in self._flow.cfg.successors[node.block]:
                if conditions.takes(edge, node.facts) is False:
                    continue
                counts = node.counts or self._flow.cfg.dominates(edge.dst, edge.src)
                following = _Node(edge.dst, state, conditions.follow(edge, node.facts), counts)
                if following not in seen:
                    seen.add(following)
                    work.append((following, False))
            if len(seen) > _PATH_LIMIT:
                raise PathLimit
        return False

    def _executes(self, facts: Facts) -> bool:
        """Whether the facts leave it possible that the sink is not predicated off."""
        stream = self._flow.stream
        conditions = conditions_of(stream)
        for guard in stream.function.instrs[self._sink.instr].guards:
            value = stream.evaluator.value(stream.ssa.reads[self._sink.instr][guard.reg])
            if conditions.decide(value, facts) is guard.negated:
                return False
        return True

    def _through(self, node: _Node, midway: bool) -> int | None:
        """State at the end of the block; None when the load is in flight at the sink."""
        state = node.state
        for index in self._in.steps(node.block, self._load.instr if midway else None):
            state = self._in.wait(state, index)
            if state and node.counts and index == self._sink.instr and self._executes(node.facts):
                return None
            if index == self._load.instr and not midway:
                return 0  # the next round of a loop is a path of its own
            if self._in.issues(index):
                state = self._in.issue(state, index, self._load)
        return state
