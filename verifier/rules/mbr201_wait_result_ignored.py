"""Guarded data is used although no completed wait on its barrier precedes.

What
    The result of every `mbarrier.try_wait` / `test_wait` steers a retry: on no path on which it came back false is the
    data that the barrier guards used before another wait on the same barrier. A peek, whose result is carried into the
    next iteration or which a blocking wait follows, is fine.

Why
    `try_wait` returns false when its time limit expires, however the barrier stands. Code that goes on regardless
    reads a stage that is still being filled: rarely, under load, without a fault.

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
    Which data a barrier guards is told by what completes it: bulk copies and remote stores guard the bytes they
    write, a tcgen05 commit guards tensor memory and the stages it read, an arrive what its role wrote and read. That
    the wait names the right phase is MBR202.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.completion import FailedWait, PathLimit, result_is_read
from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.guarded import guarded_uses
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "loop until the wait returns true (CuTe DSL: cute.arch.mbarrier_wait, or a while loop around try_wait)"


@rule(code="MBR201", name="wait-result-ignored", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for wait in flow.select(lambda e: e.kind is Kind.BARRIER_WAIT):
            yield _judge(kernel, model, stream, flow, wait)


def _judge(kernel: KernelFacts, model: KernelModel, stream: Stream, flow: EventFlow, wait: Event) -> Judgement:
    barriers = [use.barrier for use in model.barriers.of(stream, wait)]
    if not barriers:
        return unknown(model, stream, wait, "the barrier's address is not resolved")
    touches = guarded_uses(kernel, model, barriers)
    reaches = guarded_uses(kernel, model, barriers, perhaps=True)

    def same_barrier(event: Event) -> bool:
        return event.kind is Kind.BARRIER_WAIT and any(
            use.barrier in barriers for use in model.barriers.of(stream, event)
        )

    retries = {e.instr for e in flow.events if same_barrier(e)}
    why = "the path on which the wait fails goes on without a retry"
    if not result_is_read(flow, wait):
        retries = {e.instr for e in flow.events if e.instr in retries and result_is_read(flow, e)}
        why = "its result is not read"

    def retry(event: Event) -> bool:
        return event.instr in retries

    try:
        found = _first_use(FailedWait(flow, wait, retry, lambda e: touches(stream, e)))
        near = found or _first_use(FailedWait(flow, wait, retry, lambda e: reaches(stream, e)))
    except PathLimit:
        return unknown(model, stream, wait, "too many paths from the wait to follow each")
    if found is not None:
        return _violation(model, stream, wait, found, why)
    if near is not None:
        line = near.location.ptx_line
        return unknown(model, stream, wait, f"whether the loop around PTX line {line} comes to the guarded data")
    return proved(model, stream, wait, "no use of guarded data before a wait that is retried")


def _first_use(failed: FailedWait) -> Event | None:
    """The first use of guarded data; what an earlier wait has seen complete before the result is tested is none."""
    found = failed.first_use(credit=False)
    if found is not None and failed.first_use(credit=True) is None and failed.covered:
        return None
    return found


def _violation(model: KernelModel, stream: Stream, wait: Event, use: Event, why: str) -> Judgement:
    names = ", ".join(sorted({u.barrier.name for u in model.barriers.of(stream, wait)}))
    witness = (
        step(model, stream, wait, f"tries barrier {names} once; it may return false at its time limit, and {why}"),
        step(model, stream, use, f"uses what the barrier guards ({use.kind.value}) though no completion was observed"),
    )
    message = f"{model.role_of(stream)} uses data guarded by {names} without having seen the barrier complete"
    return violated(model, stream, wait, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
