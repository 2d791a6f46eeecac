"""What the rules on costly instructions in loops share: obligations per loop, findings per cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from verifier.analyses.sass.hot import Group, loop_location, within
from verifier.analyses.sass.side import SassSide
from verifier.findings import Hazard, Judgement, Severity, Verdict, WitnessStep
from verifier.model.cfg import Loop
from verifier.model.events import Event
from verifier.model.streams import Stream


class Costly(msgspec.Struct, frozen=True):
    """A kind of instruction that does not belong in a hot loop: `does` completes "<role> ... in a loop"."""

    name: str
    does: str


def clean_loops(side: SassSide, stream: Stream, events: Sequence[Event], what: Costly) -> Iterator[Judgement]:
    """A proof for every outermost hot loop without one of `events`."""
    loops: Sequence[Loop] = side.loops(stream).outermost
    for loop in loops:
        if not any(within(stream, [loop], event) for event in events):
            yield Judgement(
                verdict=Verdict.PROVED,
                role=side.model.role_of(stream),
                location=loop_location(side, stream, loop),
                reason=f"no {what.name} in this loop",
            )


def costly(
    side: SassSide, stream: Stream, group: Group, what: Costly, severity: Severity, fix: str, where: str = "in a loop"
) -> Judgement:
    """The finding for one cause: its PTX first, then each site with how often it runs."""
    role = side.model.role_of(stream)
    cause = group.cause
    witness = [_site(role, site.event, site.per, site.depth) for site in group.sites]
    if cause.instr is not None:
        witness.insert(0, WitnessStep(role=role, fact=f"{cause.name} emits it", location=cause.instr.location))
    message = f"{role} {what.does} {where}: {group.frequency}, caused by {cause.name}"
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=group.location,
        reason=message,
        message=message,
        severity=severity,
        hazard=Hazard.PERFORMANCE,
        witness=tuple(witness),
        fix=fix,
        shape=f"{cause.name}: {group.frequency}",
    )


def _site(role: str, event: Event, per: str, depth: int) -> WitnessStep:
    around = f"{depth} loop{'s' if depth > 1 else ''} around it" if depth else "in the wait's own loop"
    return WitnessStep(role=role, fact=f"{event.opcode}, once per {per}, {around}", location=event.location)
