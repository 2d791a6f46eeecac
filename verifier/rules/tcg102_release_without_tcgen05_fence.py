"""Tensor memory changes hands without the tcgen05 fences of the canonical chain.

What
    Where one role hands tensor memory to another, `tcgen05.fence::before_thread_sync` stands on every path between the
    TMEM access and the signal, and `tcgen05.fence::after_thread_sync` on every path between the wait and the next
    asynchronous tcgen05 operation. A commit implies the first of the two.

Why
    tcgen05 operations are not in program order: without the fences the compiler and the hardware may move them across
    the thread synchronization. ptxas does sink a `tcgen05.ld` below a relaxed arrive.

ISA
    PTX ISA 9.4, 9.7.18.6.3 "tcgen05.fence" and 9.7.18.6.4 canonical patterns; the same section says that the standard
    memory model applies too, which is why a release/acquire pair of adequate scope is judged more mildly in the
    default profile.

Bad
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [bar];        // TCG102
    warp 1:
    L1: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Limits
    Hand-offs are found as in TCG101. A wait whose barrier nobody is seen to hand tensor memory through is not checked.
    The fences lower to nothing in SASS: only PTX can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.analyses.handoff import SIGNAL_KINDS, Handoffs
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import TMEM_ASYNC, Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, unknown, violated

_RELEASED = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE, Kind.TMEM_COPY})
_FIX_BEFORE = "put tcgen05.fence::before_thread_sync between the access and the signal"
_FIX_AFTER = "put tcgen05.fence::after_thread_sync after the wait"


class _Handoff(msgspec.Struct, frozen=True):
    """`access` of `stream`, signalled by `signal`, seen by `wait` of `receiver`."""

    stream: Stream
    access: Event
    signal: Event
    receiver: Stream
    wait: Event


@rule(
    code="TCG102",
    name="release-without-tcgen05-fence",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    found: list[_Handoff] = []
    for stream in model.streams:
        yield from _releases(kernel, model, stream, policy, found)
    found += _commits(model)
    seen: set[tuple[int, int]] = set()
    for handoff in found:
        key = (id(handoff.receiver), handoff.wait.instr)
        if key not in seen:
            seen.add(key)
            yield from _acquire(kernel, model, handoff, policy)


def _releases(
    kernel: KernelFacts, model: KernelModel, stream: Stream, policy: Policy, found: list[_Handoff]
) -> Iterator[Judgement]:
    handoffs = Handoffs(kernel, model)
    flow = kernel.flow(model, stream)
    accesses = flow.select(lambda e: e.kind in _RELEASED)
    issued = flow.may_reach(accesses, lambda e: False)
    unfenced = flow.may_reach(accesses, lambda e: e.kind is Kind.TMEM_FENCE_BEFORE)
    for signal in flow.select(lambda e: e.kind in SIGNAL_KINDS):
        before = [(i, a) for i, a in enumerate(accesses) if issued.get(signal.instr, 0) >> i & 1]
        takers = [(i, a, handoffs.takers(stream, signal, a)) for i, a in before]
        if any(t is None for _, _, t in takers):
            yield unknown(model, stream, signal, "who waits on this barrier is not resolved")
            continue
        given = [_Handoff(stream, a, signal, t[0].stream, t[0].wait) for _, a, t in takers if t]
        found += [_Handoff(stream, a, signal, k.stream, k.wait) for _, a, t in takers for k in t or ()]
        if given:
            bare = next((h for h in given if unfenced.get(signal.instr, 0) >> accesses.index(h.access) & 1), None)
            if bare is None:
                yield proved(model, stream, signal, "fence::before_thread_sync on every path")
            else:
                yield _unfenced_release(model, bare, policy)


def _unfenced_release(model: KernelModel, handoff: _Handoff, policy: Policy) -> Judgement:
    signal = handoff.signal
    relaxed = signal.sem == "relaxed"
    severity = Severity.ERROR if relaxed else by_profile(policy, Severity.NOTE, Severity.ERROR)
    ordering = "a relaxed signal orders nothing" if relaxed else f"a {signal.sem}.{signal.scope} signal alone"
    witness = (
        step(model, handoff.stream, handoff.access, f"{handoff.access.kind.value} of columns that are handed over"),
        step(model, handoff.stream, signal, f"signals with no fence::before_thread_sync on the way: {ordering}"),
        step(model, handoff.receiver, handoff.wait, "waits for that signal and takes the columns over"),
    )
    message = (
        f"{model.role_of(handoff.stream)} hands TMEM to {model.role_of(handoff.receiver)} "
        "without tcgen05.fence::before_thread_sync"
    )
    return violated(
        model, handoff.stream, signal, message, severity=severity, witness=witness, fix=_FIX_BEFORE, between_warps=True
    )


def _commits(model: KernelModel) -> Iterator[_Handoff]:
    """Waits on barriers that a tcgen05 commit completes: they receive what the MMAs before it wrote."""
    for use in model.barriers.uses:
        if use.event.kind is Kind.TMEM_COMMIT:
            for other in model.barriers.on(use.barrier, (Kind.BARRIER_WAIT,)):
                yield _Handoff(use.stream, use.event, use.event, other.stream, other.event)


def _acquire(kernel: KernelFacts, model: KernelModel, handoff: _Handoff, policy: Policy) -> Iterator[Judgement]:
    """The receiving side of a hand-off: the fence between the wait and the next asynchronous operation."""
    flow = kernel.flow(model, handoff.receiver)
    wait = handoff.wait
    if not flow.may_reach([wait], lambda e: False) or flow.find_path(wait, _is_async, lambda e: False) is None:
        return
    path = flow.find_path(wait, _is_async, lambda e: e.kind is Kind.TMEM_FENCE_AFTER)
    if path is None:
        yield proved(model, handoff.receiver, wait, "fence::after_thread_sync on every path")
        return
    acquired = any(e.kind is Kind.FENCE and e.sem in ("acquire", "acq_rel", "sc") for e in path)
    relaxed = wait.sem == "relaxed" and not acquired
    severity = Severity.ERROR if relaxed else by_profile(policy, Severity.NOTE, Severity.ERROR)
    witness = (
        step(model, handoff.stream, handoff.signal, "hands tensor memory over"),
        step(model, handoff.receiver, wait, f"waits for it ({wait.sem}.{wait.scope})"),
        step(model, handoff.receiver, path[-1], "runs with no fence::after_thread_sync on the way from the wait"),
    )
    message = (
        f"{model.role_of(handoff.receiver)} takes TMEM over from {model.role_of(handoff.stream)} "
        "without tcgen05.fence::after_thread_sync"
    )
    yield violated(
        model, handoff.receiver, wait, message, severity=severity, witness=witness, fix=_FIX_AFTER, between_warps=True
    )


def _is_async(event: Event) -> bool:
    return event.kind in TMEM_ASYNC
