"""Guarded data is used although no completed wait on its barrier precedes.

What
    The result of every `mbarrier.try_wait` / `test_wait` steers a retry: on no path on which it came back false is the
    data that the barrier guards used before another wait on the same barrier. A peek, whose result is carried into the
    next iteration or which a blocking wait follows, is fine.

Why
    `try_wait` returns false when its time limit expires, however the barrier stands. Code that goes on regardless reads a
    stage that is still being filled: rarely, under load, without a fault.

ISA
    PTX ISA 9.4, 9.7.15.16.19 "mbarrier.test_wait, mbarrier.try_wait": only a wait that returned True has observed the
    completion of the phase; try_wait may return False after a system-dependent time limit.

Bad
    ```ptx
    warp 0:
    mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0;        // MBR201
    ld.shared.b32 r1, [buf];
    st.global.b32 [gp], r1;
    warp 1:
    st.shared.b32 [buf], r2;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Good
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r1, [buf];
    st.global.b32 [gp], r1;
    warp 1:
    st.shared.b32 [buf], r2;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Limits
    Which data a barrier guards is told by what completes it: bulk copies and remote stores guard shared memory, a
    tcgen05 commit guards tensor memory and the stages it read, plain arrivals guard either. That the wait names the
    right phase is MBR202.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verifier.analyses.completion import FailedWait
from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.barriers import Barrier
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_SHARED_USES = frozenset({Kind.LOAD, Kind.TMEM_MMA, Kind.WGMMA_MMA, Kind.TMEM_COPY, Kind.BULK_STORE, Kind.BULK_PEER})
_TMEM_USES = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE, Kind.TMEM_MMA, Kind.TMEM_DEALLOC, Kind.TMEM_COPY})
_REFILLS = frozenset({Kind.BULK_LOAD, Kind.STORE, Kind.ASYNC_STORE, Kind.COPY_ASYNC})
_FIX = "loop until the wait returns true (CuTe DSL: cute.arch.mbarrier_wait, or a while loop around try_wait)"


@rule(code="MBR201", name="wait-result-ignored", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for wait in flow.select(lambda e: e.kind is Kind.BARRIER_WAIT):
            yield _judge(model, stream, flow, wait)


def _judge(model: KernelModel, stream: Stream, flow: EventFlow, wait: Event) -> Judgement:
    barriers = [use.barrier for use in model.barriers.of(stream, wait)]
    if not barriers:
        return unknown(model, stream, wait, "the barrier's address is not resolved")
    uses = _guarded_uses(model, barriers)

    def same_barrier(event: Event) -> bool:
        return event.kind is Kind.BARRIER_WAIT and any(
            use.barrier in barriers for use in model.barriers.of(stream, event)
        )

    failed = FailedWait(flow, wait, same_barrier, uses)
    if not failed.result_is_read:
        return _ignored(model, stream, flow, wait, same_barrier, uses)
    found = failed.first_use(credit=_observed_before(model, flow, wait, same_barrier))
    if found is None:
        return proved(model, stream, wait, "a failed wait leads to a retry before guarded data is used")
    return _violation(model, stream, wait, found[-1], "the path on which the wait fails goes on without a retry")


def _ignored(
    model: KernelModel,
    stream: Stream,
    flow: EventFlow,
    wait: Event,
    same_barrier: Callable[[Event], bool],
    uses: Callable[[Event], bool],
) -> Judgement:
    """A result nobody reads proves nothing: then some other wait must precede every use that follows."""
    steering = {
        e.instr
        for e in flow.events
        if same_barrier(e) and FailedWait(flow, e, same_barrier, uses).result_is_read and flow.certain(e)
    }
    reach = flow.may_reach([wait], lambda e: e.instr in steering)
    unseen = flow.find_path(None, lambda e: uses(e) and bool(reach.get(e.instr)), lambda e: e.instr in steering)
    if unseen is None:
        return proved(model, stream, wait, "a hint only: a wait that is retried precedes every use")
    return _violation(model, stream, wait, unseen[-1], "its result is not read")


def _observed_before(model: KernelModel, flow: EventFlow, wait: Event, same_barrier: Callable[[Event], bool]) -> bool:
    """Whether every path from the entry to `wait` passes another wait on the same barrier, or reaches no use."""
    others = {e.instr for e in flow.events if same_barrier(e) and e is not wait}
    return flow.find_path(None, lambda e: e is wait, lambda e: e.instr in others) is None


def _guarded_uses(model: KernelModel, barriers: list[Barrier]) -> Callable[[Event], bool]:
    """Events that touch what these barriers guard."""
    completers = {use.event.kind for use in model.barriers.uses if use.barrier in barriers}
    kinds: frozenset[Kind] = frozenset()
    if completers & {Kind.BULK_LOAD, Kind.BULK_PEER, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.CLC_CANCEL}:
        kinds |= _SHARED_USES
    if Kind.TMEM_COMMIT in completers:
        kinds |= _TMEM_USES | _REFILLS
    if not kinds:
        kinds = _SHARED_USES | _TMEM_USES | _REFILLS

    def uses(event: Event) -> bool:
        if event.kind in (Kind.LOAD, Kind.STORE):
            return event.kind in kinds and event.space in (None, "shared", "shared::cta", "shared::cluster")
        return event.kind in kinds

    return uses


def _violation(model: KernelModel, stream: Stream, wait: Event, use: Event, why: str) -> Judgement:
    names = ", ".join(sorted({u.barrier.name for u in model.barriers.of(stream, wait)}))
    witness = (
        step(model, stream, wait, f"tries barrier {names} once; it may return false at its time limit, and {why}"),
        step(model, stream, use, f"uses what the barrier guards ({use.kind.value}) though no completion was observed"),
    )
    message = f"{model.role_of(stream)} uses data guarded by {names} without having seen the barrier complete"
    return violated(model, stream, wait, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
