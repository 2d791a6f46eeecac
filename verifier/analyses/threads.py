"""The part of a warp's stream that one thread runs.

Bulk groups belong to the thread that committed them, so questions about them are asked of threads, not of warps. Lanes
that decide every branch and guard alike are one class; `elect.sync` is taken to choose the same lane each time, as it
does for one mask (PTX ISA 9.4, 9.7.15.15).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from verifier.analyses.flow import EventFlow
from verifier.analyses.protocol.slicing import control_dependence
from verifier.analyses.rewriting import Rewriter, TooDeep, atoms
from verifier.model.cfg import Edge
from verifier.model.events import Event
from verifier.model.program import Guard
from verifier.model.ssa import SsaValue
from verifier.model.values import WARP, Symbol, Value, spread


class Lane(msgspec.Struct, frozen=True):
    """A lane that stands for its class; `elected`: the one that `elect.sync` chooses."""

    number: int
    elected: bool

    def __str__(self) -> str:
        return "the elected lane" if self.elected else f"lane {self.number}"


class Thread:
    """One lane's view of the flow of its warp."""

    def __init__(self, flow: EventFlow, lane: Lane) -> None:
        self.flow = flow
        self.lane = lane
        self._memo: dict[int, bool | None] = {}

    def truth(self, predicate: SsaValue) -> bool | None:
        """Value of a predicate in this lane, None when the lane alone does not decide it."""
        if predicate.id not in self._memo:
            self._memo[predicate.id] = _truth(self.flow.stream.evaluator.value(predicate), self.lane, self.flow)
        return self._memo[predicate.id]

    def takes(self, edge: Edge) -> bool:
        """False where this lane certainly does not take the edge."""
        if edge.guard is None:
            return True
        last = self.flow.cfg.blocks[edge.src].end - 1
        taken = self.truth(self.flow.stream.ssa.reads[last][edge.guard.reg])
        return taken is None or taken != edge.guard.negated

    def runs(self, event: Event) -> bool | None:
        """Whether this lane runs the event when control passes it; None when that is not known."""
        return self.holds(event.instr, self.flow.stream.function.instrs[event.instr].guards)

    def holds(self, instr: int, guards: tuple[Guard, ...]) -> bool | None:
        reads = self.flow.stream.ssa.reads[instr]
        found = [self.truth(reads[g.reg]) for g in guards]
        verdicts = [None if t is None else t != g.negated for t, g in zip(found, guards, strict=True)]
        if any(v is False for v in verdicts):
            return False
        return True if all(verdicts) else None

    def may_run(self, event: Event) -> bool:
        """Whether this lane can come to the event and run it."""
        return self.runs(event) is not False and self.flow.cfg.block_of[event.instr] in self.reached

    @cached_property
    def reached(self) -> frozenset[int]:
        """Blocks that this lane can come to."""
        cfg = self.flow.cfg
        seen = {cfg.entry}
        stack = [cfg.entry]
        while stack:
            for edge in cfg.successors[stack.pop()]:
                if edge.dst not in seen and self.takes(edge):
                    seen.add(edge.dst)
                    stack.append(edge.dst)
        return frozenset(seen)


def threads_of(flow: EventFlow, events: Sequence[Event]) -> list[Thread]:
    """One thread of each class of lanes, as far as whether `events` run tells them apart.

    Where the code elects, the elected lane of each class stands apart from the others.
    """
    predicates = _predicates(flow, events)
    elects = any(_is_elect(symbol) for value in predicates for symbol in atoms(value))
    classes: dict[tuple[bool | None, ...], int] = {}
    for number in range(WARP):
        key = tuple(_truth(value, Lane(number, False), flow) for value in predicates)
        classes.setdefault(key, number)
    lanes = [
        Lane(number, elected) for number in classes.values() for elected in ((True, False) if elects else (False,))
    ]
    return [Thread(flow, lane) for lane in lanes]


def _predicates(flow: EventFlow, events: Sequence[Event]) -> list[Value]:
    """Predicates that decide whether `events` run and that lanes may decide differently."""
    stream = flow.stream
    depends = control_dependence(flow.cfg)
    found: dict[int, Value] = {}
    work = [flow.cfg.block_of[event.instr] for event in events]
    seen = set(work)
    for event in events:
        for guard in stream.function.instrs[event.instr].guards:
            predicate = stream.ssa.reads[event.instr][guard.reg]
            found[predicate.id] = stream.evaluator.value(predicate)
    while work:
        for block in depends.get(work.pop(), ()):
            for edge in flow.cfg.successors[block]:
                if edge.guard is not None:
                    predicate = stream.ssa.reads[flow.cfg.blocks[block].end - 1][edge.guard.reg]
                    found[predicate.id] = stream.evaluator.value(predicate)
            if block not in seen:
                seen.add(block)
                work.append(block)
    return [value for value in found.values() if not value.uniform]


def _is_elect(symbol: Symbol) -> bool:
    return symbol.kind == "elect"


def _truth(value: Value, lane: Lane, flow: EventFlow) -> bool | None:
    elects = {s: Value(int(lane.elected)) for s in atoms(value) if _is_elect(s)}
    if elects:
        try:
            value = Rewriter(flow.stream.evaluator.table, elects).value(value)
        except TooDeep:
            return None
    return None if value.terms else bool(spread(value.lanes)[lane.number] & 1)
