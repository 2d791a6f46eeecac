"""An arrive releases at cluster scope although nothing is published through it.

What
    An arrive with `.release.cluster` (or wider) publishes something: an ordinary write to memory that may come before
    it and that a peer may read, the read of a slot that a peer refills, or tensor memory handed over without a tcgen05
    fence. In a loop the same holds for arrives on the cluster barrier, whose default is release.

Why
    Each such arrive waits until all earlier writes of the thread are visible to the GPU (MEMBAR.ALL.GPU, ERRBAR and
    CGAERRBAR in the machine code). Where only a count, TMEM or bulk-copied bytes change hands, that is pure cost.

ISA
    PTX ISA 9.4, 9.7.15.16.16 "mbarrier.arrive" and 9.7.15.3 "barrier.cluster" (`.relaxed` orders nothing), 9.7.18.6.4
    (the canonical TMEM chain uses relaxed arrives and tcgen05 fences).

Bad
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r6, bar, 1;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];        // PRF607
    L1: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
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
    Any ordinary write of the CTA to global or shared memory that some path brings to the arrive counts as published,
    also if nobody reads it: the advice is given only where the rules on peers' data (SCP301, SCP302) still hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow, Test
from verifier.analyses.visibility import GENERIC_WRITES, SIGNALS, WAITS, Rendezvous
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import includes, releases
from verifier.model.events import TMEM_ASYNC, Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.places import may_overlap
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_REFILLS = frozenset({Kind.STORE, Kind.ATOMIC, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE})
_FIX = (
    "write .relaxed.cluster (with tcgen05.fence::before_thread_sync where tensor memory is handed over): "
    "nothing that was written before needs the release"
)


@rule(code="PRF607", name="needless-cluster-release", hazard=Hazard.PERFORMANCE, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    meetings = Rendezvous(kernel, model)
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for arrive in [e for e in flow.events if _releases_widely(stream, e)]:
            published = _published(meetings, model, flow, arrive)
            if published is not None:
                yield proved(model, stream, arrive, f"publishes the {published.kind.value} at line {_line(published)}")
            else:
                yield _violation(model, stream, arrive)


def _releases_widely(stream: Stream, event: Event) -> bool:
    if event.kind is Kind.BARRIER_ARRIVE:
        return releases(event.sem) and includes(event.scope, "cluster")
    looped = bool(stream.cfg.loops_of(stream.cfg.block_of[event.instr]))
    return event.kind is Kind.CLUSTER_ARRIVE and releases(event.sem) and looped


def _published(meetings: Rendezvous, model: KernelModel, flow: EventFlow, arrive: Event) -> Event | None:
    """An access before the arrive that the release is good for."""
    own = [e for e in flow.events if _needs_release(model, flow, e)]
    tmem = [e for e in flow.events if e.kind in TMEM_ASYNC]
    ordered: Test = lambda e: e.kind is Kind.TMEM_FENCE_BEFORE  # noqa: E731
    never: Test = lambda e: False  # noqa: E731
    for accesses, kills in ((own, never), (tmem, ordered)):
        reached = flow.may_reach(accesses, kills).get(arrive.instr, 0)
        found = next((e for i, e in enumerate(accesses) if reached >> i & 1), None)
        if found is not None:
            return found
    return _of_others(meetings, model, flow, arrive)


def _needs_release(model: KernelModel, flow: EventFlow, event: Event) -> bool:
    """An ordinary write, or a read of shared memory that threads of some CTA overwrite from afar."""
    if event.kind in GENERIC_WRITES:
        return in_shared(event, perhaps=True) or event.space == "global"
    if event.kind is not Kind.LOAD or not in_shared(event):
        return False
    place = model.place(flow.stream, event, event.address)
    if place.remote:
        return True
    refills = [(s, e) for s in model.streams for e in model.events if e.kind in _REFILLS and s.runs(e)]
    places = [(model.place(s, e, e.address), e.width or None) for s, e in refills]
    return any(to.remote and may_overlap(place, event.width or None, to, width) for to, width in places)


def _of_others(meetings: Rendezvous, model: KernelModel, flow: EventFlow, arrive: Event) -> Event | None:
    """A write of another warp that it has handed to this one before the arrive: the release covers it, too."""
    waits = flow.select(lambda e: e.kind in WAITS)
    before = flow.may_reach(waits, lambda e: False).get(arrive.instr, 0)
    passed = {e.instr for i, e in enumerate(waits) if before >> i & 1}
    for other in model.streams if passed else ():
        theirs = meetings.flow(other)
        writes = theirs.select(lambda e: e.kind in GENERIC_WRITES)
        reach = theirs.may_reach(writes, lambda e: False)
        for signal in (e for e in theirs.events if e.kind in SIGNALS and reach.get(e.instr)):
            found = meetings.receivers(other, signal)
            if found is None or any(r.stream is flow.stream and r.wait.instr in passed for r in found):
                return next(w for i, w in enumerate(writes) if reach[signal.instr] >> i & 1)
    return None


def _violation(model: KernelModel, stream: Stream, arrive: Event) -> Judgement:
    witness = (
        step(
            model, stream, arrive, f"releases at {arrive.scope} scope: it waits for every earlier write to be visible"
        ),
    )
    message = f"{model.role_of(stream)} releases at cluster scope with nothing to publish"
    return violated(
        model,
        stream,
        arrive,
        message,
        severity=Severity.NOTE,
        hazard=Hazard.PERFORMANCE,
        witness=witness,
        fix=_FIX,
        between_warps=True,
    )


def _line(event: Event) -> int | None:
    return event.location.ptx_line
