"""What the rules on protocols share: judgements that name the runs they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.judged import last_wait
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access
from verifier.analyses.protocol.slicing import writes_shared
from verifier.analyses.protocol.witness import location, role_at, step, warp_text
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


def waited(run: Machine, access: Access) -> list[WitnessStep]:
    """What the warp of an access last waited for, as a step of a witness; nothing if it never did."""
    wait = last_wait(run, access)
    if wait is None:
        return []
    fact = f"{warp_text(run, access.warp)} last waited for {wait.barrier.label}, phase {wait.meant}"
    return [step(run, access.warp, wait.instr, fact)]


def unconfirmed(run: Machine, instr: int) -> Judgement:
    """Unknown where only inputs that may not fit together, those of `run`, show that nothing orders two accesses."""
    reason = f"with {run.script.text}, nothing orders it with another access"
    return open_question(
        role_at(run, instr), location(run, instr), reason, run.code.model.function.instrs[instr].opcode
    )


def not_run(protocol: Protocol, *kinds: Kind) -> Iterator[Judgement]:
    """One unknown for the events of these kinds that no run came to."""
    yield from missing(protocol, protocol.unreached(*kinds))


def missing(protocol: Protocol, missed: list[Event]) -> Iterator[Judgement]:
    """One unknown for events that no run came to."""
    if missed and protocol.base is not None:
        reason = f"no run comes to this {missed[0].kind.value}"
        if len(missed) > 1:
            reason += f" and {len(missed) - 1} more"
        yield open_question(role_at(protocol.base, missed[0].instr), missed[0].location, reason, missed[0].opcode)


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


def first(kernel: KernelFacts, *kinds: Kind) -> Event | None:
    """The first event of these kinds, for obligations about a kernel as a whole."""
    assert kernel.ptx is not None
    return next((e for e in kernel.ptx.events if e.kind in kinds), None)


def shared_write(kernel: KernelFacts) -> Event | None:
    """The first write to shared memory that needs no barrier."""
    assert kernel.ptx is not None
    return next((e for e in kernel.ptx.events if writes_shared(e)), None)


def protocol_of(kernel: KernelFacts) -> Protocol:
    """The kernel's protocol, run when first asked for."""
    assert kernel.protocol is not None
    return kernel.protocol
