"""Generic writes to shared memory that the async proxy reads, and whether a proxy fence stands in between.

A write is published to the async proxy when its thread has fenced and then synchronized with whoever issues the read.
For each write the signals are found that some path reaches without a fence; a read that follows such a signal, before
its warp waits for a later one of the writer, may see what stood there before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from verifier.analyses.counters import Counters
from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow, Test
from verifier.analyses.protocol.slicing import descriptors
from verifier.analyses.threads import threads_of
from verifier.analyses.visibility import SIGNALS, WAITS, Receiver, Rendezvous, fences_shared, reads_async, writes_shared
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import Reg
from verifier.model.streams import Stream
from verifier.model.values import Value

_LEAST_BYTES = 16  # of a bulk copy, and of a row of an operand
_DESCRIPTOR_ADDRESS = 0x3FFF  # bits 0-13 of a matrix descriptor, in units of 16 bytes (PTX ISA 9.4, 9.7.18.4.1)
_COPIES = frozenset({Kind.BULK_STORE, Kind.BULK_PEER})

Ranges = tuple[tuple[int, int], ...]  # sorted, [start, end)


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
        self._counters = {id(s): Counters(s, list(self._values(s))) for s in model.streams}
        self._starts = sorted(set(self._known_starts()))
        self._ranges: dict[tuple[int, int], Ranges | None] = {}
        self._unfenced: dict[int, dict[int, list[Event]]] = {}
        self._waits: dict[tuple[int, int, int], frozenset[int]] = {}

    def flow(self, stream: Stream) -> EventFlow:
        return self._rendezvous.flow(stream)

    def writes(self, stream: Stream) -> list[Event]:
        return self.flow(stream).select(writes_shared)

    def feeding(self, stream: Stream, read: Event) -> tuple[list[tuple[Stream, Event]], list[tuple[Stream, Event]]]:
        """(writes that a read may read, writes of which that cannot be told), each with who writes."""
        mine = self.read_ranges(stream, read)
        found: list[tuple[Stream, Event]] = []
        blind: list[tuple[Stream, Event]] = []
        for writer in self._model.streams:
            for write in self.writes(writer):
                theirs = self.write_ranges(writer, write)
                if theirs is None or mine is None:
                    blind.append((writer, write))
                elif _meet(mine, theirs):
                    found.append((writer, write))
        return found, blind

    def late(self, stream: Stream, read: Event, writer: Stream, write: Event) -> Handover | None:
        """How a read can follow a write with no fence of the writer in between; None when it cannot."""
        bare = self._bare(writer)
        if writer is stream and write in bare.get(read.instr, ()):
            return Handover(writer, write, None, None)
        for signal in self.flow(writer).events:
            if signal.kind in SIGNALS and write in bare.get(signal.instr, ()):
                for receiver in self._rendezvous.receivers(writer, signal) or ():
                    if receiver.stream is not stream or not self._follows(stream, read, writer, write, receiver):
                        continue
                    if not self._ordered(stream, read, writer, write):
                        return Handover(writer, write, signal, receiver)
        return None

    # addresses

    def write_ranges(self, stream: Stream, event: Event) -> Ranges | None:
        """Bytes an event may write, over all lanes and the values of counters."""
        key = (id(stream), event.instr)
        if key not in self._ranges:
            assert event.address is not None
            starts = self._numbers(stream, event, stream.address(event.instr, event.address))
            width = max(event.width, 1)
            self._ranges[key] = None if starts is None else _merged((s, s + width) for s in starts)
        return self._ranges[key]

    def read_ranges(self, stream: Stream, event: Event) -> Ranges | None:
        """Bytes an asynchronous read may touch, each up to the next known object; None when they have no number."""
        key = (id(stream), event.instr)
        if key not in self._ranges:
            found: set[int] | None = set()
            for value in self._read_values(stream, event):
                starts = self._numbers(stream, event, value)
                found = None if starts is None or found is None else found | starts
            self._ranges[key] = None if found is None else _merged((s, self._end(stream, event, s)) for s in found)
        return self._ranges[key]

    def _numbers(self, stream: Stream, event: Event, value: Value) -> set[int] | None:
        counters = self._counters[id(stream)]
        found: set[int] = set()
        reaching = counters.reaching(event)
        if not reaching:
            return None
        for numbers in reaching:
            lanes = counters.possible(value, numbers)
            if lanes is None:
                return None
            found |= lanes
        if event.kind in _COPIES or writes_shared(event):
            return found
        return {(n & _DESCRIPTOR_ADDRESS) << 4 for n in found}

    def _end(self, stream: Stream, event: Event, start: int) -> int:
        """Where a read ends: as the size of a copy says, else where the next known object begins."""
        size = stream.value(event.instr, event.size).constant if event.size is not None else None
        if size is not None:
            return start + size
        following = bisect_right(self._starts, start)
        return self._starts[following] if following < len(self._starts) else start + _LEAST_BYTES

    def _read_values(self, stream: Stream, event: Event) -> list[Value]:
        """Address of the source of a copy, or the descriptors of an MMA's operands."""
        if event.kind in _COPIES:
            return [stream.address(event.instr, event.source)] if event.source is not None else []
        instr = stream.function.instrs[event.instr]
        names = sorted(descriptors(event, instr))
        return [_low_word(stream.value(event.instr, Reg(name))) for name in names]

    def _values(self, stream: Stream) -> Iterator[Value]:
        for event in self.flow(stream).events:
            if reads_async(event):
                yield from self._read_values(stream, event)
            elif writes_shared(event) and event.address is not None:
                yield stream.address(event.instr, event.address)

    def _known_starts(self) -> Iterator[int]:
        """Where stages, barriers and slots begin."""
        for stream in self._model.streams:
            counters = self._counters[id(stream)]
            for event in self.flow(stream).events:
                expr = event.source if event.kind in _COPIES else event.address
                if event.kind is Kind.BARRIER_INIT:
                    expr = event.barrier
                elif event.kind not in (*_COPIES, Kind.BULK_LOAD, Kind.TMEM_ALLOC, Kind.CLC_CANCEL):
                    continue
                if expr is not None:
                    value = stream.address(event.instr, expr)
                    for numbers in counters.reaching(event):
                        yield from set(counters.number(value, numbers) or ())

    # order

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


def _low_word(value: Value) -> Value:
    """The low half of a descriptor that was put together from two words."""
    symbol = value.base
    if symbol is not None and value.lanes == 0 and symbol.kind == "pack" and isinstance(symbol.key[2], Value):
        return symbol.key[2]
    return value


def _merged(ranges: Iterator[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def _meet(a: Ranges, b: Ranges) -> bool:
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][0] < b[j][1] and b[j][0] < a[i][1]:
            return True
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return False
