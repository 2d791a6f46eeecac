"""ptxas made asynchronous wgmma synchronous.

What
    The machine code waits for `wgmma` groups where the PTX does, and lets as many stay in flight; ptxas has not said
    that it serialized them.

Why
    When ordinary instructions touch registers of a `wgmma` in flight, or calls and register pressure stand in the way,
    ptxas gives the pipeline up and waits after every `wgmma`. The result is right, and the overlap is lost. All there
    is to see is one info line of a build log.

ISA
    PTX ISA 9.4, 9.7.16.5.2 "wgmma.mma_async"; ptxas messages C7504 to C7519; SASS `WARPGROUP.DEPBAR.LE gsb0, n`.

Bad
    ```ptx
    threads 128
    ld.global.b32 r8, [gp]; mov.b32 r4, 0;
    mov.b32 f0, 0f00000000; mov.b32 f1, 0f00000000; mov.b32 f2, 0f00000000; mov.b32 f3, 0f00000000;
    L0: wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, ad, bd, p, 1, 1, 0, 0;        // PRF605
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    mul.f32 f0, f0, 0f3F000000;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    wgmma.wait_group.sync.aligned 0;
    st.global.v4.f32 [gp], {f0, f1, f2, f3};
    ```

Good
    ```ptx
    threads 128
    ld.global.b32 r8, [gp]; mov.b32 r4, 0;
    mov.b32 f0, 0f00000000; mov.b32 f1, 0f00000000; mov.b32 f2, 0f00000000; mov.b32 f3, 0f00000000;
    L0: wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, ad, bd, p, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    wgmma.wait_group.sync.aligned 0;
    mul.f32 f0, f0, 0f3F000000;
    st.global.v4.f32 [gp], {f0, f1, f2, f3};
    ```

Limits
    Waits are compared through PTX lines; a build without line information shows only what ptxas said.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import AssemblerMessage, KernelFacts
from verifier.analyses.sass.side import SassSide
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import Const
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.sass_support import doubted
from verifier.rules.support import proved, step, violated

_CODES = frozenset(f"C75{number:02}" for number in range(4, 20)) - {"C7508"}
_FIX = "keep every access to accumulators and register operands out of the window between mma_async and wait_group"
_REGISTERS = "C7511"
_SMALLER = "take smaller tiles or give these warps more registers (setmaxnreg, fewer threads)"


@rule(
    code="PRF605",
    name="wgmma-serialized",
    hazard=Hazard.PERFORMANCE,
    since="0.1.0",
    isa=("ptx", "sass"),
    arch=("sm_90",),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side, model = kernel.machine, kernel.ptx
    assert side is not None
    assert model is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    said = [m for m in kernel.messages or () if m.code in _CODES and _is_about(m, model.function.name)]
    for stream in model.streams:
        waits = kernel.flow(model, stream).select(lambda e: e.kind is Kind.WGMMA_WAIT)
        for wait in waits:
            earlier = _earlier(side, stream, wait)
            if earlier is not None:
                yield _violation(model, stream, wait, said, earlier)
            elif _realized(side, stream, wait):
                yield proved(model, stream, wait, "the SASS lets as many groups stay in flight")
        mmas = kernel.flow(model, stream).select(lambda e: e.kind is Kind.WGMMA_MMA)
        added = _added(side, stream)
        if mmas and (said or added) and not any(_earlier(side, stream, wait) for wait in waits):
            yield _violation(model, stream, mmas[0], said, added)


def _is_about(message: AssemblerMessage, function: str) -> bool:
    return "in the function" not in message.text or f"'{function}'" in message.text


def _added(side: SassSide, stream: Stream) -> Event | None:
    """A SASS wait of the same warps that no wait of the PTX asks for."""
    if not side.join.has_lines:
        return None
    members = set(stream.members)
    streams = [s for s in side.model.streams if members & set(s.members)]
    for event in side.model.events:
        if event.kind is Kind.WGMMA_WAIT and any(s.runs(event) for s in streams) and not side.join.sources(event):
            return event
    return None


def _realized(side: SassSide, stream: Stream, wait: Event) -> list[Event]:
    """SASS waits of the same warps that come from `wait`."""
    members = set(stream.members)
    streams = [s for s in side.model.streams if members & set(s.members)]
    return [
        e
        for e in side.model.events
        if e.kind is Kind.WGMMA_WAIT and wait in side.join.sources(e) and any(s.runs(e) for s in streams)
    ]


def _earlier(side: SassSide, stream: Stream, wait: Event) -> Event | None:
    """A SASS wait from this line that leaves fewer groups in flight than the PTX asks for."""
    if not isinstance(wait.number, Const):
        return None
    for event in _realized(side, stream, wait):
        if isinstance(event.number, Const) and event.number.value < wait.number.value:
            return event
    return None


def _violation(
    model: KernelModel, stream: Stream, event: Event, said: list[AssemblerMessage], earlier: Event | None
) -> Judgement:
    role = model.role_of(stream)
    witness = [step(model, stream, event, "leaves wgmma groups in flight" if earlier else "is issued asynchronously")]
    if earlier is not None:
        witness.append(
            WitnessStep(role=role, fact=f"{earlier.opcode} waits for all of them", location=earlier.location)
        )
    witness += [WitnessStep(role=role, fact=f"ptxas: ({m.code}) {m.text}", location=event.location) for m in said]
    return violated(
        model,
        stream,
        event,
        f"{role} runs wgmma one after the other: ptxas serialized it",
        severity=Severity.WARNING,
        witness=tuple(witness),
        fix=_SMALLER if any(m.code == _REGISTERS for m in said) else _FIX,
        hazard=Hazard.PERFORMANCE,
    )
