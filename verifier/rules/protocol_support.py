"""What the rules on protocols share: judgements that name the runs they rest on."""

from __future__ import annotations

from verifier.analyses.protocol.explore import Protocol
from verifier.findings import Judgement, Location, Severity, Verdict, WitnessStep
from verifier.model.events import Event, Kind


def holds(protocol: Protocol, role: str, location: Location, reason: str, shape: str) -> Judgement:
    """Proved for the inputs that the runs stand for; unknown when the runs prove nothing."""
    if protocol.doubt:
        return open_question(role, location, protocol.doubt, shape)
    return Judgement(
        verdict=Verdict.PROVED, role=role, location=location, reason=f"{reason}; {protocol.claim}", shape=shape
    )


def open_question(role: str, location: Location, reason: str, shape: str) -> Judgement:
    return Judgement(
        verdict=Verdict.UNKNOWN,
        role=role,
        location=location,
        reason=reason,
        message=f"cannot be decided: {reason}",
        severity=Severity.WARNING,
        shape=f"{shape}: {reason}",
    )


def broken(
    role: str, location: Location, message: str, witness: tuple[WitnessStep, ...], fix: str, shape: str
) -> Judgement:
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=location,
        reason=message,
        message=message,
        witness=witness,
        fix=fix,
        shape=shape,
    )


def first(protocol: Protocol, *kinds: Kind) -> Event | None:
    """The first event of these kinds, for obligations about a kernel as a whole."""
    return next((e for e in protocol.model.events if e.kind in kinds), None)
