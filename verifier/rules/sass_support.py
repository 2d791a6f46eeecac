"""What the rules on machine code share."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.side import SassSide
from verifier.analyses.sass_evidence import Evidence
from verifier.findings import Hazard, Judgement, Location, Severity, Verdict, WitnessStep
from verifier.model.events import Event, Kind
from verifier.rules.support import IN_THIS_BUILD, unknown


def distrusted(side: SassSide) -> Judgement:
    """The one answer where the control data of a cubin is not understood."""
    reason = side.cubin.distrust
    return Judgement(
        verdict=Verdict.UNKNOWN,
        role="all",
        location=Location(sass_offset=0),
        reason=reason,
        message=f"the machine code cannot be judged: {reason}",
        severity=Severity.WARNING,
        hazard=Hazard.CODEGEN,
        fix="is this nvdisasm too old for the architecture, or the encoding new? Report it with the cubin",
        shape="control data not understood",
    )


def doubted(side: SassSide) -> Iterator[Judgement]:
    """`distrusted`, where the machine code has encodings and they fail their self-check; nothing otherwise."""
    if side.cubin.has_encodings and side.cubin.distrust:
        yield distrusted(side)


def unguarded_uses(side: SassSide) -> Iterator[Judgement]:
    """Registers that are used before they are there: too few to doubt the encoding, and nothing that good code has."""
    check = side.cubin.checks.get(side.model.function.name)
    for miss in check.misses if check is not None else ():
        instr = side.model.function.instrs[miss.consumer]
        reason = f"{instr.opcode} uses a register without a wait for {miss.guard}"
        yield Judgement(
            verdict=Verdict.UNKNOWN,
            role="all",
            location=instr.location,
            reason=reason,
            message=f"the machine code is not understood or wrong: {reason}",
            severity=Severity.WARNING,
            hazard=Hazard.CODEGEN,
            fix="compare with the listing of another ptxas; if both have it, report this as a bug",
            shape=f"{instr.opcode}: {miss.guard}",
        )


def in_this_build(role: str, evidence: Evidence) -> tuple[WitnessStep, ...]:
    """The witness step that says what the machine code at hand does."""
    if evidence.verdict is Verdict.UNKNOWN:
        return (WitnessStep(role=role, fact=f"{IN_THIS_BUILD}not known ({evidence.text})", location=Location()),)
    return (WitnessStep(role=role, fact=f"{IN_THIS_BUILD}{evidence.text}", location=evidence.sink or Location()),)


def in_all_texts(event: Event, copy: Location | None) -> Location:
    """Where an event of the PTX stands in the source, in the PTX and, at `copy`, in the SASS."""
    known = event.location
    offset = copy.sass_offset if copy is not None else None
    return Location(ptx_line=known.ptx_line, sass_offset=offset, file=known.file, line=known.line)


def apart(kernel: KernelFacts, kinds: frozenset[Kind], reason: str) -> Iterator[Judgement]:
    """One unknown at the first event of these kinds, if there is any: PTX and SASS cannot be laid side by side."""
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        for event in kernel.flow(model, stream).select(lambda e: e.kind in kinds):
            yield unknown(model, stream, event, reason)
            return
