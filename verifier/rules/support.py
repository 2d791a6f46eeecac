"""Small things that every rule needs: witness steps, and judgements that carry the right location and shape."""

from __future__ import annotations

from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Profile, Severity, Verdict, WitnessStep
from verifier.model.events import Event
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream

IN_THIS_BUILD = "in this build: "  # begins a step about the machine code at hand: no part of a finding's identity
NO_BLOCK = "which warps run what is not known without the block size (--block)"


def step(model: KernelModel, stream: Stream, event: Event, fact: str) -> WitnessStep:
    return WitnessStep(role=model.role_of(stream), fact=fact, location=event.location)


def proved(model: KernelModel, stream: Stream, event: Event, reason: str) -> Judgement:
    return Judgement(
        verdict=Verdict.PROVED, role=model.role_of(stream), location=event.location, reason=reason, shape=event.opcode
    )


def unknown(model: KernelModel, stream: Stream, event: Event, reason: str) -> Judgement:
    return Judgement(
        verdict=Verdict.UNKNOWN,
        role=model.role_of(stream),
        location=event.location,
        reason=reason,
        message=f"cannot be decided: {reason}",
        severity=Severity.WARNING,
        shape=f"{event.opcode}: {reason}",
    )


def violated(
    model: KernelModel,
    stream: Stream,
    event: Event,
    message: str,
    *,
    severity: Severity,
    witness: tuple[WitnessStep, ...],
    fix: str,
    reason: str = "",
    hazard: Hazard = Hazard.CONTRACT,
    between_warps: bool = False,
) -> Judgement:
    """`between_warps`: it takes two warps that run different code, which cannot be told without the block size."""
    if between_warps and model.shape.block is None:
        return unknown(model, stream, event, NO_BLOCK)
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=model.role_of(stream),
        location=event.location,
        reason=reason or message,
        message=message,
        severity=severity,
        hazard=hazard,
        witness=witness,
        fix=fix,
        shape="|".join((event.opcode, *(s.fact for s in witness if not s.fact.startswith(IN_THIS_BUILD)))),
    )


def by_profile(policy: Policy, default: Severity, isa: Severity) -> Severity:
    """Severity of one row of the policy table (docs/verdicts.md)."""
    return isa if policy.profile is Profile.ISA else default
