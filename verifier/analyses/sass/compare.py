"""PTX order against SASS order, stream by stream."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.flow import EventFlow
from verifier.analyses.sass.loops import LoopKind
from verifier.analyses.sass.order import Displaced, Traces
from verifier.analyses.sass.side import SassSide
from verifier.model.cfg import Edge
from verifier.model.events import Event, Kind, in_shared
from verifier.model.streams import Stream

SYNCHRONIZES = frozenset(
    {
        Kind.BARRIER_ARRIVE,
        Kind.BARRIER_WAIT,
        Kind.BARRIER_EXPECT,
        Kind.BARRIER_COMPLETE,
        Kind.CTA_SYNC,
        Kind.CTA_ARRIVE,
        Kind.CLUSTER_ARRIVE,
        Kind.CLUSTER_WAIT,
        Kind.TMEM_COMMIT,
        Kind.ASYNC_STORE,
    }
)
_TMEM = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE})
_SHARED = frozenset({Kind.LOAD, Kind.STORE, Kind.ATOMIC})
_ENGINES = frozenset({Kind.TMEM_MMA, Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_COMMIT, Kind.BULK_PEER})
WAITS = frozenset({Kind.BARRIER_WAIT, Kind.CTA_SYNC, Kind.CLUSTER_WAIT})


class Comparison:
    """One SASS stream beside one PTX stream of the same warps."""

    def __init__(self, side: SassSide, ptx: EventFlow, sass: EventFlow) -> None:
        self.ptx_flow = ptx
        self.sass_flow = sass
        self._events = {event.instr: event for event in ptx.events if is_ordered(event)}
        join = side.join
        self.ptx = Traces(ptx, lambda e: (e.instr,) if e.instr in self._events else ())
        self.sass = Traces(
            sass,
            lambda e: [s.instr for s in join.sources(e) if s.instr in self._events],
            _elect_edges(side, sass.stream),
        )
        self._present = self.sass.present()
        self._waits = frozenset(i for i, e in self._events.items() if e.kind in WAITS)

    def events(self) -> Iterator[Event]:
        """PTX events that synchronize or touch tensor memory, and that the SASS has, too."""
        for instr, event in self._events.items():
            if (event.kind in SYNCHRONIZES or event.kind in _TMEM) and instr in self._present:
                yield event

    def copies(self, event: Event) -> list[Event]:
        """SASS events that realize a PTX event."""
        return self.sass.copies(event.instr)

    def earlier(self, event: Event) -> frozenset[int]:
        """PTX events that must come before `event`; before an access only those that synchronize."""
        known = self.ptx.before(event.instr) & self._present - {event.instr}
        if event.kind in SYNCHRONIZES:
            return known
        return frozenset(instr for instr in known if self._events[instr].kind in SYNCHRONIZES)

    def displaced(self, event: Event) -> Iterator[Displaced]:
        """What the PTX orders before `event` and the SASS does not, or lets slip behind it."""
        lost = self.earlier(event) - self.sass.before(event.instr)
        for instr in sorted(lost):
            if self._events[instr].kind is not Kind.CLUSTER_ARRIVE:  # nothing at all where a cluster is one CTA
                yield Displaced(self._events[instr], event, self.sass.outrun(instr, event.instr))
        if event.kind in (Kind.BARRIER_ARRIVE, Kind.CTA_ARRIVE):
            stops = self._waits - {event.instr}
            slipped = self.sass.after(event.instr, stops) - self.ptx.after(event.instr, stops)
            for instr in sorted(slipped - lost):
                if self._events[instr].kind in _TMEM:
                    yield Displaced(self._events[instr], event, self.sass.outrun(instr, event.instr))


def is_ordered(event: Event) -> bool:
    """Whether an event takes part in the comparison: it synchronizes, or synchronization protects it."""
    if event.kind in _SHARED:
        return in_shared(event)
    return event.kind in SYNCHRONIZES or event.kind in _TMEM or event.kind in _ENGINES


def _elect_edges(side: SassSide, stream: Stream) -> frozenset[Edge]:
    """Back edges of loops that only repeat one instruction for other lanes."""
    elects = [loop for loop, kind in side.loops(stream).kinds.items() if kind is LoopKind.ELECT]
    return frozenset(
        edge for loop in elects for edge in stream.cfg.predecessors[loop.header] if edge.src in loop.blocks
    )
