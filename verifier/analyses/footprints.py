"""Which bytes of shared memory an event touches: as numbers, over all lanes and the values that loop counters take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache

from verifier.analyses.counters import Counters
from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.slicing import descriptors
from verifier.analyses.visibility import reads_async, writes_shared
from verifier.isa.ptx_ops import decode
from verifier.isa.tmem import copied_bytes
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.program import Reg
from verifier.model.streams import Stream
from verifier.model.values import Value

Ranges = tuple[tuple[int, int], ...]  # sorted, [start, end)

_ROW_BYTES = 16  # of an operand: how many rows follow is in its descriptor, in a form that is not modelled
_LAST_BYTES = 1 << 18  # the last object may reach to the end of shared memory
_SLOT_BYTES = 4  # what tcgen05.alloc writes
_DESCRIPTOR_ADDRESS = 0x3FFF  # bits 0-13 of a matrix descriptor, in units of 16 bytes (PTX ISA 9.4, 9.7.18.4.1)
_COPIES_OUT = frozenset({Kind.BULK_STORE, Kind.BULK_PEER})
_MMAS = frozenset({Kind.TMEM_MMA, Kind.TMEM_COPY, Kind.WGMMA_MMA})
_COPIES_IN = frozenset({Kind.BULK_LOAD, Kind.CLC_CANCEL})


class Footprints:
    """Footprints in the shared memory of one kernel. None everywhere means that an address has no number."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._facts = facts
        self._model = model
        self._counters = {id(s): Counters(s, list(self._values(s))) for s in model.streams}
        self._starts = sorted(set(self._known_starts()))
        self._memo: dict[tuple[int, int, bool], Ranges | None] = {}
        self._parts: dict[tuple[int, int], list[tuple[int, int]]] = {}  # what is read, start by start

    def written(self, stream: Stream, event: Event) -> Ranges | None:
        """What an event writes: threads, a copy that comes in (up to the next known object), or an allocation."""
        return self._ranges(stream, event, True)

    def read(self, stream: Stream, event: Event) -> Ranges | None:
        """What a load reads, or the source of a copy or the operands of an MMA, up to the next known object."""
        return self._ranges(stream, event, False)

    def certain(self, stream: Stream, event: Event) -> Ranges | None:
        """What an event reads if its rows lie in a row: less, of a `tcgen05.cp`, than all up to the next object."""
        found = self.read(stream, event)
        size = copied_bytes(decode(event.opcode)) if event.kind is Kind.TMEM_COPY else None
        if found is None or size is None:
            return found
        return _merged((start, min(end, start + size)) for start, end in self._parts[id(stream), event.instr])

    def _ranges(self, stream: Stream, event: Event, writes: bool) -> Ranges | None:
        key = (id(stream), event.instr, writes)
        if key not in self._memo:
            found: set[int] | None = set()
            for value in self._addresses(stream, event, writes):
                starts = self._numbers(stream, event, value)
                found = None if starts is None or found is None else found | starts
            if (event.kind is Kind.LOAD or writes_shared(event)) and bytes_of(stream, event) is None:
                found = None
            parts = [(start, self._end(stream, event, start)) for start in found or ()]
            if not writes:
                self._parts[id(stream), event.instr] = parts
            self._memo[key] = None if found is None else _merged(iter(parts))
        return self._memo[key]

    def _numbers(self, stream: Stream, event: Event, value: Value) -> set[int] | None:
        counters = self._counters[id(stream)]
        reaching = counters.reaching(event)
        if not reaching:
            return None
        found: set[int] = set()
        for numbers in reaching:
            possible = counters.possible(value, numbers)
            if possible is None:
                return None
            found |= possible
        if event.kind in _MMAS:
            return {(n & _DESCRIPTOR_ADDRESS) << 4 for n in found}
        return found

    def _end(self, stream: Stream, event: Event, start: int) -> int:
        """Where an access ends: as its width or size says, else where the next known object begins."""
        if event.kind is Kind.TMEM_ALLOC:
            return start + _SLOT_BYTES
        size = bytes_of(stream, event)
        if size is not None:
            return start + size
        if event.kind in _MMAS and not any(other > start for other in self._starts[-1:]):
            return start + _ROW_BYTES
        return start + (extent(self._starts, start) or _LAST_BYTES)

    def _addresses(self, stream: Stream, event: Event, writes: bool) -> list[Value]:
        """Addresses that an event touches: descriptors for the operands of an MMA."""
        if not writes and event.kind in _MMAS:
            names = sorted(descriptors(event, stream.function.instrs[event.instr]))
            return [_low_word(stream.value(event.instr, Reg(name))) for name in names]
        expr = event.source if event.kind in _COPIES_OUT else event.address
        return [] if expr is None else [stream.address(event.instr, expr)]

    def _values(self, stream: Stream) -> Iterator[Value]:
        for event in self._facts.flow(self._model, stream).events:
            loads = event.kind is Kind.LOAD and in_shared(event)
            if loads or reads_async(event):
                yield from self._addresses(stream, event, False)
            elif writes_shared(event) or event.kind in _COPIES_IN or event.kind is Kind.TMEM_ALLOC:
                yield from self._addresses(stream, event, True)

    def _known_starts(self) -> Iterator[int]:
        """Where stages, barriers and slots begin."""
        for stream in self._model.streams:
            counters = self._counters[id(stream)]
            for event in self._facts.flow(self._model, stream).events:
                expr = event.source if event.kind in _COPIES_OUT else event.address
                if event.kind is Kind.BARRIER_INIT:
                    expr = event.barrier
                elif event.kind not in (*_COPIES_OUT, *_COPIES_IN, Kind.TMEM_ALLOC):
                    continue
                if expr is not None:
                    value = stream.address(event.instr, expr)
                    for numbers in counters.reaching(event):
                        yield from set(counters.number(value, numbers) or ())


@lru_cache(maxsize=4)
def footprints_of(facts: KernelFacts, model: KernelModel) -> Footprints:
    return Footprints(facts, model)


def extent(starts: Sequence[int], start: int) -> int | None:
    """Bytes up to the next known start; for the last of them as many as the one before it has. None: not known."""
    following = bisect_right(starts, start)
    if following < len(starts):
        return starts[following] - start
    return starts[-1] - starts[-2] if len(starts) > 1 and starts[-1] <= start else None


def bytes_of(stream: Stream, event: Event) -> int | None:
    """Bytes of one access as its opcode or its size operand says; None when neither is known."""
    if event.size is not None:
        return stream.value(event.instr, event.size).constant
    return event.width or None


def meet(a: Ranges, b: Ranges) -> bool:
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][0] < b[j][1] and b[j][0] < a[i][1]:
            return True
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return False


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
