"""Execution order across warps: which waits of one role are after a given event of another.

A wait is after event A of stream S when every signal of S that can satisfy it comes after A on all paths of S: arrives
and commits for an mbarrier, the same `bar.sync` (or one of the same number), the cluster barrier.
"""

from __future__ import annotations

from collections.abc import Callable

from verifier.analyses.facts import KernelFacts
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream

_SIGNALS = (Kind.BARRIER_ARRIVE, Kind.TMEM_COMMIT, Kind.COPY_ARRIVE)
WAITS = frozenset({Kind.BARRIER_WAIT, Kind.CTA_SYNC, Kind.CLUSTER_WAIT})


class Ordering:
    """Answers for one kernel."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._facts = facts
        self._model = model

    def unordered_path(self, source: Stream, event: Event, stream: Stream, use: Event) -> tuple[Event, ...] | None:
        """A path of `stream` to `use` that no wait orders after `event` of `source`; None when every path has one.

        Within one warp the program order is enough; without the block size a stream stands for any number of them.
        """
        flow = self._facts.flow(self._model, stream)
        one = self._model.shape.block is not None and len(stream.warps) == 1
        if one and source.warps == stream.warps and flow.always_before(event, use):
            return None
        after = self.waits_after(source, event, stream)
        return flow.find_path(None, lambda e: e is use, lambda e: e.instr in after)

    def waits_after(self, source: Stream, event: Event, stream: Stream) -> frozenset[int]:
        """Waits of `stream` (by instruction) that return only after `source` has passed `event`."""
        flow = self._facts.flow(self._model, source)
        waits = self._facts.flow(self._model, stream).select(lambda e: e.kind in WAITS)
        late: Callable[[Event], bool] = lambda signal: flow.always_before(event, signal)  # noqa: E731
        return frozenset(w.instr for w in waits if (s := self._signals(source, stream, w)) and all(map(late, s)))

    def _signals(self, source: Stream, stream: Stream, wait: Event) -> list[Event]:
        """Signals of `source` that can satisfy `wait` of `stream`."""
        if wait.kind is Kind.BARRIER_WAIT:
            barriers = [use.barrier for use in self._model.barriers.of(stream, wait)]
            return [
                use.event
                for barrier in barriers
                for use in self._model.barriers.on(barrier, _SIGNALS)
                if use.stream is source
            ]
        flow = self._facts.flow(self._model, source)
        if wait.kind is Kind.CLUSTER_WAIT:
            arrives = flow.select(lambda e: e.kind is Kind.CLUSTER_ARRIVE)
            return self._arrives_for(source, arrives, wait) if source.runs(wait) else arrives
        if source.runs(wait):
            return [wait]
        number = self._number(stream, wait)
        kinds = (Kind.CTA_SYNC, Kind.CTA_ARRIVE)
        return flow.select(lambda e: e.kind in kinds and self._number(source, e) in (None, number))

    def _arrives_for(self, source: Stream, arrives: list[Event], wait: Event) -> list[Event]:
        """Cluster arrives of which `wait` is the next wait."""
        flow = self._facts.flow(self._model, source)
        reach = flow.may_reach(arrives, lambda e: e.kind is Kind.CLUSTER_WAIT)
        return [a for i, a in enumerate(arrives) if reach.get(wait.instr, 0) >> i & 1]

    def _number(self, stream: Stream, event: Event) -> int | None:
        return stream.value(event.instr, event.number).constant if event.number is not None else 0
