"""Data is announced by an arrive that releases nothing.

What
    Before a relaxed arrive on a barrier of the own CTA, a release fence of CTA scope or wider stands on every path from
    the writes to shared memory that a waiter then reads. Tensor memory is ordered by the tcgen05 fences instead. Data
    for a peer CTA is SCP302.

Why
    A relaxed arrive moves the count and orders nothing: the waiter may see it before the data.

ISA
    PTX ISA 9.4, 8.8 "Release and acquire patterns" (a release fence, then a strong write), 9.7.15.16.16
    "mbarrier.arrive" (.relaxed gives no ordering).

Bad
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r2, [buf];
    warp 1:
    st.shared.b32 [buf], r1;
    mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];        // SCP305
    ```

Good
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r2, [buf];
    warp 1:
    st.shared.b32 [buf], r1;
    fence.acq_rel.cta;
    mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];
    ```

Limits
    Shared memory only. An arrive that frees a stage which was loaded from, and tells of no data, is reported mildly.
    Addresses are compared as numbers, for the values that loop counters take.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.barrierdata import BarrierData, Passed
from verifier.analyses.facts import KernelFacts
from verifier.analyses.visibility import releases_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.barriers import BarrierUse
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, violated

_FIX = "arrive with .release (the default), or put fence.acq_rel.cta between the writes and the arrive"


@rule(code="SCP305", name="data-published-by-relaxed-arrive", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    relaxed = [u for u in model.barriers.uses if u.event.kind is Kind.BARRIER_ARRIVE and u.event.sem == "relaxed"]
    data = BarrierData(kernel, model) if relaxed else None
    for use in relaxed:
        if data is not None and not use.remote:
            yield _judge(kernel, model, data, use, policy)


def _judge(kernel: KernelFacts, model: KernelModel, data: BarrierData, use: BarrierUse, policy: Policy) -> Judgement:
    flow = kernel.flow(model, use.stream)
    bare = [p for p in data.written(use) if flow.find_path(p.event, lambda e: e is use.event, _releases) is not None]
    loads = [p for p in data.read(use) if flow.find_path(p.event, lambda e: e is use.event, _releases) is not None]
    for wait in data.waits(use.barrier):
        found = data.first_use(wait.stream, wait.event, bare, lambda e: False)
        if found is not None:
            return _violation(model, use, wait, *found)
    for wait in data.waits(use.barrier):
        refilled = data.first_refill(wait.stream, wait.event, loads, lambda e: False)
        if refilled is not None:
            return _recycling(model, use, wait, *refilled, policy)
    return proved(model, use.stream, use.event, "no shared memory is read or refilled through it that needs a release")


def _releases(event: Event) -> bool:
    return releases_at(event, "cta")


def _violation(model: KernelModel, use: BarrierUse, wait: BarrierUse, passed: Passed, read: Event) -> Judgement:
    witness = (
        step(model, use.stream, passed.event, f"writes shared memory ({passed.event.kind.value})"),
        step(model, use.stream, use.event, "is relaxed: it orders nothing, and no release fence precedes"),
        step(model, wait.stream, wait.event, "waits for it"),
        step(model, wait.stream, read, f"reads the same bytes ({read.kind.value})"),
    )
    message = f"{model.role_of(use.stream)} announces data with an arrive that does not release it"
    return violated(model, use.stream, use.event, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _recycling(
    model: KernelModel, use: BarrierUse, wait: BarrierUse, passed: Passed, refill: Event, policy: Policy
) -> Judgement:
    witness = (
        step(model, use.stream, passed.event, "loads from shared memory"),
        step(model, use.stream, use.event, "is relaxed: it orders nothing, and no release fence precedes"),
        step(model, wait.stream, wait.event, "waits for it"),
        step(model, wait.stream, refill, "writes the same bytes"),
    )
    message = f"{model.role_of(use.stream)} frees shared memory with an arrive that does not release it"
    severity = by_profile(policy, Severity.NOTE, Severity.WARNING)
    return violated(model, use.stream, use.event, message, severity=severity, witness=witness, fix=_FIX)
