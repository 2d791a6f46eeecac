"""A TMA store or an MMA reads shared memory that threads wrote without a proxy fence.

What
    Before the async proxy reads shared memory that threads have written (a bulk store, tcgen05.mma, tcgen05.cp, wgmma),
    every thread that wrote has executed `fence.proxy.async` after its last write, and then synchronized with the thread
    that issues the read, on every path.

Why
    Stores go through the generic proxy; a barrier orders execution, not proxies. Without the fence the copy engine or
    the tensor core may read what stood in shared memory before. Tests rarely see it: the barrier takes long enough.

ISA
    PTX ISA 9.4, 9.7.15.4 "fence.proxy.async", 9.7.10.28.2 (bulk copies access shared memory through the async proxy),
    9.7.18.6.5 (tcgen05.mma and tcgen05.cp), 9.7.17.7 (wgmma), 8.6 "Proxies".

Bad
    ```ptx
    warp 0:
    st.shared.b32 [buf], r1;
    bar.warp.sync -1;
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;        // PRX402
    ```

Good
    ```ptx
    warp 0:
    st.shared.b32 [buf], r1;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    ```

Limits
    Which writes a read sees is told by addresses as numbers, for the values that loop counters take; a copy or an
    operand reaches to the next known stage. Where a signal's barrier is not resolved, any wait may be for it: unknown.
    A fence by the reading thread alone is not enough, except for what `cp.async` wrote. Reads before a refill (write
    after read) are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.asyncreads import AsyncReads, Handover
from verifier.analyses.facts import KernelFacts
from verifier.analyses.visibility import fences_shared, reads_async, writes_shared
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = (
    "let every thread that writes execute fence.proxy.async.shared::cta after its writes and before the barrier "
    "(CuTe DSL: cute.arch.fence_view_async_shared())"
)
_FIX_ORDER = "put a barrier of writers and issuer between the fence and the read"


@rule(code="PRX402", name="async-read-of-unfenced-generic-write", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not any(writes_shared(e) for e in model.events) or not any(reads_async(e) for e in model.events):
        return
    reads = AsyncReads(kernel, model)
    for stream in model.streams:
        for read in kernel.flow(model, stream).select(lambda e: reads_async(e) is not None):
            yield from _judge(model, reads, stream, read)


def _judge(model: KernelModel, reads: AsyncReads, stream: Stream, read: Event) -> Iterator[Judgement]:
    found, blind = reads.feeding(stream, read)
    lates = [h for writer, write in found if (h := reads.late(stream, read, writer, write))]
    stale = [(late, reads.replacement(stream, read, late)) for late in lates]
    late = next((late for late, fresh in stale if fresh is None), None)
    if late is not None:
        yield _violation(model, reads, stream, read, late)
        return
    loose = next(((w, x) for w, x in found if reads.loose(stream, read, w, x)), None)
    if loose is not None:
        yield _unordered(model, stream, read, *loose)
        return
    if stale:
        late, fresh = stale[0]
        assert fresh is not None
        old, new = late.write.location.ptx_line, fresh.location.ptx_line
        reason = f"whether line {new} has replaced what line {old} wrote, with no fence, cannot be computed"
        yield unknown(model, stream, read, reason)
        return
    doubt = next((h for writer, write in blind if (h := reads.late(stream, read, writer, write))), None)
    if doubt is not None:
        line = doubt.write.location.ptx_line
        yield unknown(
            model, stream, read, f"whether it reads what line {line} wrote, with no fence, cannot be computed"
        )
        return
    blurred = next((h for w, x in (*found, *blind) if (h := reads.perhaps_late(stream, read, w, x))), None)
    if blurred is not None and blurred.signal is not None:
        line = blurred.signal.location.ptx_line
        yield unknown(model, stream, read, f"who waits for line {line}, which no fence precedes, is not resolved")
    elif found or blind:
        yield proved(model, stream, read, "every thread that wrote has fenced before it signalled")


def _violation(model: KernelModel, reads: AsyncReads, stream: Stream, read: Event, late: Handover) -> Judgement:
    what = reads_async(read)
    steps = [step(model, late.writer, late.write, "writes shared memory through the generic proxy")]
    path = reads.flow(late.writer).find_path(late.write, lambda e: e is (late.signal or read), lambda e: False) or ()
    narrow = next((e for e in path if fences_shared(e)), None)
    if narrow is not None:
        steps.append(step(model, late.writer, narrow, "is not executed by every thread that wrote, on every path"))
    if late.signal is None:
        syncs = [e for e in path if e.kind in (Kind.CTA_SYNC, Kind.WARP_SYNC)]
        steps += [step(model, stream, e, "orders the execution of threads, not the proxies") for e in syncs[-1:]]
    elif late.receiver is not None:
        steps.append(step(model, late.writer, late.signal, "signals with no fence.proxy.async on the path"))
        if late.receiver.wait is not late.signal:
            steps.append(step(model, stream, late.receiver.wait, "waits for that signal"))
    steps += _own_fence(model, reads, stream, read, late)
    steps.append(step(model, stream, read, f"{what} reads the same bytes through the async proxy"))
    message = f"{model.role_of(stream)} issues a {what} of shared memory that was written without fence.proxy.async"
    return violated(model, stream, read, message, severity=Severity.ERROR, witness=tuple(steps), fix=_FIX)


def _unordered(model: KernelModel, stream: Stream, read: Event, writer: Stream, write: Event) -> Judgement:
    what = reads_async(read)
    witness = (
        step(model, writer, write, "writes shared memory, and fences"),
        step(model, stream, read, f"{what} reads the same bytes: no wait on the path here is for that warp"),
    )
    message = f"{model.role_of(stream)} issues a {what} of shared memory without waiting for the warps that write it"
    return violated(model, stream, read, message, severity=Severity.ERROR, witness=witness, fix=_FIX_ORDER)


def _own_fence(
    model: KernelModel, reads: AsyncReads, stream: Stream, read: Event, late: Handover
) -> Iterator[WitnessStep]:
    """A fence of the reader, which looks like the one that is missing."""
    if late.receiver is None:
        return
    path = reads.flow(stream).find_path(late.receiver.wait, lambda e: e is read, lambda e: False) or ()
    fence = next((e for e in path if fences_shared(e)), None)
    if fence is not None:
        yield step(model, stream, fence, "fences what the reading warp wrote itself, not what others wrote")
