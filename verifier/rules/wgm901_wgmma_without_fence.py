"""wgmma runs on registers that were written before it, with no wgmma.fence in between.

What
    Every `wgmma.mma_async` is preceded, on all paths, by `wgmma.fence`: before the first one, and between any other
    instruction that writes its accumulator or A registers and it. Consecutive wgmma on one accumulator need none.

Why
    The tensor core reads and writes registers asynchronously. Without the fence the order of register accesses is
    undefined, and ptxas may keep stale values or serialize the instructions.

ISA
    PTX ISA 9.4, 9.7.17.7.1 "wgmma.fence".

Bad
    ```ptx
    mov.f32 f0, 0f00000000;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;        // WGM901
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ```

Good
    ```ptx
    mov.f32 f0, 0f00000000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ```

Limits
    That consecutive wgmma have the same shape is not checked. ptxas emits the same code with and without the fence in
    many cases: the finding is about the contract.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "put wgmma.fence.sync.aligned before the first wgmma that follows the register write"


@rule(code="WGM901", name="wgmma-without-fence", hazard=Hazard.CONTRACT, since="0.1.0", arch=("sm_90",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for mma in flow.select(lambda e: e.kind is Kind.WGMMA_MMA):
            yield _judge(model, stream, flow, mma)


def _judge(model: KernelModel, stream: Stream, flow: EventFlow, mma: Event) -> Judgement:
    for writer in _writers(model, stream, mma):
        if flow.find_path(writer, lambda e: e is mma, _is_fence) is not None:
            return _violation(model, stream, writer, mma)
    first = flow.find_path(None, lambda e: e is mma, lambda e: _is_fence(e) or e.kind is Kind.WGMMA_MMA)
    if first is not None:
        return _violation(model, stream, None, mma)
    return proved(model, stream, mma, "wgmma.fence on every path from each register write")


def _is_fence(event: Event) -> bool:
    return event.kind is Kind.WGMMA_FENCE


def _writers(model: KernelModel, stream: Stream, mma: Event) -> list[Event]:
    """Places of the instructions, other than wgmma, whose results the wgmma's registers hold."""
    reads = stream.ssa.reads[mma.instr]
    work = [reads[reg] for reg in mma.registers if reg in reads]
    seen = {value.id for value in work}
    writers: dict[int, Event] = {}
    while work:
        value = work.pop()
        for source in _sources(value):
            if source.id not in seen:
                seen.add(source.id)
                work.append(source)
        if value.instr >= 0 and value.instr in stream.instructions:
            event = model.event_at(value.instr)
            if event is None or event.kind is not Kind.WGMMA_MMA:
                writers[value.instr] = _at(model, mma, value.instr)
    return list(writers.values())


def _sources(value: SsaValue) -> list[SsaValue]:
    """Values that a merge may hold; what a guarded write may have left in place."""
    merged = list((value.incoming or {}).values())
    return [*merged, value.old] if value.old is not None else merged


def _at(model: KernelModel, mma: Event, instr: int) -> Event:
    """A stand-in event for an instruction that has no meaning of its own."""
    instruction = model.function.instrs[instr]
    return msgspec.structs.replace(
        mma, kind=Kind.UNKNOWN, instr=instr, location=instruction.location, opcode=instruction.opcode
    )


def _violation(model: KernelModel, stream: Stream, writer: Event | None, mma: Event) -> Judgement:
    steps = [step(model, stream, mma, "uses the registers with no wgmma.fence on the way")]
    if writer is not None:
        steps.insert(0, step(model, stream, writer, "writes a register that the wgmma uses"))
    message = f"{model.role_of(stream)} runs wgmma on registers without wgmma.fence"
    return violated(model, stream, mma, message, severity=Severity.ERROR, witness=tuple(steps), fix=_FIX)
