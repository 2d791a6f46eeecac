"""A loop waits for the whole GPU's memory system in every round.

What
    No loop that does work contains a fence wider than the CTA: `MEMBAR.ALL.GPU`, `MEMBAR.ALL.SYS`, any `MEMBAR.SC`,
    or the `ERRBAR` that comes with them. Each is named with the PTX instruction that caused it and how often it runs.

Why
    Such a fence waits until every earlier write of the thread has reached L2. Semantics or a state space wider than
    what is handed over buy nothing: `release.cluster` on the arrive that gives back a TMEM stage, `fence.proxy.async`
    without `.shared::cta` before a TMA store are the usual ones. The result is the same, the loop is slower.

ISA
    SASS of ptxas 12.9 to 13.5: release or acq_rel at cluster scope or wider becomes `MEMBAR.ALL.GPU|SYS`, `ERRBAR`,
    `CGAERRBAR`; `fence.sc` and `membar` become `MEMBAR.SC`; `fence.proxy.async` without a state space becomes
    `MEMBAR.ALL.GPU`, with `.shared::cta` `MEMBAR.ALL.CTA`. PTX ISA 9.4, 9.7.13.4 "membar, fence".

Bad
    ```ptx
    warp 0:
    L0: st.shared.b32 [buf], r3;
    fence.proxy.async;        // PRF602
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    cp.async.bulk.wait_group.read 0;
    ```

Good
    ```ptx
    warp 0:
    L0: st.shared.b32 [buf], r3;
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
    add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    cp.async.bulk.wait_group.read 0;
    ```

Limits
    A fence that may publish ordinary stores is reported as a note: it costs, and it may be needed. A narrower form is
    offered only where nothing that the wider one covers is handed over in the same stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.hot import Group, groups
from verifier.analyses.sass.side import SassSide
from verifier.analyses.visibility import GENERIC_WRITES
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import includes, releases
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream
from verifier.rules.hot_loops import Costly, clean_loops, costly
from verifier.rules.registry import rule
from verifier.rules.sass_support import doubted

_WHAT = Costly("fence wider than the CTA", "fences at GPU scope")
_PROXY = "write fence.proxy.async.shared::cta: only shared memory is handed to the asynchronous proxy"
_ARRIVE = (
    "write .relaxed.cluster (with tcgen05.fence::before_thread_sync where tensor memory is handed over) or "
    ".release.cta: this role has written nothing that a cluster-scope release would publish"
)
_NEEDED = "keep it where other CTAs read what was stored before it; a narrower scope or a rarer fence is cheaper"


@rule(code="PRF602", name="gpu-fence-in-hot-loop", hazard=Hazard.PERFORMANCE, since="0.1.0", isa=("sass",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side = kernel.machine
    assert side is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    for stream in side.model.streams:
        loops = side.loops(stream)
        sites = [e for e in kernel.flow(side.model, stream).events if _is_wide(side, e)]
        looped = [e for e in sites if loops.depth(e.instr)]
        polled = [e for e in sites if not loops.depth(e.instr) and loops.spins(e.instr)]
        yield from clean_loops(side, stream, looped, _WHAT)
        for group in groups(side, stream, looped, _fences):
            fix = _advice(kernel, side, stream, group)
            yield costly(side, stream, group, _WHAT, Severity.WARNING if fix else Severity.NOTE, fix or _NEEDED)
        for group in groups(side, stream, polled, _fences):
            yield costly(side, stream, group, _WHAT, Severity.NOTE, _NEEDED, "in a polling loop")


def _is_wide(side: SassSide, event: Event) -> bool:
    """A wide MEMBAR, or an ERRBAR that belongs to none."""
    if event.kind is Kind.FENCE:
        return event.sem == "sc" or includes(event.scope, "gpu")
    if event.kind is not Kind.ERROR_BARRIER or event.opcode != "ERRBAR":
        return False
    before = side.model.event_at(event.instr - 1)
    return before is None or before.kind is not Kind.FENCE


def _fences(event: Event) -> bool:
    """Whether a PTX event can have emitted a wide fence."""
    if event.kind in (Kind.PROXY_FENCE, Kind.CLUSTER_ARRIVE):
        return True
    return releases(event.sem) and (event.sem == "sc" or includes(event.scope, "cluster"))


def _advice(kernel: KernelFacts, side: SassSide, stream: Stream, group: Group) -> str:
    """A narrower form that is right, or "" when none is known to be."""
    cause = group.cause.event
    if cause is None or side.ptx is None:
        return ""
    if cause.kind is Kind.PROXY_FENCE and cause.space is None and cause.has("async"):
        reads_global = any(e.kind is Kind.BULK_LOAD for e in side.ptx.events)
        writes_global = any(e.kind in GENERIC_WRITES and e.space in (None, "global") for e in side.ptx.events)
        return "" if reads_global and writes_global else _PROXY
    if cause.kind is Kind.BARRIER_ARRIVE:
        return "" if _publishes_stores(kernel, side, stream, cause) else _ARRIVE
    return ""


def _publishes_stores(kernel: KernelFacts, side: SassSide, stream: Stream, arrive: Event) -> bool:
    """Whether an ordinary store of the arriving warps may come before the arrive."""
    assert side.ptx is not None
    for other in side.join.streams(stream):
        flow = kernel.flow(side.ptx, other)
        stores = flow.select(lambda e: e.kind in GENERIC_WRITES)
        if flow.may_reach(stores, lambda e: False).get(arrive.instr):
            return True
    return False
