"""Registers of a wgmma are read or written before its group has been waited for.

What
    No instruction other than wgmma touches the accumulator or A registers of a `wgmma.mma_async` until a
    `wgmma.wait_group` that covers its group, on all paths.

Why
    The tensor core works on the registers asynchronously: a read sees a partial sum, a write is lost. ptxas notices
    some cases and serializes (C7514), which costs the overlap.

ISA
    PTX ISA 9.4, 9.7.17.7 "Async proxy and registers": accessing the registers before wait_group is undefined.

Bad
    ```ptx
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;        // WGM903
    wgmma.commit_group.sync.aligned;
    add.f32 f4, f0, f1;
    wgmma.wait_group.sync.aligned 0;
    ```

Good
    ```ptx
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    add.f32 f4, f0, f1;
    ```

Limits
    The A registers of a wgmma are taken to be its second operand. Groups are counted along paths; a wait whose count
    does not fold completes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.groups import Groups
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import Instr
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, violated

_FIX = "move the access below a wgmma.wait_group that covers the group"


@rule(code="WGM903", name="wgmma-registers-touched-in-flight", hazard=Hazard.CONTRACT, since="0.1.0", arch=("sm_90",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        mmas = flow.select(lambda e: e.kind is Kind.WGMMA_MMA)
        if mmas:
            touched = _touched(model, flow, mmas)
            for index, mma in enumerate(mmas):
                if index in touched:
                    yield _violation(model, stream, mma, touched[index])
                else:
                    yield proved(model, stream, mma, "its registers are untouched until wgmma.wait_group")


def _touched(model: KernelModel, flow: EventFlow, mmas: list[Event]) -> dict[int, Instr]:
    """Operation -> an instruction that touches its registers while it may be in flight."""
    groups = Groups(flow, mmas, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT)
    registers = [frozenset(mma.registers) for mma in mmas]
    own = {mma.instr for mma in mmas}
    found: dict[int, Instr] = {}
    for block in flow.cfg.reachable:
        states = list(groups.states(block))
        ends = [start for start, _ in states[1:]] + [flow.cfg.blocks[block].end]
        for (start, state), end in zip(states, ends, strict=True):
            for instr in model.function.instrs[start:end]:
                touched = {*instr.uses, *(assign.dst for assign in instr.assigns)}
                for operation in state if instr.index not in own else ():
                    if touched & registers[operation]:
                        found.setdefault(operation, instr)
    return found


def _violation(model: KernelModel, stream: Stream, mma: Event, touch: Instr) -> Judgement:
    role = model.role_of(stream)
    witness = (
        WitnessStep(role=role, fact="works on its registers asynchronously", location=mma.location),
        WitnessStep(
            role=role,
            fact=f"{touch.opcode} touches one of them; no wgmma.wait_group on the way covers the group",
            location=touch.location,
        ),
    )
    message = f"{role} touches registers of a wgmma that may still be in flight"
    return violated(model, stream, mma, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
