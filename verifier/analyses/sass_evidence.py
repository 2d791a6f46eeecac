"""What this build's machine code does about a TMEM load that PTX leaves in flight at a signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from verifier.analyses.completion import PathLimit
from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.compare import Comparison
from verifier.analyses.sass.controls import scoreboards
from verifier.analyses.sass.inflight import InFlight, Pending
from verifier.analyses.sass.side import SassSide
from verifier.analyses.sass.sinks import is_sink
from verifier.findings import Location, Verdict
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream


class Evidence(msgspec.Struct, frozen=True):
    """`PROVED`: the build completes every load before the signal; `VIOLATED`: it does not; `UNKNOWN`: nobody can tell.

    `text` says so in one clause with scoreboards and offsets. `load` and `sink` are where the machine code shows it,
    `missing` the scoreboards of which none is waited for (a violation), or those that are (a proof).
    """

    verdict: Verdict
    text: str
    load: Location | None = None
    sink: Location | None = None
    missing: str = ""


class SassLoads:
    """TMEM loads in flight in the SASS streams of one kernel."""

    def __init__(self, facts: KernelFacts, side: SassSide) -> None:
        self._facts = facts
        self.side = side
        self._flights: dict[int, InFlight] = {}
        self._comparisons: dict[tuple[int, int], Comparison] = {}

    def flight(self, stream: Stream) -> InFlight:
        found = self._flights.get(id(stream))
        if found is None:
            flow = self._facts.flow(self.side.model, stream)
            found = self._flights[id(stream)] = InFlight(flow, self.side.controls, flow.select(is_sink))
        return found

    def sinks_of(self, stream: Stream, signal: Event) -> Iterator[tuple[Stream, Event]]:
        """SASS sinks, with their streams, that realize a PTX signal for the warps of a PTX stream."""
        members = set(stream.members)
        for other in self.side.model.streams:
            if members & set(other.members):
                for sink in self._facts.flow(self.side.model, other).select(is_sink):
                    if signal in self.side.join.sources(sink):
                        yield other, sink

    def judge(self, stream: Stream, signal: Event, loads: Sequence[Event]) -> Evidence:
        """Whether the PTX `loads` are complete, in the machine code, at what realizes `signal`."""
        found = list(self.sinks_of(stream, signal))
        if not found:
            return self._at_any_sink(stream)
        proofs: list[Evidence] = []
        for other, sink in found:
            evidence = self._moved(stream, other, signal, loads)
            evidence = evidence or self.judge_sink(other, sink, loads, (stream, signal))
            if evidence.verdict is not Verdict.PROVED:
                return evidence
            proofs.append(evidence)
        return proofs[0]

    def _at_any_sink(self, stream: Stream) -> Evidence:
        """Where no instruction is attributed to a signal: no load is in flight at any, or nobody can tell."""
        members = set(stream.members)
        for other in (s for s in self.side.model.streams if members & set(s.members)):
            for sink in self._facts.flow(self.side.model, other).select(is_sink):
                evidence = self.judge_sink(other, sink)
                if evidence.verdict is not Verdict.PROVED:
                    text = f"no instruction of the SASS is attributed to this signal, and a load may be {evidence.text}"
                    return Evidence(Verdict.UNKNOWN, text)
        return Evidence(Verdict.PROVED, "no load is in flight at any signal of these warps")

    def _moved(self, ptx: Stream, sass: Stream, signal: Event, loads: Sequence[Event]) -> Evidence | None:
        """A load that the PTX has before `signal` and the SASS behind it."""
        key = (id(ptx), id(sass))
        comparison = self._comparisons.get(key)
        if comparison is None:
            assert self.side.ptx is not None
            flows = self._facts.flow(self.side.ptx, ptx), self._facts.flow(self.side.model, sass)
            comparison = self._comparisons[key] = Comparison(self.side, *flows)
        for moved in comparison.displaced(signal):
            if moved.shown is not None and moved.earlier in loads:
                sink, load = moved.shown
                text = f"moved behind the signal: {_noun(sink)} at {_at(sink)}, {load.opcode} at {_at(load)}"
                return Evidence(Verdict.VIOLATED, text, load.location, sink.location)
        return None

    def judge_sink(
        self,
        stream: Stream,
        sink: Event,
        loads: Sequence[Event] | None = None,
        ptx: tuple[Stream, Event] | None = None,
    ) -> Evidence:
        """The same at one SASS sink, which realizes the signal `ptx`; with `loads` None every load counts."""
        flight = self.flight(stream)
        at = _at(sink)
        doubt = ""
        for pending in flight.pending(sink):
            sources = self.side.join.sources(pending.load)
            if loads is not None and sources and not any(source in loads for source in sources):
                continue
            try:
                if not flight.path(pending.load, sink, self._is_hoisted(stream, pending.load, sink, sources, ptx)):
                    continue
            except PathLimit:
                doubt = f"too many paths between LDTM at {_at(pending.load)} and {at}"
                continue
            if sources or loads is None:
                return _in_flight(pending, sink)
            doubt = f"LDTM at {_at(pending.load)} is in flight at {at}, and no PTX load is known for it"
        if doubt:
            return Evidence(Verdict.UNKNOWN, doubt, sink=sink.location)
        return self._ordered(stream, sink, loads)

    def _is_hoisted(
        self, stream: Stream, load: Event, sink: Event, sources: Sequence[Event], ptx: tuple[Stream, Event] | None
    ) -> bool:
        """Whether ptxas moved `load` up across a relaxed signal: this trip's load is no load before the signal.

        In the PTX the load then reaches the signal only round a loop; and code that is not copied keeps its trips.
        """
        if ptx is None or ptx[1].sem != "relaxed" or not sources:
            return False
        assert self.side.ptx is not None
        flow = self._facts.flow(self.side.ptx, ptx[0])
        backs = frozenset(e for e in flow.cfg.edges if flow.cfg.dominates(e.dst, e.src))
        if flow.may_reach(sources, lambda e: False, backs).get(ptx[1].instr):
            return False
        others = self._facts.flow(self.side.model, stream).events
        return not any(
            e not in (load, sink)
            and (set(sources) & set(self.side.join.sources(e)) or ptx[1] in self.side.join.sources(e))
            for e in others
        )

    def _ordered(self, stream: Stream, sink: Event, loads: Sequence[Event] | None) -> Evidence:
        flight = self.flight(stream)
        waits: dict[int, int] = {}
        for load in flight.before(sink):
            if loads is None or any(source in loads for source in self.side.join.sources(load)):
                for completion in flight.completions(load):
                    waits[completion.instr] = waits.get(completion.instr, 0) | completion.mask
        if not waits:
            return Evidence(
                Verdict.PROVED, f"no TMEM load comes before {sink.opcode} at {_at(sink)}", sink=sink.location
            )
        instr = sink.instr if sink.instr in waits else max((i for i in waits if i < sink.instr), default=min(waits))
        offset = self.side.model.function.instrs[instr].location.sass_offset or 0
        where = "which waits for it itself" if instr == sink.instr else f"which is waited for at {offset:#x}"
        board = scoreboards(waits[instr])
        text = f"ordered by scoreboard {board}, {where}, before the {_noun(sink)} at {_at(sink)}"
        return Evidence(Verdict.PROVED, text, sink=sink.location, missing=board)


def _in_flight(pending: Pending, sink: Event) -> Evidence:
    board = scoreboards(pending.scoreboards)
    wait = f"no wait for {board}" if board else "no younger load to wait for"
    between = f"{pending.load.opcode} at {_at(pending.load)}, {_noun(sink)} at {_at(sink)}"
    text = f"still in flight: {between} with {wait} on the way"
    return Evidence(Verdict.VIOLATED, text, pending.load.location, sink.location, board)


def _at(event: Event) -> str:
    return f"{event.location.sass_offset or 0:#x}"


def _noun(sink: Event) -> str:
    return "arrive" if sink.kind is Kind.BARRIER_ARRIVE else sink.opcode.split(".DEFER")[0]


def evidence_for(facts: KernelFacts, stream: Stream, signal: Event, loads: Sequence[Event]) -> Evidence:
    """What the build at hand does about PTX `loads` that PTX leaves in flight at `signal` of a PTX stream."""
    if facts.machine is None:
        return Evidence(Verdict.UNKNOWN, "no SASS is at hand")
    known = sass_loads(facts)
    if known is None:
        return Evidence(Verdict.UNKNOWN, facts.machine.cubin.distrust)
    return known.judge(stream, signal, loads)


@lru_cache(maxsize=8)
def sass_loads(facts: KernelFacts) -> SassLoads | None:
    """The TMEM loads of a kernel's machine code; None when there is none at hand or its control data is not trusted."""
    side = facts.machine
    if side is None or side.cubin.distrust:
        return None
    return SassLoads(facts, side)
