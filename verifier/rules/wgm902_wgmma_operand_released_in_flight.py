"""A shared-memory stage is released while the wgmma that reads it may still be in flight.

What
    An arrive after which the producer refills shared memory is preceded, on all paths, by a `wgmma.wait_group` that
    completes the wgmma that read it; at least one wait stands between every wgmma and the arrive.

Why
    wgmma reads its operands asynchronously. A stage that is refilled under it is multiplied half old, half new.

ISA
    PTX ISA 9.4, 9.7.17.7.2 "wgmma.wait_group": shared memory may be reused only after the group is complete.

Bad
    ```ptx
    warp 0:
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    mbarrier.arrive.shared::cta.b64 _, [bar];        // WGM902
    wgmma.wait_group.sync.aligned 0;
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [data], 64, [bar2];
    ```

Good
    ```ptx
    warp 0:
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0,f1,f2,f3}, ad, bd, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [data], 64, [bar2];
    ```

Limits
    With `wait_group N`, N > 0, the newest groups stay in flight on purpose, and the arrive names an older stage. That
    it does is taken from the runs of MEM401; where they do not show that no stage is refilled too early, it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.analyses.facts import KernelFacts
from verifier.analyses.groups import Groups
from verifier.analyses.protocol.judged import odd_races, races
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_REFILLS = frozenset({Kind.BULK_LOAD, Kind.COPY_ASYNC})
_FIX = "put wgmma.wait_group before the arrive that releases the stage"


@rule(code="WGM902", name="wgmma-operand-released-in-flight", hazard=Hazard.CONTRACT, since="0.1.0", arch=("sm_90",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        mmas = flow.select(lambda e: e.kind is Kind.WGMMA_MMA)
        issued = flow.may_reach(mmas, lambda e: False)
        bare = flow.may_reach(mmas, lambda e: e.kind is Kind.WGMMA_WAIT)
        groups = Groups(flow, mmas, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT)
        for arrive in flow.select(lambda e: e.kind is Kind.BARRIER_ARRIVE):
            if issued.get(arrive.instr) and _refilled(kernel, model, stream, arrive):
                late = [m for i, m in enumerate(mmas) if bare.get(arrive.instr, 0) >> i & 1]
                if late:
                    yield _violation(model, stream, arrive, late)
                elif not groups.before(arrive):
                    yield proved(model, stream, arrive, "every wgmma is complete on every path")
                elif _kept(kernel, mmas):
                    yield proved(model, stream, arrive, "no stage is refilled under a wgmma in flight (MEM401)")
                else:
                    reason = "a wgmma is in flight, and which stage it reads is not known"
                    yield unknown(model, stream, arrive, reason)


def _kept(kernel: KernelFacts, mmas: Sequence[Event]) -> bool:
    """Whether the runs read the operands of these wgmma, and nothing overwrites what one in flight reads."""
    protocol = kernel.protocol
    if protocol is None or protocol.base is None or protocol.doubt:
        return False
    sites = {event.instr for event in mmas}
    racing = {c.earlier.instr for found in races(protocol).values() for _, c in found} | set(odd_races(protocol))
    seen = protocol.base.traffic
    return sites <= seen.met.keys() - seen.unresolved.keys() and not racing & sites


def _violation(model: KernelModel, stream: Stream, arrive: Event, late: list[Event]) -> Judgement:
    witness = (
        step(model, stream, late[0], "reads shared memory, asynchronously"),
        step(model, stream, arrive, "lets the producer refill it, with no wgmma.wait_group on the way"),
    )
    message = f"{model.role_of(stream)} releases a stage that its wgmma may still be reading"
    return violated(model, stream, arrive, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _refilled(kernel: KernelFacts, model: KernelModel, stream: Stream, arrive: Event) -> bool:
    """Whether a role that waits for the arrive copies into shared memory then; for an unknown barrier any role may."""
    uses = model.barriers.of(stream, arrive)
    if not uses:
        return any(event.kind in _REFILLS for event in model.events)
    for use in uses:
        for other in model.barriers.on(use.barrier, (Kind.BARRIER_WAIT,)):
            flow = kernel.flow(model, other.stream)
            if flow.find_path(other.event, lambda e: e.kind in _REFILLS, lambda e: False) is not None:
                return True
    return False
