"""What passes through an mbarrier inside one CTA: bytes written before its completions, and bytes read before them."""

from __future__ import annotations

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import Test
from verifier.analyses.footprints import Ranges, footprints_of, meet
from verifier.analyses.visibility import SIGNALS, reads_async, writes_shared
from verifier.model.barriers import Barrier, BarrierUse
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream

_COPIES_IN = frozenset({Kind.BULK_LOAD, Kind.CLC_CANCEL})
_ARRIVES = frozenset({Kind.BARRIER_ARRIVE, Kind.COPY_ARRIVE})


class Passed(msgspec.Struct, frozen=True):
    """An access of `stream` that comes before `use`, which is the next signal the warp gives. `bytes` None: unknown."""

    stream: Stream
    event: Event
    use: BarrierUse
    bytes: Ranges | None

    def may_meet(self, other: Ranges | None) -> bool:
        return self.bytes is not None and other is not None and meet(self.bytes, other)


class BarrierData:
    """Answers for one kernel; only completions by the CTA's own threads and copies are looked at."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._facts = facts
        self._model = model
        self.footprints = footprints_of(facts, model)

    def uses(self, stream: Stream, event: Event) -> list[BarrierUse]:
        return [use for use in self._model.barriers.of(stream, event) if not use.remote]

    def written(self, use: BarrierUse) -> list[Passed]:
        """Writes to shared memory that a completion tells about."""
        if use.event.kind in _COPIES_IN:
            return [Passed(use.stream, use.event, use, self.footprints.written(use.stream, use.event))]
        return self._before(use, lambda e: writes_shared(e) or e.kind is Kind.TMEM_ALLOC, True)

    def read(self, use: BarrierUse) -> list[Passed]:
        """Loads from shared memory that come before an arrive."""
        return self._before(use, _loads, False)

    def _before(self, use: BarrierUse, wanted: Test, writes: bool) -> list[Passed]:
        if use.event.kind not in _ARRIVES:
            return []
        flow = self._facts.flow(self._model, use.stream)
        accesses = flow.select(wanted)
        others = frozenset(e.instr for e in flow.events if e.kind in SIGNALS and not self._same(use, e))
        reach = flow.may_reach(accesses, lambda e: e.instr in others, flow.lane_skips).get(use.event.instr, 0)
        touched = self.footprints.written if writes else self.footprints.read
        found = [access for i, access in enumerate(accesses) if reach >> i & 1]
        return [Passed(use.stream, access, use, touched(use.stream, access)) for access in found]

    def _same(self, use: BarrierUse, event: Event) -> bool:
        return any(u.barrier is use.barrier for u in self._model.barriers.of(use.stream, event))

    def completions(self, barrier: Barrier) -> list[BarrierUse]:
        kinds = (*_COPIES_IN, *_ARRIVES)
        return [use for use in self._model.barriers.on(barrier, kinds) if not use.remote]

    def waits(self, barrier: Barrier) -> list[BarrierUse]:
        return self._model.barriers.on(barrier, (Kind.BARRIER_WAIT,))

    def first_use(self, stream: Stream, wait: Event, passed: list[Passed], stops: Test) -> tuple[Passed, Event] | None:
        """A read, after the wait and with no `stops` between, of bytes that were written before the completion."""
        return self._first(stream, wait, passed, stops, lambda e: _loads(e) or reads_async(e) is not None, False)

    def first_refill(
        self, stream: Stream, wait: Event, passed: list[Passed], stops: Test
    ) -> tuple[Passed, Event] | None:
        """A write, after the wait and with no `stops` between, to bytes that were read before the completion."""
        return self._first(stream, wait, passed, stops, lambda e: writes_shared(e) or e.kind in _COPIES_IN, True)

    def _first(
        self, stream: Stream, wait: Event, passed: list[Passed], stops: Test, wanted: Test, writes: bool
    ) -> tuple[Passed, Event] | None:
        flow = self._facts.flow(self._model, stream)
        reach = flow.may_reach([wait], stops)
        touched = self.footprints.written if writes else self.footprints.read
        for event in flow.select(wanted):
            if reach.get(event.instr):
                mine = touched(stream, event)
                found = next((p for p in passed if p.may_meet(mine)), None)
                if found is not None:
                    return found, event
        return None


def _loads(event: Event) -> bool:
    return event.kind is Kind.LOAD and in_shared(event)
