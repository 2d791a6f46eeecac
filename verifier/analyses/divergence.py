"""Which code only part of a warp may run.

A branch splits a warp when its predicate can differ between lanes. From there to the point where all ways meet again
(the immediate post-dominator) only part of the warp runs. Divergence is propagated over SSA: lane numbers, elections,
atomics and loads from addresses that differ are sources; a merge of ways that a split branch opened is divergent, too.
After Karrenberg and Hack, "Improving Performance of OpenCL on CPUs" (CC 2012).
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream

_UNIFORM_RESULTS = frozenset({"ballot", "vote_any", "vote_all"})


class Split(msgspec.Struct, frozen=True):
    """A branch that lanes take differently. `certain`: in every run; otherwise the inputs decide."""

    instr: int
    certain: bool


class Divergence:
    """Splits of one stream and the blocks that only part of the warp runs because of them."""

    def __init__(self, model: KernelModel, stream: Stream) -> None:
        self._model = model
        self._stream = stream
        self._divergent: set[int] = set()
        self._joins: set[int] = set()
        self._propagate()

    def differs(self, value: SsaValue) -> bool:
        """Whether the value may differ between lanes."""
        return value.id in self._divergent

    def certainly_differs(self, predicate: SsaValue) -> bool:
        """Whether a predicate is true in some lanes and false in others, whatever the inputs."""
        value = self._stream.evaluator.value(predicate)
        if isinstance(value.lanes, tuple):
            return not value.terms
        symbol = value.base
        if symbol is not None and symbol.kind == "not":
            inner = symbol.key[2]
            symbol = getattr(inner, "base", None)
        return symbol is not None and symbol.kind == "elect"

    @cached_property
    def partial(self) -> dict[int, Split]:
        """Block -> the split because of which only part of the warp may run it; a certain split is preferred."""
        found: dict[int, Split] = {}
        for block, split in self._splits():
            for inside in self._region(block):
                if inside not in found or (split.certain and not found[inside].certain):
                    found[inside] = split
        return found

    def _splits(self) -> list[tuple[int, Split]]:
        splits = []
        for block in self._stream.cfg.order:
            edges = self._stream.cfg.successors[block]
            guarded = [e for e in edges if e.guard is not None]
            if len(edges) < 2 or not guarded or guarded[0].guard is None:
                continue
            last = self._stream.cfg.blocks[block].end - 1
            predicate = self._stream.ssa.reads[last][guarded[0].guard.reg]
            if self.differs(predicate):
                splits.append((block, Split(last, self.certainly_differs(predicate))))
        return splits

    def _region(self, block: int) -> set[int]:
        """Blocks between a branch and the point where its ways meet."""
        cfg = self._stream.cfg
        meet = cfg.post_dominator.get(block)
        seen: set[int] = set()
        work = [edge.dst for edge in cfg.successors[block]]
        while work:
            inside = work.pop()
            if inside != meet and inside not in seen and inside != block:
                seen.add(inside)
                work += [edge.dst for edge in cfg.successors[inside]]
        return seen

    def _propagate(self) -> None:
        values = [v for v in self._stream.ssa.values if v.block in self._stream.cfg.reachable]
        changed = True
        while changed:
            changed = False
            for value in values:
                if value.id not in self._divergent and self._is_divergent(value):
                    self._divergent.add(value.id)
                    changed = True
            joins = {
                meet for block, _ in self._splits() if (meet := self._stream.cfg.post_dominator.get(block)) is not None
            }
            changed = changed or not joins <= self._joins
            self._joins |= joins

    def _is_divergent(self, value: SsaValue) -> bool:
        known = self._stream.evaluator.value(value)
        if isinstance(known.lanes, tuple):
            return True
        if known.uniform:
            return False
        if value.incoming is not None:
            return value.block in self._joins or any(self.differs(v) for v in value.incoming.values())
        if value.assign is None:
            return False
        if value.guards and any(self.differs(p) for p, _ in value.guards):
            return True
        return self._assigned(value)

    def _assigned(self, value: SsaValue) -> bool:
        assert value.assign is not None
        op = value.assign.op
        if op == "elect":
            return True
        if op in _UNIFORM_RESULTS or (op == "shfl_idx" and self._one_lane(value)):
            return False
        event = self._model.event_at(value.instr)
        if event is not None and event.kind in (Kind.ATOMIC, Kind.TMEM_LOAD):
            return True
        sources = self._stream.ssa.reads[value.instr].values() if op == "opaque" else value.args
        return any(isinstance(source, SsaValue) and self.differs(source) for source in sources)

    def _one_lane(self, value: SsaValue) -> bool:
        """A shuffle that reads one and the same lane everywhere gives all lanes one value."""
        lane = value.args[1]
        return self._stream.evaluator.arg(lane).constant is not None
