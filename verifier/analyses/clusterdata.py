"""Data that crosses the cluster barrier: written to shared memory before an arrive, read by a peer after the wait."""

from __future__ import annotations

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import Test
from verifier.analyses.visibility import GENERIC_WRITES, releases_at, writes_shared
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.places import Place, may_overlap
from verifier.model.streams import Stream

WRITES = GENERIC_WRITES


class Crossing(msgspec.Struct, frozen=True):
    """What `stream` wrote with `write` goes through `arrive` and `wait` to `read` in another CTA.

    `bare`: a path leads from the write to the arrive on which no release fence of cluster scope covers it.
    """

    stream: Stream
    write: Event
    arrive: Event
    receiver: Stream
    wait: Event
    read: Event
    bare: bool


def covers(event: Event, remote: bool) -> bool:
    """Whether a fence releases a write to the cluster; `remote`: one to the memory of another CTA."""
    return releases_at(event, "cluster", "shared::cluster" if remote else "shared::cta")


def crossings(facts: KernelFacts, model: KernelModel) -> list[Crossing]:
    """One for each arrive on the cluster barrier that hands data over; a bare one if there is any."""
    reads = [read for stream in model.streams for read in _reads(facts, model, stream)]
    found = []
    for stream in model.streams if reads else ():
        flow = facts.flow(model, stream)
        for arrive in flow.select(lambda e: e.kind is Kind.CLUSTER_ARRIVE):
            passed = [c for c in (_crossing(facts, model, stream, arrive, *read) for read in reads) if c is not None]
            if passed:
                found.append(next((c for c in passed if c.bare), passed[0]))
    return found


def _crossing(
    facts: KernelFacts, model: KernelModel, stream: Stream, arrive: Event, receiver: Stream, wait: Event, read: Event
) -> Crossing | None:
    flow = facts.flow(model, stream)
    to = model.place(receiver, read, read.address)
    others = frozenset(e.instr for e in flow.events if e.kind is Kind.CLUSTER_ARRIVE and e is not arrive)
    best: Crossing | None = None
    for write in flow.select(writes_shared):
        place = model.place(stream, write, write.address)
        if place.remote == to.remote or not _same(place, write.width or None, to, read.width or None):
            continue
        if flow.find_path(write, lambda e: e is arrive, lambda e: e.instr in others) is None:
            continue
        fences = frozenset(e.instr for e in flow.events if covers(e, place.remote)) | others
        path = flow.find_path(write, lambda e: e is arrive, _among(fences))
        best = Crossing(stream, write, arrive, receiver, wait, read, path is not None)
        if best.bare:
            return best
    return best


def _among(instrs: frozenset[int]) -> Test:
    return lambda event: event.instr in instrs


def _reads(facts: KernelFacts, model: KernelModel, stream: Stream) -> list[tuple[Stream, Event, Event]]:
    """(stream, cluster wait, load of shared memory that follows it before the next such wait)."""
    flow = facts.flow(model, stream)
    found = []
    for wait in flow.select(lambda e: e.kind is Kind.CLUSTER_WAIT):
        reach = flow.may_reach([wait], lambda e: e.kind is Kind.CLUSTER_WAIT)
        loads = flow.select(lambda e: e.kind is Kind.LOAD and in_shared(e))
        found += [(stream, wait, load) for load in loads if reach.get(load.instr)]
    return found


def _same(a: Place, a_width: int | None, b: Place, b_width: int | None) -> bool:
    """Whether two places are known to be able to meet: the same object, and bytes that may be the same."""
    return a.base is not None and a.base is b.base and may_overlap(a, a_width, b, b_width)
