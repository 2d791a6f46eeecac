"""A barrier is used that nobody initializes.

What
    Every mbarrier that is arrived on, waited for, or named by a copy or a commit has an `mbarrier.init` in this kernel;
    of an array of barriers, each element.

Why
    Shared memory holds what the last CTA left there. As a barrier it means an arbitrary count and phase: the kernel
    hangs, or a wait returns at once.

ISA
    PTX ISA 9.4, 9.7.15.16.12 "mbarrier.init": any operation but init on memory that is no mbarrier object is undefined.

Bad
    ```ptx
    warp 0:
    mbarrier.init.shared::cta.b64 [bar], 1;
    bar.warp.sync -1;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    mbarrier.arrive.shared::cta.b64 _, [bar2];        // MBR207
    ```

Good
    ```ptx
    warp 0:
    mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.init.shared::cta.b64 [bar2], 1;
    bar.warp.sync -1;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    mbarrier.arrive.shared::cta.b64 _, [bar2];
    ```

Limits
    How far an array reaches is told by the comparison that wraps its stage. Whether the init comes first, and is
    published, is MBR204.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict
from verifier.model.barriers import BARRIER_BYTES, Barrier, BarrierUse, stage_bound
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.values import Symbol
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "initialize every barrier of the array before the barrier of the CTA (and the cluster) that publishes them"


@rule(code="MBR207", name="barrier-never-initialized", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    ready = _initialized(model)
    for barrier in model.barriers.arrays:
        uses = [u for u in model.barriers.uses if u.barrier is barrier and u.event.kind is not Kind.BARRIER_INIT]
        if uses:
            judged = _judge(model, barrier, uses[0], ready)
            astray = _astray(kernel) if judged.verdict is Verdict.PROVED else ""
            yield unknown(model, uses[0].stream, uses[0].event, astray) if astray else judged


def _astray(kernel: KernelFacts) -> str:
    """A run that uses what is no initialized barrier: the array may be longer than its inits, which bound it here."""
    protocol = kernel.protocol
    wrong = [run for run in protocol.failures.runs if run.misused] if protocol is not None else []
    return f"the run with {wrong[0].script.text} stops at {wrong[0].problem}" if wrong else ""


def _initialized(model: KernelModel) -> set[tuple[Symbol, int]] | None:
    """(object, offset) of every barrier that has an init; None when an init's address is not known."""
    found: set[tuple[Symbol, int]] = set()
    if any(e.kind is Kind.BARRIER_INIT for _, e in model.barriers.unresolved):
        return None
    for use in model.barriers.uses:
        if use.event.kind is not Kind.BARRIER_INIT or use.place.base is None:
            continue
        length = stage_bound(use.stream, use.place) if use.place.stage else 1
        if length is None:
            return None
        for offset in use.place.offsets:
            found |= {(use.place.base, offset + BARRIER_BYTES * i) for i in range(length)}
    return found


def _judge(model: KernelModel, barrier: Barrier, use: BarrierUse, ready: set[tuple[Symbol, int]] | None) -> Judgement:
    if ready is None:
        return unknown(model, use.stream, use.event, "the address of an init is not resolved")
    offsets = [barrier.offset + BARRIER_BYTES * i for i in range(barrier.stages)]
    missing = [offset for offset in offsets if (barrier.base, offset) not in ready]
    if not missing:
        return proved(model, use.stream, use.event, "each barrier of the array has an init")
    which = f"element {(missing[0] - barrier.offset) // BARRIER_BYTES} of {barrier.name}"
    name = which if barrier.stages > 1 else barrier.name
    witness = (step(model, use.stream, use.event, f"uses {name}, for which there is no mbarrier.init"),)
    message = f"{model.role_of(use.stream)} uses {name}, which nobody initializes"
    return violated(model, use.stream, use.event, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
