"""A barrier is used before its initialization has been published.

What
    Every use of an mbarrier by another warp comes, on all paths, after a barrier that the initializing warp passes
    after
    `mbarrier.init`. Where a peer CTA uses it, `fence.mbarrier_init.release.cluster` or a releasing cluster arrive
    stands between the two as well, and the barrier in between is the cluster's.

Why
    Any operation on memory that is not yet a barrier object is undefined: the arrive is lost or the wait hangs.

ISA
    PTX ISA 9.4, 9.7.15.16.12 "mbarrier.init", 9.7.15.4 "fence.mbarrier_init" (its example: init, fence, cluster arrive
    and wait); 9.7.15.3 "barrier.cluster".

Bad
    ```ptx
    warp 0:
    mbarrier.init.shared::cta.b64 [bar], 1;
    bar.warp.sync -1;
    warp 1:
    mbarrier.arrive.shared::cta.b64 _, [bar];        // MBR204
    ```

Good
    ```ptx
    warp 0:
    mbarrier.init.shared::cta.b64 [bar], 1;
    bar.sync 0;
    warp 1:
    bar.sync 0;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Limits
    Order that a third warp passes on is not followed: then the answer is unknown. The fence is not asked for inside one
    CTA: bulk copies access their barrier through the generic proxy.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.ordering import WAITS, Ordering
from verifier.analyses.visibility import Rendezvous
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import releases
from verifier.model.barriers import BarrierUse
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_USES = frozenset(Kind) - {Kind.BARRIER_INIT, Kind.BARRIER_INVAL}
_FIX = "init in one thread, then fence.mbarrier_init.release.cluster, then a CTA (or cluster) barrier, then use"


@rule(code="MBR204", name="barrier-init-not-published", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    ordering = Ordering(kernel, model)
    for barrier in model.barriers.arrays:
        inits = model.barriers.on(barrier, (Kind.BARRIER_INIT,))
        for use in model.barriers.on(barrier, _USES):
            mine = [init for init in inits if init.stream.shares_cta(use.stream) or use.remote]
            if mine:
                yield _judge(kernel, model, ordering, mine, use)
    for stream, event in model.barriers.unresolved:
        yield unknown(model, stream, event, "the barrier's address is not resolved")


def _judge(
    kernel: KernelFacts, model: KernelModel, ordering: Ordering, inits: list[BarrierUse], use: BarrierUse
) -> Judgement:
    for init in inits:
        path = ordering.unordered_path(init.stream, init.event, use.stream, use.event)
        if path is not None:
            strange = next((event for event in model.events if event.kind is Kind.UNKNOWN), None)
            if strange is not None:
                reason = f"{strange.opcode}, which no table knows, may be a barrier"
                return unknown(model, use.stream, use.event, reason)
            return _unordered(kernel, model, init, use, path)
        if use.remote and not _fenced(kernel, model, init):
            return _unfenced(model, init, use)
    return proved(model, use.stream, use.event, "every path passes a barrier that follows the init")


def _unordered(
    kernel: KernelFacts, model: KernelModel, init: BarrierUse, use: BarrierUse, path: tuple[Event, ...]
) -> Judgement:
    passed = [e for e in path[:-1] if e.kind in WAITS and not init.stream.runs(e)]
    if passed:
        later = Rendezvous(kernel, model).follows(init.stream, init.event)
        if any((id(use.stream), e.instr) in later for e in passed):
            return unknown(model, use.stream, use.event, "only waits for other roles precede the use")
    witness = (
        step(model, init.stream, init.event, f"initializes {use.barrier.name}"),
        step(model, use.stream, use.event, "uses it: on this path no barrier that follows the init precedes"),
    )
    message = f"{model.role_of(use.stream)} may use {use.barrier.name} before it is initialized"
    return violated(
        model, use.stream, use.event, message, severity=Severity.ERROR, witness=witness, fix=_FIX, between_warps=True
    )


def _fenced(kernel: KernelFacts, model: KernelModel, init: BarrierUse) -> bool:
    """Whether each way from the init to the cluster barrier releases it to the cluster."""

    def arrives(event: Event) -> bool:
        return event.kind is Kind.CLUSTER_ARRIVE and not releases(event.sem)

    def fences(event: Event) -> bool:
        return event.kind is Kind.INIT_FENCE or (event.kind is Kind.FENCE and releases(event.sem))

    return kernel.flow(model, init.stream).find_path(init.event, arrives, fences) is None


def _unfenced(model: KernelModel, init: BarrierUse, use: BarrierUse) -> Judgement:
    witness = (
        step(model, init.stream, init.event, f"initializes {use.barrier.name}"),
        step(model, use.stream, use.event, "in a peer CTA, uses it: nothing released the init to the cluster"),
    )
    message = f"a peer CTA uses {use.barrier.name}, whose init no fence has released to the cluster"
    return violated(model, init.stream, init.event, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
