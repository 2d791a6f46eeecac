"""The memory model as rules ask about it: what an event makes visible, through which proxy, and who meets whom.

The tables are in `isa.scopes` and `isa.proxies`; here they meet events, streams and barriers.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.isa.proxies import bridge
from verifier.isa.scopes import acquires, covers, includes, releases
from verifier.model.barriers import Barrier
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream

# Writes through the generic proxy. `tcgen05.alloc` writes a slot of shared memory, too, but nothing copies a slot.
GENERIC_WRITES = frozenset({Kind.STORE, Kind.ATOMIC, Kind.COPY_ASYNC})
SIGNALS = frozenset({Kind.BARRIER_ARRIVE, Kind.COPY_ARRIVE, Kind.CTA_SYNC, Kind.CTA_ARRIVE, Kind.CLUSTER_ARRIVE})
# Also what completes barriers without publishing anything of the thread that asked for it.
_COMPLETIONS = SIGNALS | {Kind.TMEM_COMMIT, Kind.BULK_LOAD, Kind.BULK_PEER, Kind.ASYNC_STORE, Kind.CLC_CANCEL}
WAITS = frozenset({Kind.BARRIER_WAIT, Kind.CTA_SYNC, Kind.CLUSTER_WAIT})


def writes_shared(event: Event) -> bool:
    """Whether threads write shared memory by this event, through the generic proxy."""
    return event.kind in GENERIC_WRITES and in_shared(event)


def reads_async(event: Event) -> str | None:
    """What to call an operation that reads shared memory through the async proxy; None for all others.

    PTX ISA 9.4: 9.7.10.28.2 (bulk copies), 9.7.18.6.5 (tcgen05.mma, tcgen05.cp), 9.7.17.7 (wgmma).
    """
    if event.kind in (Kind.BULK_STORE, Kind.BULK_PEER):
        return "bulk store" if event.kind is Kind.BULK_STORE else "bulk copy to a peer"
    return {Kind.TMEM_MMA: "tcgen05.mma", Kind.TMEM_COPY: "tcgen05.cp", Kind.WGMMA_MMA: "wgmma"}.get(event.kind)


def fences_shared(event: Event) -> bool:
    """Whether a fence lets the async proxy see the thread's earlier writes to shared memory."""
    return event.kind is Kind.PROXY_FENCE and bridge(event.flags).publishes_shared_writes


def acquires_map(event: Event) -> bool:
    """Whether this is the acquire of a tensor map."""
    if event.kind is not Kind.PROXY_FENCE:
        return False
    meaning = bridge(event.flags)
    return meaning.proxy == "tensormap" and meaning.half == "acquire"


def names_map(event: Event) -> bool:
    """Whether a bulk copy or prefetch addresses global memory through a tensor map."""
    if event.kind is Kind.BULK_PREFETCH:
        return True
    return event.kind in (Kind.BULK_LOAD, Kind.BULK_STORE) and ".bulk.tensor" in event.opcode


def acquires_at(event: Event, scope: str, space: str = "shared::cta") -> bool:
    """Whether a fence acquires data in `space` from threads as far away as `scope`."""
    return _fences(event, scope, space) and acquires(event.sem)


def releases_at(event: Event, scope: str, space: str = "shared::cta") -> bool:
    """Whether a fence releases data in `space` to threads as far away as `scope`."""
    return _fences(event, scope, space) and releases(event.sem)


def _fences(event: Event, scope: str, space: str) -> bool:
    return event.kind is Kind.FENCE and includes(event.scope, scope) and covers(event.flags, space)


class Receiver(msgspec.Struct, frozen=True):
    """`wait` of `stream` returns because of a signal; not `certain`: which of several waits does is not known."""

    stream: Stream
    wait: Event
    certain: bool = True


