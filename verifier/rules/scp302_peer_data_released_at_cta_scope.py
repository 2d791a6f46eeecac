"""Data that a peer CTA will read is published by a signal whose scope does not reach the peer.

What
    An arrive on the barrier of another CTA, after which that CTA reads what this one has written with ordinary stores,
    releases at cluster scope: it is `release.cluster`, or it is relaxed at cluster scope and a release fence of cluster
    scope or wider stands on every path from the writes. So does an arrive on the cluster barrier. A fence restricted to
    `shared::cta` covers the CTA's own shared memory only, not what was stored into a peer's or to global memory.

Why
    The default arrive is `release.cta`, also with `.shared::cluster`: the count moves, but nothing orders the stores
    before the peer's reads. The consumer sees "full" and reads the previous tile, once in thousands of runs.

ISA
    PTX ISA 9.4, 8.7 "Morally strong operations", 8.8 "Release and acquire patterns", 9.7.15.16.16 "mbarrier.arrive"
    (default release.cta), 9.7.15.4 "fence" (`sync_restrict`).

Bad
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r5, buf, 1;
    mapa.shared::cluster.u32 r6, bar, 1;
    st.shared::cluster.u32 [r5], r1;
    mbarrier.arrive.shared::cluster.b64 _, [r6];        // SCP302
    L1: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r2, [buf];
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r5, buf, 1;
    mapa.shared::cluster.u32 r6, bar, 1;
    st.shared::cluster.u32 [r5], r1;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];
    L1: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r2, [buf];
    ```

Limits
    What the peer reads is told by its loads after the wait: of this CTA's memory, of regions that this CTA stores to,
    and of global memory where both use the same pointer (two kernel parameters are taken to point to different memory)
    and the arriving warp itself stores. Reads by the tensor core are not followed. An arrive through which no data is
    seen to pass is reported mildly.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.clusterdata import WRITES, Crossing, crossings
from verifier.analyses.facts import KernelFacts
from verifier.analyses.peers import peer_data
from verifier.analyses.visibility import releases_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import includes, releases
from verifier.model.events import Event, Kind, in_global, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, unknown, violated

_FIX = (
    "arrive with .release.cluster, or put fence.acq_rel.cluster before a relaxed.cluster arrive; for the CTA's own "
    "shared memory fence.release.sync_restrict::shared::cta.cluster is the cheap form"
)


class _Arrive(msgspec.Struct):
    """A remote arrive: who waits for it, and the reads that follow the wait.

    `far`: they are of global memory, where this warp stores; not `certain`: whether of the same bytes is not known.
    """

    stream: Stream
    event: Event
    receiver: Stream
    wait: Event
    reads: tuple[Event, ...] = ()
    far: bool = False
    certain: bool = True


@rule(code="SCP302", name="peer-data-released-at-cta-scope", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not model.in_cluster:
        return
    for arrive in _arrives(kernel, model):
        yield _judge(kernel, model, arrive, policy)
    yield from (_judge_crossing(model, crossing) for crossing in crossings(kernel, model))
    for stream, event in model.barriers.unresolved:
        narrow = not includes(event.scope, "cluster") or not releases(event.sem)
        if event.kind is Kind.BARRIER_ARRIVE and narrow and model.place(stream, event, event.barrier).remote:
            yield unknown(model, stream, event, "the peer's barrier is not resolved")


def _arrives(kernel: KernelFacts, model: KernelModel) -> list[_Arrive]:
    """Every remote arrive once: with a wait after which its data is read, if there is one; again for global memory."""
    found: dict[tuple[int, int], _Arrive] = {}
    far: dict[tuple[int, int], _Arrive] = {}
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for wait in flow.select(lambda e: e.kind is Kind.BARRIER_WAIT):
            data = peer_data(kernel, model, flow, wait)
            if data is None:
                continue
            for use in (use for use in data.threads if use.event.kind is Kind.BARRIER_ARRIVE):
                key = (id(use.stream), use.event.instr)
                if key not in found or (data.reads and not found[key].reads):
                    found[key] = _Arrive(use.stream, use.event, stream, wait, data.reads)
                reads = data.far or data.perhaps
                if reads and (key not in far or (data.far and not far[key].certain)):
                    far[key] = _Arrive(use.stream, use.event, stream, wait, reads, True, bool(data.far))
    return [a for key, a in found.items() if a.reads or key not in far] + list(far.values())


def _judge(kernel: KernelFacts, model: KernelModel, arrive: _Arrive, policy: Policy) -> Judgement:
    stream, event = arrive.stream, arrive.event
    wide = includes(event.scope, "cluster")
    if wide and releases(event.sem):
        return proved(model, stream, event, f"{event.sem}.{event.scope}")
    if not arrive.reads:
        if wide:
            return proved(model, stream, event, "publishes nothing that the peer is seen to read")
        return _recycling(model, arrive, policy)
    bare = _unfenced(kernel, model, arrive) if wide else None
    if wide and bare is None:
        return proved(model, stream, event, "relaxed at cluster scope, a release fence on every path from the writes")
    if not arrive.certain:
        line = arrive.reads[0].location.ptx_line
        reason = f"whether line {line} of the peer reads what was stored to global memory before cannot be computed"
        return unknown(model, stream, event, reason)
    if not wide:
        return _violation(model, arrive, None, f"{event.sem}.{event.scope} does not include the peer")
    return _violation(model, arrive, bare, "relaxed orders nothing, and no release fence covers the writes")


def _unfenced(kernel: KernelFacts, model: KernelModel, arrive: _Arrive) -> Event | None:
    """A write, or a barrier behind which others wrote, from which a path with no release fence leads to the arrive."""
    flow = kernel.flow(model, arrive.stream)
    for source in flow.events:
        written = source.kind in WRITES and (in_global(source) if arrive.far else in_shared(source))
        if not written and (source.kind is not Kind.CTA_SYNC or arrive.far):
            continue
        space = "shared::cta"
        if written and (arrive.far or model.place(arrive.stream, source, source.address).remote):
            space = "global" if arrive.far else "shared::cluster"

        def covered(event: Event, space: str = space) -> bool:
            return releases_at(event, "cluster", space)

        if flow.find_path(source, lambda e: e is arrive.event, covered) is not None:
            return source
    return None


def _judge_crossing(model: KernelModel, found: Crossing) -> Judgement:
    """An arrive on the cluster barrier before which data for a peer is written."""
    if releases(found.arrive.sem):
        return proved(model, found.stream, found.arrive, f"{found.arrive.sem}.cluster")
    if not found.bare:
        return proved(model, found.stream, found.arrive, "relaxed, a release fence on every path from the writes")
    arrive = _Arrive(found.stream, found.arrive, found.receiver, found.wait, (found.read,))
    return _violation(model, arrive, found.write, "relaxed orders nothing, and no release fence covers the write")


def _violation(model: KernelModel, arrive: _Arrive, write: Event | None, why: str) -> Judgement:
    stream = arrive.stream
    steps = (
        [] if write is None else [step(model, stream, write, "comes before the arrive: what is written must be seen")]
    )
    steps += [
        step(model, stream, arrive.event, f"tells a peer CTA that its data is there, but {why}"),
        step(model, arrive.receiver, arrive.wait, "in the peer CTA, waits for it"),
        step(model, arrive.receiver, arrive.reads[0], "reads the data: nothing orders the write before it"),
    ]
    message = (
        f"{model.role_of(stream)} publishes data to a peer CTA with an arrive that does not release at cluster scope"
    )
    return violated(model, stream, arrive.event, message, severity=Severity.ERROR, witness=tuple(steps), fix=_FIX)


def _recycling(model: KernelModel, arrive: _Arrive, policy: Policy) -> Judgement:
    stream, event = arrive.stream, arrive.event
    witness = (
        step(model, stream, event, f"arrives with {event.sem}.{event.scope}, which does not include the peer"),
        step(model, arrive.receiver, arrive.wait, "in the peer CTA, waits for it"),
    )
    message = f"{model.role_of(stream)} signals a peer CTA at {event.scope} scope; no data is seen to pass through it"
    severity = by_profile(policy, Severity.NOTE, Severity.WARNING)
    fix = "write .relaxed.cluster on the arrive: the count is safe today, the model does not say so"
    return violated(model, stream, event, message, severity=severity, witness=witness, fix=fix)
