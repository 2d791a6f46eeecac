"""Barrier objects of a kernel: arrays of mbarriers by base and extent, and who touches them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from verifier.model.events import Event, Kind
from verifier.model.places import Place, places_of
from verifier.model.program import Const
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value

BARRIER_BYTES = 8


class Barrier(msgspec.Struct, frozen=True):
    """`stages` mbarriers from byte `offset` of one object, all initialised with `count` (None: no init seen)."""

    base: Symbol
    offset: int
    stages: int
    count: int | None

    @property
    def name(self) -> str:
        text = str(self.base.key[-1])
        return f"{text}+{self.offset}" if self.offset else text

    def covers(self, offset: int) -> bool:
        return self.offset <= offset < self.offset + BARRIER_BYTES * self.stages


class BarrierUse(msgspec.Struct, frozen=True):
    """One event of one stream on one barrier array; `remote` when it is the barrier of another CTA."""

    stream: Stream
    event: Event
    barrier: Barrier
    place: Place

    @property
    def remote(self) -> bool:
        return self.place.remote


class Barriers:
    """All barriers of a kernel and their uses. `unresolved` holds uses whose barrier is not known."""

    def __init__(self, streams: Sequence[Stream], events: Sequence[Event]) -> None:
        touching = [e for e in events if e.barrier is not None]
        placed = [
            (s, e, place) for s in streams for e in touching if s.runs(e) for place in places_of(s, e.instr, e.barrier)
        ]
        self.arrays = _arrays(placed)
        self.uses: list[BarrierUse] = []
        self.unresolved: list[tuple[Stream, Event]] = []
        for stream, event, place in placed:
            found = self._find(place)
            if not found:
                self.unresolved.append((stream, event))
            self.uses += [BarrierUse(stream, event, barrier, place) for barrier in found]
        self._by_event: dict[tuple[int, int], list[BarrierUse]] = {}
        for use in self.uses:
            self._by_event.setdefault((id(use.stream), use.event.instr), []).append(use)

    def _find(self, place: Place) -> list[Barrier]:
        if place.base is None:
            return []
        mine = [b for b in self.arrays if b.base is place.base]
        return [b for b in mine if any(b.covers(offset) for offset in place.offsets)]

    def of(self, stream: Stream, event: Event) -> list[BarrierUse]:
        """Barriers that an event of a stream touches; empty when they could not be resolved."""
        return self._by_event.get((id(stream), event.instr), [])

    def on(self, barrier: Barrier, kinds: Iterable[Kind]) -> list[BarrierUse]:
        wanted = frozenset(kinds)
        return [use for use in self.uses if use.barrier is barrier and use.event.kind in wanted]


_Placed = tuple[Stream, Event, Place]


def _arrays(placed: Sequence[_Placed]) -> tuple[Barrier, ...]:
    """Group single barriers into arrays.

    An array starts where some use adds a loop-carried stage to a constant base; it extends over adjacent barriers with
    the same init count, up to the next such start or to the largest stage that the code can reach.
    """
    counts: dict[tuple[Symbol, int], int | None] = {}
    starts: dict[tuple[Symbol, int], int | None] = {}
    for stream, event, place in placed:
        if place.base is None:
            continue
        for offset in place.offsets:
            key = (place.base, offset)
            if event.kind is Kind.BARRIER_INIT:
                counts[key] = _count(stream, event)
            elif place.stage:
                bounds = [b for b in (stage_bound(stream, place), starts.get(key)) if b is not None]
                starts[key] = max(bounds, default=None)
            else:
                counts.setdefault(key, None)
    return tuple(_grouped(counts, starts))


def _count(stream: Stream, event: Event) -> int | None:
    return stream.value(event.instr, event.count).constant if event.count is not None else None


def _grouped(
    counts: dict[tuple[Symbol, int], int | None], starts: dict[tuple[Symbol, int], int | None]
) -> Iterable[Barrier]:
    bases = {base for base, _ in (*counts, *starts)}
    for base in sorted(bases, key=str):
        offsets = sorted({o for b, o in (*counts, *starts) if b is base})
        index = 0
        while index < len(offsets):
            offset = offsets[index]
            length = 1
            if (base, offset) in starts:
                length = _extent(base, offsets[index:], counts, starts)
            yield Barrier(base, offset, length, counts.get((base, offset)))
            index += 1
            while index < len(offsets) and offsets[index] < offset + BARRIER_BYTES * length:
                index += 1


def _extent(
    base: Symbol,
    offsets: Sequence[int],
    counts: dict[tuple[Symbol, int], int | None],
    starts: dict[tuple[Symbol, int], int | None],
) -> int:
    first = offsets[0]
    bound = starts[(base, first)]
    length = 1
    for offset in offsets[1:]:
        if offset != first + BARRIER_BYTES * length or (base, offset) in starts:
            break
        if counts.get((base, offset)) != counts.get((base, first)) or (bound is not None and length >= bound):
            break
        length += 1
    return max(length, bound or 1)


def stage_bound(stream: Stream, place: Place) -> int | None:
    """Number of stages an address can reach, from the comparison that wraps its stage counter."""
    bounds = []
    for symbol, coef in place.stage:
        bound = wrap_of(stream, symbol)
        if coef % BARRIER_BYTES or bound is None:
            return None
        bounds.append(bound * coef // BARRIER_BYTES)
    return max(bounds) if bounds else None


def wrap_of(stream: Stream, counter: Symbol) -> int | None:
    """N of the test after which a stage counter returns to zero: `counter + 1 == N ? 0 : counter + 1`.

    The counter's cycle is searched through copies and merges; two stages are also stepped with `xor 1`.
    """
    if counter.kind == "selp":
        return _wrap_of_select(counter)
    if counter.kind not in ("phi", "def") or not isinstance(counter.key[1], int):
        return None
    counted = _counted_to(stream, stream.ssa.values[counter.key[1]])
    if counted is not None:
        return counted
    work = [stream.ssa.values[counter.key[1]]]
    seen = {work[0].id}
    while work and len(seen) < _SEARCH_LIMIT:
        value = work.pop()
        found = _wrap_at(value)
        if found is not None:
            return found
        feeding = [*(value.incoming or {}).values(), *value.args]
        for source in feeding:
            if isinstance(source, SsaValue) and source.id not in seen and source.reg:
                seen.add(source.id)
                work.append(source)
    return None


def _wrap_of_select(select: Symbol) -> int | None:
    """The same for the next stage, `selp(0, counter + 1, counter + 1 == N)`, before it is merged."""
    arms, test = select.key[2:4], select.key[4]
    if not any(isinstance(arm, Value) and arm.constant == 0 for arm in arms) or not isinstance(test, Value):
        return None
    predicate = test.base
    if predicate is None or not predicate.kind.startswith("setp_"):
        return None
    limit = predicate.key[3]
    return limit.constant if isinstance(limit, Value) else None


def _counted_to(stream: Stream, counter: SsaValue) -> int | None:
    """N of a loop that counts `counter` from 0 in steps of 1 and ends when it reaches N."""
    steps = [v for v in (counter.incoming or {}).values() if _is_step(v, counter)]
    if not steps:
        return None
    ids = {counter.id, *(step.id for step in steps)}
    limits = []
    for instr in {i for id_ in ids for i in stream.ssa.users.get(id_, ())}:
        for value in stream.ssa.writes[instr].values():
            if value.assign is not None and value.assign.op.startswith("setp_") and isinstance(value.args[1], Const):
                limit = value.args[1].value
                if isinstance(limit, int) and 0 < limit < _SEARCH_LIMIT:
                    limits.append(limit)
    return max(limits, default=None)


def _is_step(value: SsaValue, counter: SsaValue) -> bool:
    assign = value.assign
    if assign is None or assign.op != "add":
        return False
    return any(a is counter for a in value.args) and any(isinstance(a, Const) and a.value == 1 for a in value.args)


_SEARCH_LIMIT = 64


def _wrap_at(value: SsaValue) -> int | None:
    if value.assign is None:
        return None
    if value.assign.op == "xor" and any(isinstance(a, Const) and a.value == 1 for a in value.args):
        return 2
    if value.assign.op != "selp" or not any(isinstance(a, Const) and a.value == 0 for a in value.args[:2]):
        return None
    test = value.args[2]
    if not isinstance(test, SsaValue) or test.assign is None or not test.assign.op.startswith("setp_"):
        return None
    limit = test.args[1]
    return limit.value if isinstance(limit, Const) and isinstance(limit.value, int) else None
