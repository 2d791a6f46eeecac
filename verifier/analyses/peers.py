"""What a wait receives from peer CTAs: who completes its barrier remotely, and which reads follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.model.barriers import BarrierUse
from verifier.model.evaluator import Evaluator
from verifier.model.events import Event, Kind, in_global, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.places import Place, locate, places_of
from verifier.model.streams import Stream
from verifier.model.values import Symbol

# Completions by a thread of a peer: its own history is published. Others publish the bytes they moved.
_THREADS = frozenset({Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.BARRIER_ARRIVE, Kind.BARRIER_COMPLETE})
_STORES = frozenset({Kind.STORE, Kind.ATOMIC})
_ENGINES = frozenset({Kind.BULK_LOAD, Kind.BULK_PEER, Kind.TMEM_COMMIT, Kind.CLC_CANCEL})


class PeerData(msgspec.Struct, frozen=True):
    """`threads`: remote completions by threads; `reads`: loads of shared memory that may read what those threads wrote.

    `far` are loads of global memory that read what they stored there before; `perhaps` such loads through the same
    pointer, where the bytes are not known. `unresolved` says why it cannot be told, or is empty.
    """

    threads: tuple[BarrierUse, ...]
    reads: tuple[Event, ...]
    unresolved: str = ""
    far: tuple[Event, ...] = ()
    perhaps: tuple[Event, ...] = ()


def peer_data(facts: KernelFacts, model: KernelModel, flow: EventFlow, wait: Event) -> PeerData | None:
    """What `wait` receives from peers; None when no peer completes its barrier."""
    barriers = [use.barrier for use in model.barriers.of(flow.stream, wait)]
    remote = [use for use in model.barriers.uses if use.barrier in barriers and _by_peer(use)]
    threads = tuple(use for use in remote if use.event.kind in _THREADS)
    stray = _stray(model)
    if not barriers:
        return PeerData((), (), "the wait's barrier is not resolved") if remote or stray or _any_remote(model) else None
    if stray and not threads:
        return PeerData((), (), f"a peer completes a barrier that is not resolved ({stray.opcode.split('.')[0]})")
    if not remote:
        return None
    far, perhaps = _far_reads(facts, model, flow, wait, threads)
    return PeerData(threads, tuple(_reads(model, flow, wait, threads)), far=far, perhaps=perhaps)


def _by_peer(use: BarrierUse) -> bool:
    if use.event.kind in _THREADS:
        return use.remote and not (use.event.kind is Kind.BARRIER_ARRIVE and use.event.size is not None)
    spread = use.event.has("multicast::cluster") or use.event.has("cta_group::2")
    return use.event.kind in _ENGINES and (use.remote or spread)


def _any_remote(model: KernelModel) -> bool:
    return any(_by_peer(use) for use in model.barriers.uses)


def _stray(model: KernelModel) -> Event | None:
    """A remote completion by a thread whose barrier could not be resolved."""
    for stream, event in model.barriers.unresolved:
        if event.kind in _THREADS and model.place(stream, event, event.barrier).remote:
            return event
    return None


def _reads(model: KernelModel, flow: EventFlow, wait: Event, threads: Sequence[BarrierUse]) -> Iterator[Event]:
    """Loads after `wait` of places that the completing threads wrote, or of a peer's shared memory."""
    written = list(_written(model, threads))
    reach = flow.may_reach([wait], lambda e: False)
    for event in flow.events:
        if event.kind is Kind.LOAD and reach.get(event.instr) and in_shared(event, perhaps=True):
            place = model.place(flow.stream, event, event.address)
            arrives = any(use.event.kind is Kind.BARRIER_ARRIVE for use in threads)
            if (place.remote and arrives) or any(_same_region(place, event.width, w) for w in written):
                yield event


class _Region(msgspec.Struct, frozen=True):
    """Bytes [start, end) of an object; end None: not known."""

    place: Place
    start: int
    end: int | None