class Rendezvous:
    """Which waits a signal can satisfy."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._facts = facts
        self._model = model
        self._memo: dict[tuple[int, int], list[Receiver] | None] = {}

    def flow(self, stream: Stream) -> EventFlow:
        return self._facts.flow(self._model, stream)

    def receivers(self, stream: Stream, signal: Event) -> list[Receiver] | None:
        """Waits that `signal` of `stream` takes part in; None when its barrier is not resolved."""
        key = (id(stream), signal.instr)
        if key not in self._memo:
            self._memo[key] = self._receivers(stream, signal)
        return self._memo[key]

    def _receivers(self, stream: Stream, signal: Event) -> list[Receiver] | None:
        if signal.kind is Kind.CLUSTER_ARRIVE:
            return list(self._across(stream, signal))
        if signal.kind in (Kind.CTA_SYNC, Kind.CTA_ARRIVE):
            return list(self._named(stream, signal))
        uses = self._model.barriers.of(stream, signal)
        blind = any(e.kind is Kind.BARRIER_WAIT for _, e in self._model.barriers.unresolved)
        if not uses or blind:
            return None
        waits = (Kind.BARRIER_WAIT,)
        return [Receiver(u.stream, u.event) for use in uses for u in self._model.barriers.on(use.barrier, waits)]

    def candidates(self, stream: Stream, signal: Event) -> list[Receiver]:
        """The same, but where a barrier is not resolved every wait that may be for the signal; none is certain."""
        found = self.receivers(stream, signal)
        if found is not None:
            return found
        mine = [use.barrier for use in self._model.barriers.of(stream, signal)]
        return [r for r in self._everyone() if not mine or self._may_be_at(r, mine)]

    def _may_be_at(self, receiver: Receiver, barriers: list[Barrier]) -> bool:
        theirs = [use.barrier for use in self._model.barriers.of(receiver.stream, receiver.wait)]
        return not theirs or any(barrier in barriers for barrier in theirs)

    def _named(self, stream: Stream, signal: Event) -> Iterator[Receiver]:
        """Streams that share the code meet where it says; others at any barrier of the same number and thread count."""
        here = frozenset((signal.instr,)) if signal.kind is Kind.CTA_SYNC else self._next_syncs(stream, signal)
        for other in self._model.streams:
            syncs = [e for e in self.flow(other).events if e.kind is Kind.CTA_SYNC]
            syncs = [e for e in syncs if self._same_barrier(stream, signal, other, e)]
            if here & other.instructions:
                syncs = [e for e in syncs if e.instr in here]
            elif signal.instr in other.instructions:
                reach = self.flow(other).may_reach([signal], lambda e: False)
                syncs = [e for e in syncs if reach.get(e.instr)]
            else:
                turn = self._turn(stream, signal)
                syncs = [e for e in syncs if turn is None or self._turn(other, e) in (None, turn)]
            yield from (Receiver(other, e, e is signal or len(syncs) == 1) for e in syncs)

    def _turn(self, stream: Stream, event: Event) -> int | None:
        """How many times the warp has met others at this named barrier before; None where that depends on the path."""
        flow = self.flow(stream)
        kinds = (Kind.CTA_SYNC, Kind.CTA_ARRIVE)
        alike = [e for e in flow.events if e.kind in kinds and self._same_barrier(stream, event, stream, e)]
        if any(stream.cfg.loops_of(stream.cfg.block_of[e.instr]) for e in alike):
            return None
        before = flow.may_reach(alike, lambda e: False).get(event.instr, 0)
        earlier = [e for i, e in enumerate(alike) if before >> i & 1]
        return len(earlier) if all(flow.always_before(e, event) for e in earlier) else None

    def _next_syncs(self, stream: Stream, arrive: Event) -> frozenset[int]:
        """The syncs of the same barrier that the arriving warp itself comes to first."""
        flow = self.flow(stream)
        syncs = [e for e in flow.events if e.kind is Kind.CTA_SYNC and self._same_barrier(stream, arrive, stream, e)]
        stops = frozenset(e.instr for e in syncs)
        reach = flow.may_reach([arrive], lambda e: e.instr in stops)
        return frozenset(e.instr for e in syncs if reach.get(e.instr))

    def _same_barrier(self, stream: Stream, signal: Event, other: Stream, sync: Event) -> bool:
        mine, theirs = self.number(stream, signal), self.number(other, sync)
        if mine is not None and theirs is not None and mine != theirs:
            return False
        counts = [_constant(s, e) for s, e in ((stream, signal), (other, sync))]
        return None in counts or counts[0] == counts[1]

    def number(self, stream: Stream, event: Event) -> int | None:
        """Number of a named barrier, None when it does not fold to one."""
        return stream.value(event.instr, event.number).constant if event.number is not None else 0

    def _across(self, stream: Stream, arrive: Event) -> Iterator[Receiver]:
        """Waits at the cluster barrier: streams that share the code meet at the wait that the arriver comes to next."""
        flow = self.flow(stream)
        waits = frozenset(e.instr for e in flow.events if e.kind is Kind.CLUSTER_WAIT)
        reach = flow.may_reach([arrive], lambda e: e.instr in waits)
        here = frozenset(instr for instr in waits if reach.get(instr))
        for other in self._model.streams:
            shared = here & other.instructions
            for event in self.flow(other).select(lambda e: e.kind is Kind.CLUSTER_WAIT):
                if not shared or event.instr in shared:
                    yield Receiver(other, event)

    def signalled_by(self, signals: frozenset[int], sender: Stream, stream: Stream, wait: Event) -> bool:
        """Whether one of `signals` (instructions) of `sender` takes part in `wait` of `stream`."""
        for event in self.flow(sender).events:
            if event.instr in signals:
                found = self.receivers(sender, event)
                if found is None or any(r.stream is stream and r.wait is wait for r in found):
                    return True
        return False

    def follows(self, stream: Stream, event: Event) -> frozenset[tuple[int, int]]:
        """(stream, wait) that may be ordered after `event`, directly or through other warps: all others are not."""
        found: set[tuple[int, int]] = set()
        work = [(stream, event)]
        while work:
            current, start = work.pop()
            flow = self.flow(current)
            reach = flow.may_reach([start], lambda e: False)
            for signal in (e for e in flow.events if e.kind in _COMPLETIONS and (e is start or reach.get(e.instr))):
                received = self.receivers(current, signal)
                for other in self._everyone() if received is None else received:
                    key = (id(other.stream), other.wait.instr)
                    if key not in found:
                        found.add(key)
                        work.append((other.stream, other.wait))
        return frozenset(found)

    def _everyone(self) -> list[Receiver]:
        """What a signal to an unknown barrier may reach."""
        waits = ((s, e) for s in self._model.streams for e in self.flow(s).events if e.kind is Kind.BARRIER_WAIT)
        return [Receiver(s, e, certain=False) for s, e in waits]


def _constant(stream: Stream, event: Event) -> int | None:
    """Thread count of a named barrier, None when it is not given or does not fold to a number."""
    return stream.value(event.instr, event.count).constant if event.count is not None else None
