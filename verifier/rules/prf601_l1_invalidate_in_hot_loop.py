"""A loop invalidates the L1 cache in every round.

What
    No loop that does work contains `CCTL.IVALL`. A wait's own retry loop is not such a loop, but a loop around the wait
    is. Each invalidate is named with the PTX instruction that caused it, how often it runs, and the form without it.

Why
    `CCTL.IVALL` drops every line of the SM's L1 cache, also those of the other warps and CTAs. In a main loop each wait
    then sends every cached operand back to L2. The result is the same, the loop is slower.

ISA
    SASS of ptxas 12.9 to 13.5: acquire semantics at cluster scope or wider add `CCTL.IVALL` (ld, atom, fence, try_wait,
    barrier.cluster.wait), and so does `cp.async.bulk.wait_group` without `.read`. In PTX: 9.7.15.16.19 "try_wait".

Bad
    ```ptx
    cluster 2
    warp 0:
    mov.b32 r5, 0;
    L0: mapa.shared::cluster.u32 r6, buf, 0; mapa.shared::cluster.u32 r7, bar, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r6], r1, [r7];
    L1:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], r5;        // PRF601
    @!q bra L1;
    ld.shared.b32 r2, [buf]; add.u32 r3, r3, r2; xor.b32 r5, r5, 1;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    st.global.b32 [gp], r3;
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    mov.b32 r5, 0;
    L0: mapa.shared::cluster.u32 r6, buf, 0; mapa.shared::cluster.u32 r7, bar, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r6], r1, [r7];
    L1:
    mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], r5;
    @!q bra L1;
    fence.acquire.sync_restrict::shared::cluster.cluster;
    ld.shared.b32 r2, [buf]; add.u32 r3, r3, r2; xor.b32 r5, r5, 1;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    st.global.b32 [gp], r3;
    ```

Limits
    A form without the invalidate is offered only where SCP301 accepts it and no global memory is read behind the wait.
    Where none is known to be right, and for polls outside of any hot loop, it is a note that says what it costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.peers import peer_data
from verifier.analyses.sass.hot import Cause, groups
from verifier.analyses.sass.side import SassSide
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import acquires, includes
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream
from verifier.rules.hot_loops import Costly, clean_loops, costly
from verifier.rules.registry import rule
from verifier.rules.sass_support import doubted

_WHAT = Costly("CCTL.IVALL", "invalidates L1")
_RELAXED = (
    "wait with try_wait.relaxed.cluster in the same retry loop and put "
    "fence.acquire.sync_restrict::shared::cluster.cluster after it: the same order for shared memory, no invalidate"
)
_CTA = "wait with the default acquire.cta: no thread of a peer CTA completes this barrier"
_POLL = "poll with ld.relaxed of the same scope and put one acquire fence after the loop: one invalidate per wait"
_READ = "wait_group.read has no invalidate; it is enough where only the source buffer is used again"
_NONE = "no form without the invalidate is known to be right here: move the wait out of the loop, or accept the cost"


@rule(code="PRF601", name="l1-invalidate-in-hot-loop", hazard=Hazard.PERFORMANCE, since="0.1.0", isa=("sass",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side = kernel.machine
    assert side is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    for stream in side.model.streams:
        loops = side.loops(stream)
        sites = kernel.flow(side.model, stream).select(lambda e: e.kind is Kind.CACHE_INVALIDATE)
        looped = [e for e in sites if loops.depth(e.instr)]
        polled = [e for e in sites if not loops.depth(e.instr) and loops.spins(e.instr)]
        yield from clean_loops(side, stream, looped, _WHAT)
        for group in groups(side, stream, looped, _invalidates):
            fix = _advice(kernel, side, stream, group.cause, [s.event for s in group.sites])
            yield costly(side, stream, group, _WHAT, Severity.NOTE if fix == _NONE else Severity.WARNING, fix)
        for group in groups(side, stream, polled, _invalidates):
            if any(site.per == "poll" for site in group.sites):
                fix = _advice(kernel, side, stream, group.cause, [s.event for s in group.sites])
                yield costly(side, stream, group, _WHAT, Severity.NOTE, fix, "in a polling loop")


def _invalidates(event: Event) -> bool:
    """Whether a PTX event can have emitted CCTL.IVALL."""
    if event.kind in (Kind.CLUSTER_WAIT, Kind.BULK_WAIT, Kind.PROXY_FENCE):
        return True
    return acquires(event.sem) and includes(event.scope, "cluster")


def _advice(kernel: KernelFacts, side: SassSide, stream: Stream, cause: Cause, sites: list[Event]) -> str:
    event = cause.event
    if event is None:
        return _NONE
    if event.kind is Kind.BARRIER_WAIT:
        return _advice_for_wait(kernel, side, stream, event)
    if event.kind is Kind.BULK_WAIT:
        return _READ
    polls = event.kind in (Kind.LOAD, Kind.ATOMIC) and all(side.loops(stream).spins(site.instr) for site in sites)
    return _POLL if polls else _NONE


def _advice_for_wait(kernel: KernelFacts, side: SassSide, stream: Stream, wait: Event) -> str:
    """What SCP301 would accept in the place of an acquire at cluster scope, on every stream that waits here."""
    assert side.ptx is not None
    needs_cluster = False
    for other in side.join.streams(stream):
        if not other.runs(wait):
            continue
        flow = kernel.flow(side.ptx, other)
        data = peer_data(kernel, side.ptx, flow, wait)
        if data is None or not (data.threads or data.unresolved):
            continue
        needs_cluster = True
        reach = flow.may_reach([wait], lambda e: False)
        reads_global = any(e.kind is Kind.LOAD and reach.get(e.instr) and _may_be_global(e) for e in flow.events)
        if data.unresolved or reads_global:
            return _NONE
    return _RELAXED if needs_cluster else _CTA


def _may_be_global(load: Event) -> bool:
    return load.space in (None, "global") and not load.has("nc")
