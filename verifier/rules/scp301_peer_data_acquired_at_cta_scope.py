"""Data that a peer CTA wrote is read after a wait whose scope does not reach the peer.

What
    A wait on a barrier that a peer CTA completes, and after which data written by the peer is read, acquires at cluster
    scope: it is `acquire.cluster`, or it is relaxed at cluster scope and an acquire fence of cluster scope or wider
    (`fence.acquire.sync_restrict::shared::cluster.cluster`, for one, where the data is in shared memory; it does not
    order global memory) stands on every path to the read.

Why
    A release and an acquire synchronize only if each names a scope that includes the other's thread. The default wait
    is `acquire.cta`: nothing orders the peer's stores before the reads, whatever today's hardware does.

ISA
    PTX ISA 9.4, 8.7 "Morally strong operations", 8.8 "Release and acquire patterns", 9.7.9.12 "st.async" (its
    completion is a release at cluster scope), 9.7.15.16.19 "mbarrier.try_wait" (default acquire.cta).

Bad
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r5, buf, 0;
    mapa.shared::cluster.u32 r6, bar, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r5], r1, [r6];
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;        // SCP301
    ld.shared.b32 r2, [buf];
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r5, buf, 0;
    mapa.shared::cluster.u32 r6, bar, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r5], r1, [r6];
    L1: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
    fence.acquire.sync_restrict::shared::cluster.cluster;
    ld.shared.b32 r2, [buf];
    ```

Limits
    The own bytes of a bulk load are accepted after an acquire of any scope, as PTX's examples do. A wait through which
    no data of a peer is seen to be read recycles a slot: it is reported mildly. Reads by the tensor core are not
    followed. Global memory counts where the waiting warp loads, through the same pointer, what the arriving warp itself
    has stored: two kernel parameters are taken to point to different memory. Which bytes those are may be unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.peers import PeerData, peer_data
from verifier.analyses.visibility import acquires_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import acquires, includes
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, unknown, violated

_FIX = (
    "wait with try_wait.relaxed.cluster in a loop, then fence.acquire.sync_restrict::shared::cluster.cluster "
    "(acquire.cluster is right, too, but invalidates L1)"
)


@rule(code="SCP301", name="peer-data-acquired-at-cta-scope", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not model.in_cluster:
        return
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for wait in flow.select(lambda e: e.kind is Kind.BARRIER_WAIT):
            data = peer_data(kernel, model, flow, wait)
            if data is not None:
                yield _judge(model, stream, flow, wait, data, policy)


def _judge(
    model: KernelModel, stream: Stream, flow: EventFlow, wait: Event, data: PeerData, policy: Policy
) -> Judgement:
    if data.unresolved:
        return unknown(model, stream, wait, data.unresolved)
    if not data.threads:
        return proved(model, stream, wait, "completed by bulk copies and commits: own bytes, any scope")
    found = _unordered(flow, wait, data.reads, "shared::cta") or _unordered(flow, wait, data.far, "global")
    if found is not None:
        return _violation(model, stream, wait, data, *found)
    doubt = _unordered(flow, wait, data.perhaps, "global")
    if doubt is not None:
        line = doubt[0].location.ptx_line
        reason = f"whether line {line} reads what a peer CTA stored to global memory before cannot be computed"
        return unknown(model, stream, wait, reason)
    if not (data.reads or data.far or data.perhaps):
        if includes(wait.scope, "cluster"):
            return proved(model, stream, wait, "recycles a slot, at cluster scope")
        return _recycling(model, stream, wait, data, policy)
    if acquires(wait.sem):
        return proved(model, stream, wait, f"{wait.sem}.{wait.scope}")
    return proved(model, stream, wait, "relaxed at cluster scope, an acquire fence on every path to the reads")


def _unordered(flow: EventFlow, wait: Event, reads: Sequence[Event], space: str) -> tuple[Event, str] | None:
    """(one of the reads, why nothing orders it after what the peer wrote); None when all are."""
    if not reads:
        return None
    if not includes(wait.scope, "cluster"):
        return reads[0], f"{wait.sem}.{wait.scope} does not include a peer CTA"
    if acquires(wait.sem):
        return None
    wanted = {e.instr for e in reads}
    bare = flow.find_path(wait, lambda e: e.instr in wanted, lambda e: acquires_at(e, "cluster", space))
    if bare is None:
        return None
    if any(acquires_at(e, "cluster") for e in bare):
        return bare[-1], "relaxed orders nothing, and the acquire fence is restricted to shared memory"
    return bare[-1], "relaxed orders nothing, and no acquire fence follows"


def _violation(model: KernelModel, stream: Stream, wait: Event, data: PeerData, read: Event, why: str) -> Judgement:
    writer = data.threads[0]
    witness = (
        step(
            model, writer.stream, writer.event, "in a peer CTA, writes here and completes this barrier at cluster scope"
        ),
        step(model, stream, wait, f"sees the barrier complete, but {why}"),
        step(model, stream, read, "reads what the peer wrote: nothing orders the write before it"),
    )
    message = f"{model.role_of(stream)} reads data of a peer CTA after a wait that does not acquire at cluster scope"
    return violated(model, stream, wait, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _recycling(model: KernelModel, stream: Stream, wait: Event, data: PeerData, policy: Policy) -> Judgement:
    writer = data.threads[0]
    witness = (
        step(model, writer.stream, writer.event, "in a peer CTA, arrives on this barrier"),
        step(model, stream, wait, f"waits with {wait.sem}.{wait.scope}, which does not include the peer"),
    )
    message = (
        f"{model.role_of(stream)} waits for a peer CTA at {wait.scope} scope; no data of the peer is read through it"
    )
    severity = by_profile(policy, Severity.NOTE, Severity.WARNING)
    fix = "write .relaxed.cluster (or .acquire.cluster) on the wait: the count is safe today, the model does not say so"
    return violated(model, stream, wait, message, severity=severity, witness=witness, fix=fix)
