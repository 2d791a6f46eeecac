"""Generic writes to shared memory that the async proxy reads, and whether a proxy fence stands in between.

A write is published to the async proxy when its thread has fenced and then synchronized with whoever issues the read.
For each write the signals are found that some path reaches without a fence; a read that follows such a signal, before
its warp waits for a later one of the writer, may see what stood there before.
"""

from __future__ import annotations

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow, Test
from verifier.analyses.footprints import footprints_of, meet
from verifier.analyses.threads import threads_of
from verifier.analyses.visibility import SIGNALS, WAITS, Receiver, Rendezvous, fences_shared, writes_shared
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream

_COPIES = frozenset({Kind.BULK_STORE, Kind.BULK_PEER})


class Handover(msgspec.Struct, frozen=True):
    """`write` of `writer` reaches `signal` with no fence; `receiver` waits for it and may then issue the read.

    `signal` None: the warp that wrote issues the read itself.
    """

    writer: Stream
    write: Event
    signal: Event | None
    receiver: Receiver | None


class AsyncReads:
    """Answers for one kernel."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._model = model
        self._rendezvous = Rendezvous(facts, model)
        self._footprints = footprints_of(facts, model)
        self._unfenced: dict[int, dict[int, list[Event]]] = {}
        self._waits: dict[tuple[int, int, int], frozenset[int]] = {}

    def flow(self, stream: Stream) -> EventFlow:
        return self._rendezvous.flow(stream)

    def writes(self, stream: Stream) -> list[Event]:
        return self.flow(stream).select(writes_shared)

    def feeding(self, stream: Stream, read: Event) -> tuple[list[tuple[Stream, Event]], list[tuple[Stream, Event]]]:
        """(writes that a read may read, writes of which that cannot be told), each with who writes."""
        mine, certain = self._footprints.read(stream, read), self._footprints.certain(stream, read)
        found: list[tuple[Stream, Event]] = []
        blind: list[tuple[Stream, Event]] = []
        for writer in self._model.streams:
            for write in self.writes(writer):
                theirs = self._footprints.written(writer, write)
                if theirs is None or mine is None:
                    blind.append((writer, write))
                elif meet(mine, theirs):
                    (found if certain is not None and meet(certain, theirs) else blind).append((writer, write))
        return found, blind

    def late(self, stream: Stream, read: Event, writer: Stream, write: Event) -> Handover | None:
        """How a read can follow a write with no fence of the writer in between; None when it cannot."""
        bare = self._bare(writer)
        if writer is stream and write in bare.get(read.instr, ()):
            return Handover(writer, write, None, None)
        return self._passed_on(stream, read, writer, write, sure=True)

    def perhaps_late(self, stream: Stream, read: Event, writer: Stream, write: Event) -> Handover | None:
        """The same through a signal of which it is not known who waits for it: a barrier is not resolved."""
        return self._passed_on(stream, read, writer, write, sure=False)

    def _passed_on(self, stream: Stream, read: Event, writer: Stream, write: Event, *, sure: bool) -> Handover | None:
        bare = self._bare(writer)
        for signal in self.flow(writer).events:
            if signal.kind not in SIGNALS or write not in bare.get(signal.instr, ()):
                continue
            if (self._rendezvous.receivers(writer, signal) is not None) is not sure:
                continue
            for receiver in self._rendezvous.candidates(writer, signal):
                if receiver.stream is not stream or not self._follows(stream, read, writer, write, receiver):
                    continue
                if not self._ordered(stream, read, writer, write):
                    return Handover(writer, write, signal, receiver)
        return None

    def replacement(self, stream: Stream, read: Event, late: Handover) -> Event | None:
        """A fenced write of another role to bytes of the write, or a copy that begins there: they may be replaced."""
        role = self._model.role_of(late.writer)
        stale = self._footprints.written(late.writer, late.write)
        if stale is None or late.signal is None:
            return None
        for writer, write in self.feeding(stream, read)[0]:
            fresh = self._footprints.written(writer, write)
            if self._model.role_of(writer) == role or fresh is None or not meet(stale, fresh):
                continue
            if self.late(stream, read, writer, write) is None:
                return write
        for writer in self._model.streams:
            for copy in self.flow(writer).select(lambda e: e.kind is Kind.BULK_LOAD):
                fresh = self._footprints.written(writer, copy)
                if fresh is not None and any(low <= start < high for start, _ in fresh for low, high in stale):
                    return copy  # where it ends is not known
        return None

    def _bare(self, stream: Stream) -> dict[int, list[Event]]:
        """Event -> writes of the stream that some path brings there without a fence."""
        found = self._unfenced.get(id(stream))
        if found is None:
            found = self._unfenced[id(stream)] = {}
            for narrow, writes in self._by_narrow(stream):
                wide = frozenset(e.instr for e in self.flow(stream).select(fences_shared)) - narrow
                reach = self.flow(stream).may_reach(writes, _among(wide))
                for instr, bits in reach.items():
                    if bits:
                        found.setdefault(instr, []).extend(w for i, w in enumerate(writes) if bits >> i & 1)
        return found

    def _by_narrow(self, stream: Stream) -> list[tuple[frozenset[int], list[Event]]]:
        """Writes grouped by the fences that not every lane runs which may have written."""
        flow = self.flow(stream)
        fences, writes = flow.select(fences_shared), self.writes(stream)
        threads = threads_of(flow, [*fences, *writes]) if fences and writes else []
        runs = {e.instr: frozenset(i for i, t in enumerate(threads) if t.may_run(e)) for e in (*fences, *writes)}
        groups: dict[frozenset[int], list[Event]] = {}
        for write in writes:
            narrow = frozenset(f.instr for f in fences if not runs[write.instr] <= runs[f.instr])
            groups.setdefault(narrow, []).append(write)
        return list(groups.items())

    def _follows(self, stream: Stream, read: Event, writer: Stream, write: Event, receiver: Receiver) -> bool:
        """Whether a path leads from the wait to the read with no wait for a later signal of the writer.

        What `cp.async` has written arrives by itself: there is no moment for the writer to fence, so the reader may.
        """
        gates = self._gates(stream, writer, write)
        fenced_here = write.kind is Kind.COPY_ASYNC

        def stops(event: Event) -> bool:
            passed = event.instr in gates and event is not receiver.wait
            return passed or (fenced_here and fences_shared(event))

        return bool(self.flow(stream).may_reach([receiver.wait], stops).get(read.instr))

    def loose(self, stream: Stream, read: Event, writer: Stream, write: Event) -> bool:
        """Whether a path leads to a copy with no wait for anything that another warp, which writes its source, does.

        Not asked of MMAs: their operands may be refilled by copies between such a write and the read.
        """
        if read.kind not in _COPIES or writer is stream or not writer.shares_cta(stream):
            return False
        flow = self.flow(stream)
        if write.instr in stream.instructions and not flow.may_reach([write], lambda e: False).get(read.instr):
            return False  # shared code, in which the write comes after the read
        waits = self._gates(stream, writer, write)
        return any(flow.find_path(start, lambda e: e is read, _among(waits)) for start in (None, read))

    def _ordered(self, stream: Stream, read: Event, writer: Stream, write: Event) -> bool:
        """Whether the reader, each time, has also waited for a signal that the writer gives after a fence."""
        bare = {i for i, writes in self._bare(writer).items() if write in writes}
        late = self.flow(writer).may_reach([write], lambda e: False)
        signals = [e for e in self.flow(writer).events if e.kind in SIGNALS]
        fenced = frozenset(e.instr for e in signals if late.get(e.instr) and e.instr not in bare)
        other = frozenset(e.instr for e in signals) - fenced

        def strong(event: Event) -> bool:
            if event.kind not in WAITS:
                return False
            return self._rendezvous.signalled_by(fenced, writer, stream, event) and not self._rendezvous.signalled_by(
                other, writer, stream, event
            )

        flow = self.flow(stream)
        waits = frozenset(e.instr for e in flow.events if strong(e))
        return not any(flow.find_path(start, lambda e: e is read, _among(waits)) for start in (None, read))

    def _gates(self, stream: Stream, writer: Stream, write: Event) -> frozenset[int]:
        """Waits of `stream` for signals that the writer gives after the write."""
        key = (id(stream), id(writer), write.instr)
        if key not in self._waits:
            after = self.flow(writer).may_reach([write], lambda e: False)
            signals = frozenset(e.instr for e in self.flow(writer).events if e.kind in SIGNALS and after.get(e.instr))
            waits = self.flow(stream).select(lambda e: e.kind in WAITS)
            found = (e.instr for e in waits if self._rendezvous.signalled_by(signals, writer, stream, e))
            self._waits[key] = frozenset(found)
        return self._waits[key]


def _among(instrs: frozenset[int]) -> Test:
    return lambda event: event.instr in instrs
