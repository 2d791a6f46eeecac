"""Signals by which a role gives tensor memory away, and the accesses that may not have completed by then."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.feasible import may_follow
from verifier.analyses.flow import Test
from verifier.analyses.handoff import SIGNAL_KINDS, Handoffs, Taker
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream


class Release(msgspec.Struct, frozen=True):
    """`signal` of `stream` gives away what the accesses in `given` touch; those in `late` may still be in flight.

    `resolved` False: who waits for the signal is not known; then `given` is empty and `late` holds all that is in
    flight.
    """

    stream: Stream
    signal: Event
    given: tuple[tuple[Event, Taker], ...]
    late: tuple[Event, ...]
    resolved: bool


def releases(facts: KernelFacts, model: KernelModel, access: Kind, completion: Kind) -> Iterator[Release]:
    """Every signal that an access of kind `access` precedes; `completion` is the wait that completes such accesses."""
    handoffs = Handoffs(facts, model)
    for stream in model.streams:
        flow = facts.flow(model, stream)
        accesses = flow.select(lambda e: e.kind is access)
        issued = flow.may_reach(accesses, lambda e: False)
        pending = flow.may_reach(accesses, lambda e: e.kind is completion)
        for signal in flow.select(lambda e: e.kind in SIGNAL_KINDS):
            before = [a for i, a in enumerate(accesses) if issued.get(signal.instr, 0) >> i & 1]
            if before:
                late = {
                    a.instr
                    for i, a in enumerate(accesses)
                    if pending.get(signal.instr, 0) >> i & 1 and may_follow(flow, a, signal, _completes(completion))
                }
                yield _release(handoffs, stream, signal, before, late)


def _completes(completion: Kind) -> Test:
    return lambda event: event.kind is completion


def _release(handoffs: Handoffs, stream: Stream, signal: Event, before: list[Event], late: set[int]) -> Release:
    takers = [(access, handoffs.takers(stream, signal, access)) for access in before]
    if any(found is None for _, found in takers):
        return Release(stream, signal, (), tuple(a for a in before if a.instr in late), False)
    given = tuple((access, found[0]) for access, found in takers if found)
    return Release(stream, signal, given, tuple(a for a, _ in given if a.instr in late), True)
