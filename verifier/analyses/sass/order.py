"""Whether the machine code keeps the order that the PTX gives to synchronization and to what it protects.

ptxas copies code (loops unrolled, waits tried inline and retried elsewhere), so positions cannot be compared. What
survives copying are statements on traces, with all copies of an instruction taken as one:

* before: between two executions of Y (or the entry and the first) there is always an X;
* apart: after an A no X is executed before the next wait.

Whatever holds in the PTX must hold in the SASS of the same warps. A statement that fails there is not yet a reordering:
copied code has paths that no execution takes. It is one where straight-line code shows it, more Ys than Xs from the
start of a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from verifier.analyses.flow import EventFlow
from verifier.model.cfg import Edge
from verifier.model.events import Event
from verifier.model.program import Reg
from verifier.model.values import Value

_GuardKey = tuple[tuple[int, bool], ...]
Classes = Callable[[Event], Sequence[int]]  # numbers of the classes that an event is an execution of


class Traces:
    """Statements on the traces of one stream. `classes` numbers its events: copies have the same number."""

    def __init__(self, flow: EventFlow, classes: Classes, without: frozenset[Edge] = frozenset()) -> None:
        self._flow = flow
        self._without = without
        self._classes = {event.instr: tuple(classes(event)) for event in flow.events}
        self._guards = {event.instr: self._guard(event) for event in flow.events}

    def present(self) -> frozenset[int]:
        """Classes of which there is an execution at all."""
        return frozenset(number for numbers in self._classes.values() for number in numbers)

    def copies(self, number: int) -> list[Event]:
        return [event for event in self._flow.events if number in self._classes[event.instr]]

    def before(self, number: int) -> frozenset[int]:
        """Classes X such that every execution of class `number` comes after an X since its previous execution."""
        bits: dict[tuple[int, _GuardKey], int] = {}
        marks = {instr: self._mark(instr, bits) for instr in self._classes}
        anchors = {event.instr for event in self.copies(number)}
        seen = self._must_reach(marks, anchors, (1 << len(bits)) - 1)
        common: frozenset[int] | None = None
        for anchor in anchors:
            state = seen.get(anchor, 0)
            own = self._guards[anchor]
            here = frozenset(c for (c, guard), bit in bits.items() if state >> bit & 1 and guard in ((), own))
            common = here if common is None else common & here
        return common or frozenset()

    def after(self, number: int, stops: frozenset[int]) -> frozenset[int]:
        """Classes that some path reaches from class `number` without passing one of `stops`."""
        sources = self.copies(number)
        ends = {i for i, numbers in self._classes.items() if stops & set(numbers)}
        reach = self._flow.may_reach(sources, lambda e: e.instr in ends, self._without)
        return frozenset(c for instr, numbers in self._classes.items() if reach.get(instr) for c in numbers)

    def outrun(self, earlier: int, later: int) -> tuple[Event, Event] | None:
        """Two events of one block that show `later` executed before the `earlier` it belongs to, in this order.

        That is a block which, from its start, has seen more of `later` than of `earlier`, and has one more of
        `earlier` behind.
        """
        for block in sorted(self._flow.in_block):
            balance = 0
            ahead: Event | None = None
            for event in self._flow.in_block[block]:
                numbers = self._classes[event.instr]
                if earlier in numbers:
                    if ahead is not None:
                        return ahead, event
                    balance += 1
                elif later in numbers:
                    balance -= 1
                    ahead = event if balance < 0 and ahead is None else ahead
        return None

    def _guard(self, event: Event) -> _GuardKey:
        """Predicate values under which the event runs; empty when it always does, if only in the elected lane."""
        if self._flow.certain(event):
            return ()
        stream = self._flow.stream
        reads = stream.ssa.reads[event.instr]
        return tuple(
            (reads[g.reg].id, g.negated)
            for g in stream.function.instrs[event.instr].guards
            if not is_elected(stream.value(event.instr, Reg(g.reg)), g.negated)
        )

    def _mark(self, instr: int, bits: dict[tuple[int, _GuardKey], int]) -> int:
        mask = 0
        for number in self._classes[instr]:
            mask |= 1 << bits.setdefault((number, self._guards[instr]), len(bits))
        return mask

    def _must_reach(self, marks: dict[int, int], anchors: Iterable[int], everything: int) -> dict[int, int]:
        """Bits that are set on every path to just before each anchor, where an anchor clears all."""
        cfg = self._flow.cfg
        resets = set(anchors)
        at_start = {cfg.entry: 0}
        before: dict[int, int] = {}
        work = deque([cfg.entry])
        while work:
            block = work.popleft()
            state = at_start[block]
            for event in self._flow.in_block.get(block, ()):
                if event.instr in resets:
                    before[event.instr] = state
                    state = 0
                state |= marks[event.instr]
            for edge in cfg.successors[block]:
                if edge in self._without:
                    continue
                known = at_start.get(edge.dst)
                merged = state if known is None else known & state
                if merged != known:
                    at_start[edge.dst] = merged
                    work.append(edge.dst)
        return before


def is_elected(predicate: Value, negated: bool) -> bool:
    """Whether a predicate is true in the lane that `elect.sync` chose: in one lane, whenever control comes by."""
    symbol = predicate.base
    if symbol is None:
        return False
    if symbol.kind == "not" and isinstance(symbol.key[2], Value):
        return is_elected(symbol.key[2], not negated)
    return symbol.kind == "elect" and not negated


class Displaced(msgspec.Struct, frozen=True):
    """PTX event `earlier` comes before `later` in the PTX and not in the SASS. `shown` are two SASS events of one block
    in the wrong order, None when only paths that need not be taken show it."""

    earlier: Event
    later: Event
    shown: tuple[Event, Event] | None
