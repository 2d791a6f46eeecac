"""Data is read after a wait that acquires nothing.

What
    A relaxed wait on an mbarrier is followed, on every path to a read of what was written before the barrier's
    completion (by threads of the CTA or by a bulk load), by an acquire fence of CTA scope or wider. Tensor memory is
    ordered by the tcgen05 fences instead. Data of a peer CTA is SCP301.

Why
    A relaxed wait observes the count and nothing else: reads that follow may be satisfied before it returned.

ISA
    PTX ISA 9.4, 8.8 "Release and acquire patterns" (a relaxed read needs an acquire fence after it), 9.7.15.16.19
    "mbarrier.try_wait": only a wait with .acquire gives the guarantees that it lists.

Bad
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 q, [bar], 0; @!q bra L1;        // SCP304
    ld.shared.b32 r2, [buf];
    warp 1:
    st.shared.b32 [buf], r1;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Good
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 q, [bar], 0; @!q bra L1;
    fence.acq_rel.cta;
    ld.shared.b32 r2, [buf];
    warp 1:
    st.shared.b32 [buf], r1;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Limits
    Shared memory only. A wait after which a stage is refilled, and nothing is read, is reported mildly. Addresses are
    compared as numbers, for the values that loop counters take.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.barrierdata import BarrierData, Passed
from verifier.analyses.facts import KernelFacts
from verifier.analyses.visibility import acquires_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, unknown, violated

_FIX = "wait with .acquire (the default), or put fence.acq_rel.cta between the wait and the read"


@rule(code="SCP304", name="data-read-after-relaxed-wait", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    relaxed = [e for e in model.events if e.kind is Kind.BARRIER_WAIT and e.sem == "relaxed"]
    data = BarrierData(kernel, model) if relaxed else None
    for wait in relaxed:
        for stream in model.streams:
            if data is not None and stream.runs(wait):
                yield _judge(model, data, stream, wait, policy)


def _judge(model: KernelModel, data: BarrierData, stream: Stream, wait: Event, policy: Policy) -> Judgement:
    uses = data.uses(stream, wait)
    if not uses:
        return unknown(model, stream, wait, "the barrier's address is not resolved")
    completions = [c for use in uses for c in data.completions(use.barrier)]
    written = [passed for c in completions for passed in data.written(c)]
    found = data.first_use(stream, wait, written, _acquires)
    if found is not None:
        return _violation(model, stream, wait, *found)
    read = [passed for c in completions for passed in data.read(c)]
    refilled = data.first_refill(stream, wait, read, _acquires) or _refill_after_commit(model, data, stream, wait)
    if refilled is not None:
        return _recycling(model, stream, wait, *refilled, policy)
    return proved(model, stream, wait, "no shared memory is read or refilled through it before an acquire")


def _refill_after_commit(
    model: KernelModel, data: BarrierData, stream: Stream, wait: Event
) -> tuple[Passed, Event] | None:
    """A refill of what the MMAs before a commit on this barrier read."""
    for use in data.uses(stream, wait):
        for commit in model.barriers.on(use.barrier, (Kind.TMEM_COMMIT,)):
            mmas = [e for e in model.events if e.kind in (Kind.TMEM_MMA, Kind.TMEM_COPY) and commit.stream.runs(e)]
            read = [Passed(commit.stream, e, commit, data.footprints.read(commit.stream, e)) for e in mmas]
            found = data.first_refill(stream, wait, read, _acquires)
            if found is not None:
                return found
    return None


def _acquires(event: Event) -> bool:
    return acquires_at(event, "cta")


def _violation(model: KernelModel, stream: Stream, wait: Event, passed: Passed, read: Event) -> Judgement:
    witness = (
        step(model, passed.stream, passed.event, f"writes shared memory ({passed.event.kind.value})"),
        step(model, passed.stream, passed.use.event, "tells of it through the barrier"),
        step(model, stream, wait, "is relaxed: it orders nothing, and no acquire fence follows"),
        step(model, stream, read, f"reads the same bytes ({read.kind.value})"),
    )
    message = f"{model.role_of(stream)} reads data behind a barrier that it waits for without acquiring"
    return violated(model, stream, wait, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _recycling(
    model: KernelModel, stream: Stream, wait: Event, passed: Passed, refill: Event, policy: Policy
) -> Judgement:
    witness = (
        step(model, passed.stream, passed.event, f"reads shared memory ({passed.event.kind.value})"),
        step(model, stream, wait, "is relaxed: it orders nothing, and no acquire fence follows"),
        step(model, stream, refill, "writes the same bytes"),
    )
    message = f"{model.role_of(stream)} refills shared memory behind a barrier that it waits for without acquiring"
    severity = by_profile(policy, Severity.NOTE, Severity.WARNING)
    return violated(model, stream, wait, message, severity=severity, witness=witness, fix=_FIX)