def _written(model: KernelModel, threads: Sequence[BarrierUse]) -> Iterator[_Region]:
    """Regions of the receiver's shared memory that the threads write from afar."""
    for use in threads:
        if use.event.kind in (Kind.ASYNC_STORE, Kind.ASYNC_REDUCE):
            yield from _region(model, use.stream, use.event)
    senders = {id(u.stream): u.stream for u in threads if u.event.kind is Kind.BARRIER_ARRIVE}
    for stream in senders.values():
        for event in model.events:
            if event.kind in _STORES and stream.runs(event):
                place = model.place(stream, event, event.address)
                if place.remote:
                    yield from _region(model, stream, event)


def _region(model: KernelModel, stream: Stream, event: Event) -> Iterator[_Region]:
    place = model.place(stream, event, event.address)
    end = None if place.stage or place.base is None or not event.width else max(place.offsets) + event.width
    yield _Region(place, place.first, end)


def _same_region(place: Place, width: int, region: _Region) -> bool:
    """Whether a load may read a region.

    With loop- or thread-dependent terms on either side only the constant parts can be compared: a load that starts
    before the region cannot be told to reach it.
    """
    if place.remote or place.base is None or place.base is not region.place.base:
        return False
    if region.end is None or place.stage:
        return place.first + width > region.start and (region.end is None or place.first < region.end)
    return any(o < region.end and o + width > region.start for o in place.offsets)


_Spans = dict[
    Symbol, frozenset[tuple[int, int]] | None
]  # object or pointer -> [start, end) from there; None: not known


def _far_reads(
    facts: KernelFacts, model: KernelModel, flow: EventFlow, wait: Event, threads: Sequence[BarrierUse]
) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Loads of global memory after `wait` that read, and that perhaps read, what the threads stored before.

    Only loads through a pointer that is also stored through: two parameters are taken to point to different memory.
    """
    arrives = [use for use in threads if use.event.kind is Kind.BARRIER_ARRIVE]
    stored = [spans for use in arrives if (spans := _stored(facts, model, use.stream, use.event))]
    if not stored:
        return (), ()
    reach = flow.may_reach([wait], lambda e: False)
    loads = [e for e in flow.events if e.kind is Kind.LOAD and in_global(e) and reach.get(e.instr)]
    met = [(load, [_meet(_spans(flow.stream, load), spans) for spans in stored]) for load in loads]
    far = tuple(load for load, found in met if True in found)
    return far, tuple(load for load, found in met if None in found and True not in found)


@lru_cache(maxsize=64)
def _stored(facts: KernelFacts, model: KernelModel, stream: Stream, arrive: Event) -> _Spans:
    """What a stream may have stored to global memory when it comes to `arrive`."""
    flow = facts.flow(model, stream)
    stores = flow.select(lambda e: e.kind in _STORES and in_global(e))
    before = flow.may_reach(stores, lambda e: False).get(arrive.instr, 0)
    found: _Spans = {}
    for i, store in enumerate(stores):
        if before >> i & 1:
            for base, spans in _spans(stream, store).items():
                known = found.get(base, frozenset())
                found[base] = None if spans is None or known is None else known | spans
    return found


def _spans(stream: Stream, event: Event) -> _Spans:
    """The bytes that an access of any warp of the stream touches; not known where each CTA has its own."""
    found: _Spans = {}
    own = len({_located(stream, event, evaluator) for evaluator in stream.by_rank}) > 1
    for place in places_of(stream, event.instr, event.address):
        if place.base is not None:
            known = found.get(place.base, frozenset())
            here = None if place.stage or own else frozenset((o, o + max(event.width, 1)) for o in place.offsets)
            found[place.base] = None if here is None or known is None else known | here
    return found


def _located(stream: Stream, event: Event, evaluator: Evaluator) -> Place:
    assert event.address is not None
    return locate(stream.address(event.instr, event.address, evaluator))


def _meet(a: _Spans, b: _Spans) -> bool | None:
    """Whether two share a byte; None when that is not known."""
    verdicts = {_share(a[base], b[base]) for base in a.keys() & b.keys()}
    return True if True in verdicts else None if None in verdicts else False


def _share(a: frozenset[tuple[int, int]] | None, b: frozenset[tuple[int, int]] | None) -> bool | None:
    if a is None or b is None:
        return None
    return any(x < end and start < y for x, y in a for start, end in b)
