"""A CTA may exit while a peer can still signal or access its shared memory.

What
    Every access to a peer CTA (a remote arrive, st.async, a copy or a multicast into its shared memory, a remote load)
    is followed, on all paths to the exit, by an arrive on the cluster barrier, and the CTAs of the cluster wait for
    that barrier before they exit.

Why
    The shared memory of a CTA that has exited belongs to somebody else. A late remote access faults
    (cluster block not present), or writes into another CTA's data.

ISA
    CUDA Programming Guide, "Distributed shared memory": accesses must complete before the owner exits; PTX ISA 9.4,
    9.7.15.3 "barrier.cluster".

Bad
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r6, bar, 0;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];        // CTL702
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    mapa.shared::cluster.u32 r6, bar, 0;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ```

Limits
    A signal on a barrier that the peer waits for may be awaited in full before the exit (a producer's tail): whether
    the last one is needs phases and counts, and the answer here is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_SIGNALS = frozenset({Kind.BARRIER_ARRIVE, Kind.BARRIER_COMPLETE, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.BULK_PEER})
_ACCESSES = frozenset({Kind.STORE, Kind.ATOMIC, Kind.LOAD})
_SPREAD = frozenset({Kind.BULK_LOAD, Kind.TMEM_COMMIT, Kind.CLC_CANCEL})
_WORK = frozenset({Kind.BARRIER_WAIT, Kind.BARRIER_ARRIVE, Kind.BULK_LOAD, Kind.TMEM_LOAD, Kind.TMEM_MMA})
_FIX = "end the kernel with barrier.cluster.arrive and barrier.cluster.wait in all threads of the cluster"


@rule(code="CTL702", name="cta-exits-under-peer", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not model.in_cluster:
        return
    waits_last = any(_waits_before_exit(kernel, model, stream) for stream in model.streams)
    for stream in model.streams:
        for access in kernel.flow(model, stream).select(lambda e: _reaches_peer(model, stream, e)):  # noqa: B023
            yield _judge(kernel, model, stream, access, waits_last=waits_last)


def _reaches_peer(model: KernelModel, stream: Stream, event: Event) -> bool:
    if event.kind in _SIGNALS:
        return any(model.place(stream, event, place).remote for place in (event.barrier, event.address) if place)
    if event.kind in _ACCESSES:
        return event.address is not None and model.place(stream, event, event.address).remote
    return event.kind in _SPREAD and event.has("multicast::cluster")


def _judge(kernel: KernelFacts, model: KernelModel, stream: Stream, access: Event, *, waits_last: bool) -> Judgement:
    arrives = frozenset(e.instr for e in model.events if e.kind is Kind.CLUSTER_ARRIVE)
    path = kernel.flow(model, stream).find_path(access, _is_exit, lambda e: e.instr in arrives)
    if path is None and waits_last:
        return proved(model, stream, access, "the cluster barrier follows on every path, and is awaited before exit")
    uses = model.barriers.of(stream, access)
    if any(model.barriers.on(use.barrier, (Kind.BARRIER_WAIT,)) for use in uses):
        return unknown(
            model, stream, access, "the peer waits for this signal; whether for the last one is not decided here"
        )
    witness = (
        step(model, stream, access, "reaches into a peer CTA"),
        step(model, stream, path[-1] if path else access, "no cluster barrier keeps the peer from exiting before that"),
    )
    message = f"{model.role_of(stream)} accesses a peer CTA that may have exited"
    return violated(
        model, stream, access, message, severity=Severity.ERROR, witness=witness, fix=_FIX, between_warps=True
    )


def _is_exit(event: Event) -> bool:
    return event.kind is Kind.EXIT


def _waits_before_exit(kernel: KernelFacts, model: KernelModel, stream: Stream) -> bool:
    """Whether every path of the stream to its exit passes a cluster wait after which no more work is done."""
    flow = kernel.flow(model, stream)
    last = {
        wait.instr
        for wait in flow.select(lambda e: e.kind is Kind.CLUSTER_WAIT)
        if flow.find_path(wait, lambda e: e.kind in _WORK, lambda e: False) is None
    }
    return bool(last) and flow.find_path(None, _is_exit, lambda e: e.instr in last) is None
