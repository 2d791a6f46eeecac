"""A TMEM store is announced before it has completed.

What
    Every signal after which another role may access tensor memory that this role stored to is preceded, on all
    paths, by
    `tcgen05.wait::st` for every `tcgen05.st` issued before it.

Why
    `tcgen05.st` is asynchronous: an arrive does not wait for it. The reader, often an MMA that takes its A operand from
    tensor memory, can see the old contents.

ISA
    PTX ISA 9.4, 9.7.18.6.4.4 (non-pipelined instructions, different thread), 9.7.18.8.5 "tcgen05.wait".

Bad
    ```ptx
    warp 0:
    tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {r2};
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];        // TCG105
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t+32], [t], bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {r2};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t+32], [t], bd, id, p;
    ```

Limits
    As for TCG101: hand-offs are told by barriers, columns where they fold to constants. Stores that another warp of the
    same role reads are not followed: each warp has lanes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.releases import Release, releases
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "put tcgen05.wait::st (CuTe DSL: cute.arch.fence_view_async_tmem_store()) between the store and this signal"


@rule(
    code="TCG105",
    name="tmem-store-published-before-complete",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for release in releases(kernel, model, Kind.TMEM_STORE, Kind.TMEM_WAIT_STORE):
        if release.late:
            yield _late(model, release)
        elif release.given or not release.resolved:
            yield proved(model, release.stream, release.signal, "tcgen05.wait::st on every path from each store")


def _late(model: KernelModel, release: Release) -> Judgement:
    stream, signal, store = release.stream, release.signal, release.late[0]
    if not release.resolved:
        return unknown(model, stream, signal, "a store is in flight and who waits on this barrier is not resolved")
    taker = dict(release.given)[store]
    witness = (
        step(model, stream, store, "issues a TMEM store, which completes at some later time"),
        step(model, stream, signal, "signals with no tcgen05.wait::st on the path from the store"),
        step(model, taker.stream, taker.wait, "waits for that signal"),
        step(model, taker.stream, taker.write, f"may see the old contents ({taker.write.kind.value})"),
    )
    message = f"{model.role_of(stream)} hands a TMEM store to {model.role_of(taker.stream)} that may not have completed"
    return violated(model, stream, signal, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
