"""A TMEM stage is given away while a load of it may still be in flight.

What
    Every signal (mbarrier arrive, named barrier, cluster barrier) after which another role may write, refill or free
    tensor memory is preceded, on all paths, by `tcgen05.wait::ld` for every `tcgen05.ld` issued before it.

Why
    `tcgen05.ld` is asynchronous and not in program order: an arrive, even with release semantics, does not wait for it.
    The MMA warp that waits on the barrier may overwrite columns that are still being read; the epilogue then stores
    a mixture of two tiles. Nothing faults, and the race is rarely won in a test.

ISA
    PTX ISA 9.4, 9.7.18.6.4.4 "tcgen05 memory consistency: non-pipelined instructions, different thread" (ld, wait::ld,
    fence::before_thread_sync, mbarrier arrive); 9.7.18.8.5 "tcgen05.wait".

Bad
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];        // TCG101
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Limits
    Whether a load that comes after the signal reads columns that were given away needs phases and footprints: that is
    TCG103. A signal whose waiters first wait for a later signal of the same role is justified there, not here. Columns
    are compared where both addresses fold to constants; otherwise they may overlap.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.releases import Release, releases
from verifier.analyses.sass_evidence import evidence_for
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.sass_support import in_this_build
from verifier.rules.support import by_profile, proved, step, unknown, violated

_FIX = "put tcgen05.wait::ld (CuTe DSL: cute.arch.fence_view_async_tmem_load()) between the load and this release"


@rule(
    code="TCG101",
    name="release-before-tmem-load-completes",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for release in releases(kernel, model, Kind.TMEM_LOAD, Kind.TMEM_WAIT_LOAD):
        if not release.resolved:
            yield _unresolved(model, release)
        elif release.late:
            yield _violation(kernel, model, release, policy)
        elif release.given:
            reason = f"tcgen05.wait::ld on every path from {len(release.given)} load(s)"
            yield proved(model, release.stream, release.signal, reason)


def _unresolved(model: KernelModel, release: Release) -> Judgement:
    if release.late:
        reason = "a load is in flight and who waits on this barrier is not resolved"
        return unknown(model, release.stream, release.signal, reason)
    return proved(model, release.stream, release.signal, "no load is in flight")


def _violation(kernel: KernelFacts, model: KernelModel, release: Release, policy: Policy) -> Judgement:
    stream, signal, load = release.stream, release.signal, release.late[0]
    taker = dict(release.given)[load]
    path = kernel.flow(model, stream).find_path(load, lambda e: e is signal, lambda e: e.kind is Kind.TMEM_WAIT_LOAD)
    evidence = evidence_for(kernel, stream, signal, release.late)
    between = [e for e in path or () if e.kind in (Kind.TMEM_FENCE_BEFORE, Kind.WARP_SYNC)]
    witness = (
        step(model, stream, load, "issues a TMEM load, which completes at some later time"),
        *(step(model, stream, e, f"{e.opcode.split('.sync')[0]} does not complete the load") for e in between[:1]),
        step(model, stream, signal, "signals with no tcgen05.wait::ld on the path from the load: it may be in flight"),
        *in_this_build(model.role_of(stream), evidence),
        step(model, taker.stream, taker.wait, "waits for that signal"),
        step(model, taker.stream, taker.write, f"may now touch the same columns ({taker.write.kind.value})"),
    )
    receiver = model.role_of(taker.stream)
    message = f"{model.role_of(stream)} gives TMEM to {receiver} while a tcgen05.ld of it may be in flight"
    ordered = evidence.verdict is Verdict.PROVED
    severity = by_profile(policy, Severity.WARNING, Severity.ERROR) if ordered else Severity.ERROR
    return violated(model, stream, signal, message, severity=severity, witness=witness, fix=_FIX)
