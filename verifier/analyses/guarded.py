"""Which accesses of a waiting role touch what a barrier guards.

Told by what completes the barrier: a bulk copy or a remote store guards the bytes it writes; a tcgen05 commit guards
tensor memory and the stages its MMAs read; an arrive guards what its role wrote (for readers) and read (for writers)
since its previous arrive on another barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.isa.compute import signed
from verifier.model.barriers import Barrier, BarrierUse
from verifier.model.events import TMEM_ASYNC, TMEM_WRITES, Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.places import Place
from verifier.model.program import AddressExpr
from verifier.model.streams import Stream
from verifier.model.values import Symbol

_TENSOR_CORE_READS = frozenset({Kind.TMEM_MMA, Kind.WGMMA_MMA, Kind.TMEM_COPY})
_SHARED_ACCESSES = _TENSOR_CORE_READS | {Kind.STORE, Kind.COPY_ASYNC, Kind.LOAD}
_TMEM_ACCESSES = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE})
_COPIES_IN = frozenset({Kind.BULK_LOAD, Kind.BULK_PEER, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.CLC_CANCEL})
_WORD = 32
_COUNTERS = frozenset({"phi", "iter"})


class Region(msgspec.Struct, frozen=True):
    """Bytes from `start` of the object `base` on; `end` None: how far is not known. `base` None: anywhere."""

    base: object | None
    start: int
    end: int | None

    def meets(self, place: Place, width: int) -> bool:
        """Whether an access may touch the region. Loop- and thread-dependent terms only ever add to a start."""
        if self.base is None or place.base is None:
            return True
        if place.base is not self.base:
            return False
        if self.end is not None and not place.stage:
            return any(o < self.end and o + max(width, 1) > self.start for o in place.offsets)
        return place.first + max(width, 1) > self.start and (self.end is None or place.first < self.end)

    def reached_from(self, place: Place) -> bool:
        """Whether what a loop moves on starts below the end of the region: it may come to it or end before."""
        if place.base is not self.base or not any(symbol.kind in _COUNTERS for symbol, _ in place.stage):
            return False
        return self.end is None or place.first < self.end


def region_of(place: Place, width: int) -> Region:
    end = None if place.stage or not width else max(place.offsets) + width
    return Region(place.base, place.first, end)


class Guarded(msgspec.Struct, frozen=True):
    """`read` (`written`): shared regions that a waiter may read (write) only after the wait; `tmem`: kinds of TMEM
    access that count."""

    read: tuple[Region, ...] = ()
    written: tuple[Region, ...] = ()
    tmem: frozenset[Kind] = frozenset()


def guarded_uses(
    facts: KernelFacts, model: KernelModel, barriers: Sequence[Barrier], *, perhaps: bool = False
) -> Callable[[Stream, Event], bool]:
    """A test for events of a waiter that touch what these barriers guard; `perhaps`: that may come to touch it."""
    read: list[Region] = []
    written: list[Region] = []
    tmem: set[Kind] = set()
    for use in model.barriers.uses:
        if use.barrier not in barriers:
            continue
        if use.event.kind in _COPIES_IN:
            read.append(region_of(_placed(model, use.stream, use.event, use.event.address), use.event.width))
        elif use.event.kind is Kind.TMEM_COMMIT:
            tmem |= TMEM_ASYNC | TMEM_WRITES
            written.append(Region(None, 0, None))
        elif use.event.kind in (Kind.BARRIER_ARRIVE, Kind.COPY_ARRIVE):
            for access in handed_over(facts, model, use):
                _hand_over(model, use.stream, access, read, written, tmem)
    guarded = Guarded(tuple(dict.fromkeys(read)), tuple(dict.fromkeys(written)), frozenset(tmem))
    return lambda stream, event: _touches(model, stream, event, guarded, perhaps)


def handed_over(facts: KernelFacts, model: KernelModel, arrive: BarrierUse) -> list[Event]:
    """Accesses for which `arrive` is the first signal that follows: it hands over what they touched.

    A named barrier hands over shared memory, too, but tensor memory is passed on through mbarriers.
    """
    flow = facts.flow(model, arrive.stream)
    barriers = {use.barrier for use in model.barriers.of(arrive.stream, arrive.event)}

    def other_arrive(event: Event) -> bool:
        uses = model.barriers.of(arrive.stream, event) if event.kind is Kind.BARRIER_ARRIVE else []
        return bool(uses) and not any(use.barrier in barriers for use in uses)

    def other_signal(event: Event) -> bool:
        return event.kind in (Kind.CTA_SYNC, Kind.CTA_ARRIVE) or other_arrive(event)

    found = []
    for kinds, signal in ((_SHARED_ACCESSES, other_signal), (_TMEM_ACCESSES, other_arrive)):
        accesses = [e for e in flow.events if e.kind in kinds]
        arrived = flow.may_reach(accesses, signal, flow.lane_skips).get(arrive.event.instr, 0)
        found += [access for i, access in enumerate(accesses) if arrived >> i & 1]
    return found


def _hand_over(
    model: KernelModel, stream: Stream, event: Event, read: list[Region], written: list[Region], tmem: set[Kind]
) -> None:
    if event.kind in (Kind.STORE, Kind.COPY_ASYNC) and in_shared(event, perhaps=True):
        read.append(region_of(_placed(model, stream, event, event.address), event.width))
    elif event.kind is Kind.LOAD and in_shared(event, perhaps=True):
        written.append(region_of(_placed(model, stream, event, event.address), event.width))
    elif event.kind in _TENSOR_CORE_READS:
        written.append(Region(None, 0, None))
    elif event.kind is Kind.TMEM_LOAD:
        tmem |= TMEM_WRITES
    elif event.kind is Kind.TMEM_STORE:
        tmem |= TMEM_ASYNC | TMEM_WRITES


def _touches(model: KernelModel, stream: Stream, event: Event, guarded: Guarded, perhaps: bool) -> bool:
    if event.kind in guarded.tmem:
        return True
    if event.kind in _TENSOR_CORE_READS:
        return bool(guarded.read)
    if event.kind is Kind.LOAD and in_shared(event, perhaps=True):
        return _meets(guarded.read, _placed(model, stream, event, event.address), event.width, perhaps)
    if event.kind in (Kind.BULK_STORE, Kind.BULK_PEER):
        return _meets(guarded.read, _placed(model, stream, event, event.source), 0, perhaps)
    if event.kind in (Kind.BULK_LOAD, Kind.COPY_ASYNC) or (event.kind is Kind.STORE and in_shared(event, perhaps=True)):
        return _meets(guarded.written, _placed(model, stream, event, event.address), event.width, perhaps)
    return False


def _placed(model: KernelModel, stream: Stream, event: Event, address: AddressExpr | None) -> Place:
    """The place of an operand, from where the counters in its address start: a counter only ever adds to that."""
    place = model.place(stream, event, address)
    start = sum(coef * _start(stream, symbol) for symbol, coef in place.stage if coef > 0)
    if not start:
        return place
    moved = place.offset + start if isinstance(place.offset, int) else tuple(o + start for o in place.offset)
    return msgspec.structs.replace(place, offset=moved)


def _start(stream: Stream, symbol: Symbol) -> int:
    """The number that a loop's counter starts from and does not fall below, as far as that is known."""
    if symbol.kind != "phi":
        return 0
    (_, number), starts = symbol.key, []
    assert isinstance(number, int)
    for block, value in (stream.ssa.values[number].incoming or {}).items():
        if block not in stream.cfg.reachable:
            continue
        known = stream.evaluator.value(value)
        if known.constant is not None:
            starts.append(signed(known.constant, _WORD))
        elif known.terms != ((symbol, 1),) or not isinstance(known.lanes, int) or signed(known.lanes, _WORD) < 0:
            return 0
    return max(min(starts, default=0), 0)


def _meets(regions: Iterable[Region], place: Place, width: int, perhaps: bool) -> bool:
    return any(region.meets(place, width) or (perhaps and region.reached_from(place)) for region in regions)
