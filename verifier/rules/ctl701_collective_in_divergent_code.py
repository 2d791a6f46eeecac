"""An instruction that needs the whole warp is reached by part of it.

What
    No `.aligned` instruction, full-mask `bar.warp.sync`, `mma.sync` or CTA barrier stands under a guard or a branch
    that the lanes of a warp take differently.

Why
    Such instructions exchange data among the lanes or count the warp as a whole. With lanes missing the result is
    undefined: a wrong product, a barrier that never completes.

ISA
    PTX ISA 9.4, 9.7.15.1 "bar": `.aligned` requires that all threads of the warp execute the same instruction; 9.7.18.5
    "tcgen05 issue granularity"; 9.7.15.15 "elect.sync" is no reconvergence.

Bad
    ```ptx
    elect.sync _|q, -1;
    @q tcgen05.wait::ld.sync.aligned;        // CTL701
    ```

Good
    ```ptx
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    tcgen05.wait::ld.sync.aligned;
    ```

Limits
    A branch on loaded data is taken to be the same in all lanes when the address is; where it may differ the answer is
    unknown. That all warps of a CTA reach a barrier is MBR203's and CTL703's question.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.divergence import Divergence, Split
from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "reconverge first (bar.warp.sync -1 after the branch), or run the instruction in all lanes"


@rule(code="CTL701", name="collective-in-divergent-code", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        collectives = kernel.flow(model, stream).select(_needs_warp)
        divergence = Divergence(model, stream) if collectives else None
        for event in collectives:
            assert divergence is not None
            yield _judge(model, stream, divergence, event)


def _needs_warp(event: Event) -> bool:
    if event.kind is Kind.COLLECTIVE or event.has("aligned") or event.opcode.startswith("wmma."):
        return True  # before PTX 6.3, .aligned was not written
    return event.kind in (Kind.CTA_SYNC, Kind.CTA_ARRIVE) and event.opcode.startswith("bar.")


def _judge(model: KernelModel, stream: Stream, divergence: Divergence, event: Event) -> Judgement:
    reads = stream.ssa.reads[event.instr]
    for guard in model.function.instrs[event.instr].guards:
        predicate = reads[guard.reg]
        if divergence.differs(predicate):
            return _divergent(model, stream, event, Split(event.instr, divergence.certainly_differs(predicate)))
    split = divergence.partial.get(stream.cfg.block_of[event.instr])
    if split is None:
        return proved(model, stream, event, "all lanes of the warp come here together")
    return _divergent(model, stream, event, split)


def _divergent(model: KernelModel, stream: Stream, event: Event, split: Split) -> Judgement:
    if not split.certain:
        return unknown(model, stream, event, "a branch before it may go different ways in the lanes of a warp")
    branch = model.function.instrs[split.instr]
    witness = (
        WitnessStep(
            role=model.role_of(stream), fact="is taken by some lanes of the warp only", location=branch.location
        ),
        step(model, stream, event, "needs all lanes of the warp, and gets part of them"),
    )
    message = f"{event.opcode} is reached by part of a warp"
    return violated(model, stream, event, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
