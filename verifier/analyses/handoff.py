"""Who gives tensor memory away to whom: signals of one role after which another may write, refill or free columns.

A signal (an arrive, a named barrier, the cluster barrier) gives columns away when some role that waits for it can
then reach a TMEM write or a dealloc that may touch them, without first waiting for a later signal of the same role:
in that case the later signal is the one that must be justified.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.isa.ptx_ops import decode
from verifier.isa.tmem import COLUMN_MASK, accumulator_columns, load_store_columns
from verifier.model.events import TMEM_ASYNC, TMEM_WRITES, Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.places import Place
from verifier.model.streams import Stream


class Taker(msgspec.Struct, frozen=True):
    """`write` is what `stream` may do after its `wait` has seen the signal."""

    stream: Stream
    wait: Event
    write: Event


class Columns(msgspec.Struct, frozen=True):
    """TMEM columns: `start` from the allocation's base (None: not known), `size` (None: not known)."""

    place: Place
    start: int | None
    size: int | None


_ACCESSES = TMEM_ASYNC | TMEM_WRITES
SIGNAL_KINDS = frozenset({Kind.BARRIER_ARRIVE, Kind.CTA_SYNC, Kind.CTA_ARRIVE, Kind.CLUSTER_ARRIVE})


class Handoffs:
    """TMEM hand-offs of one kernel."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._facts = facts
        self._model = model
        self._writes: dict[tuple[int, int, int], list[Event]] = {}

    def takers(self, stream: Stream, signal: Event, access: Event) -> list[Taker] | None:
        """Roles to which `signal` of `stream` gives away what `access` touches; None when that cannot be told.

        What a load reads is taken by a write or a dealloc; what a store or copy writes by any access.
        """
        waits = self._waits(stream, signal)
        if waits is None:
            return None
        mine = self.columns(stream, access)
        kinds = TMEM_WRITES if access.kind is Kind.TMEM_LOAD else TMEM_WRITES | TMEM_ASYNC
        found = []
        for other, wait in waits:
            for use in self._accesses_after(stream, other, wait):
                if use.kind in kinds and self._conflicts(stream, other, use, mine):
                    found.append(Taker(other, wait, use))
                    break
        return found

    def _conflicts(self, stream: Stream, other: Stream, use: Event, mine: Columns) -> bool:
        if other is stream and use.kind in (Kind.TMEM_STORE, Kind.TMEM_LOAD):
            return False  # each warp loads and stores its own lanes only (PTX ISA, 9.7.18.5)
        if use.kind is Kind.TMEM_DEALLOC:
            return True
        if use.kind is Kind.TMEM_MMA and use.source is not None:
            return True  # the A operand may be what was stored: its columns are not in the opcode
        return overlap(mine, self.columns(other, use))

    def _waits(self, stream: Stream, signal: Event) -> list[tuple[Stream, Event]] | None:
        """Waits that the signal can satisfy."""
        if signal.kind is Kind.CLUSTER_ARRIVE:
            return list(self._having(lambda e: e.kind is Kind.CLUSTER_WAIT))
        if signal.kind in (Kind.CTA_SYNC, Kind.CTA_ARRIVE):
            return self._named_waits(stream, signal)
        uses = self._model.barriers.of(stream, signal)
        blind = [e for _, e in self._model.barriers.unresolved if e.kind is Kind.BARRIER_WAIT]
        if not uses or blind:
            return None
        waits = (Kind.BARRIER_WAIT,)
        return [(u.stream, u.event) for use in uses for u in self._model.barriers.on(use.barrier, waits)]

    def _named_waits(self, stream: Stream, signal: Event) -> list[tuple[Stream, Event]]:
        """Warps that run the same `bar.sync` meet there; other warps at any barrier of the same number."""
        mine = self.named_id(stream, signal)
        found = []
        for other in self._model.streams:
            if signal.kind is Kind.CTA_SYNC and other.runs(signal):
                found.append((other, signal))
                continue
            for event in self._flow(other).events:
                if event.kind is Kind.CTA_SYNC and (mine is None or self.named_id(other, event) in (None, mine)):
                    found.append((other, event))
        return found

    def named_id(self, stream: Stream, event: Event) -> int | None:
        """Number of a named barrier, None when it does not fold to one."""
        return stream.value(event.instr, event.number).constant if event.number is not None else 0

    def _having(self, test: object) -> Iterator[tuple[Stream, Event]]:
        assert callable(test)
        for stream in self._model.streams:
            for event in self._flow(stream).events:
                if test(event):
                    yield stream, event

    def _flow(self, stream: Stream) -> EventFlow:
        return self._facts.flow(self._model, stream)

    def _accesses_after(self, signaller: Stream, stream: Stream, wait: Event) -> list[Event]:
        """TMEM accesses and deallocs of `stream` after `wait` and before it waits for another signal of `signaller`."""
        key = (id(signaller), wait.instr, id(stream))
        found = self._writes.get(key)
        if found is None:
            flow = self._flow(stream)
            gates = [e for e in flow.events if e is not wait and self._waits_for(signaller, stream, e)]
            stops = frozenset(e.instr for e in gates)
            reach = flow.may_reach([wait], lambda e: e.instr in stops)
            found = [e for e in flow.events if e.kind in _ACCESSES and reach.get(e.instr)]
            self._writes[key] = found
        return found

    def _waits_for(self, signaller: Stream, stream: Stream, event: Event) -> bool:
        """Whether `event` is a wait that some signal of `signaller` takes part in."""
        if event.kind is Kind.BARRIER_WAIT:
            arrives = (Kind.BARRIER_ARRIVE,)
            return any(
                other.stream is signaller
                for use in self._model.barriers.of(stream, event)
                for other in self._model.barriers.on(use.barrier, arrives)
            )
        if event.kind is Kind.CTA_SYNC:
            mine = self.named_id(stream, event)
            kinds = (Kind.CTA_SYNC, Kind.CTA_ARRIVE)
            return any(
                e.kind in kinds and self.named_id(signaller, e) in (None, mine) for e in self._flow(signaller).events
            )
        return event.kind is Kind.CLUSTER_WAIT

    def columns(self, stream: Stream, event: Event) -> Columns:
        """Columns that a TMEM access touches."""
        place = self._model.place(stream, event, event.address)
        known = not place.stage and (place.base is None or place.base.kind == "tmem")
        start = place.first & COLUMN_MASK if known else None
        return Columns(place, start, self._size(stream, event))

    def _size(self, stream: Stream, event: Event) -> int | None:
        op = decode(event.opcode)
        if event.kind in (Kind.TMEM_LOAD, Kind.TMEM_STORE):
            return load_store_columns(op)
        if event.kind is Kind.TMEM_MMA and event.count is not None:
            descriptor = stream.value(event.instr, event.count).constant
            return accumulator_columns(descriptor) if descriptor is not None else None
        return None


def overlap(a: Columns, b: Columns) -> bool:
    """Whether two column ranges can share a column; what is not known may."""
    if a.start is None or b.start is None or a.place.base is not b.place.base:
        return True
    if a.start <= b.start:
        return a.size is None or a.start + a.size > b.start
    return b.size is None or b.start + b.size > a.start
