"""A proxy fence waits for global stores although only shared memory is handed over.

What
    A `fence.proxy.async` that publishes writes to shared memory names that state space (`.shared::cta`), unless the
    async proxy of this kernel may also read global memory that its threads wrote.

Why
    Without a state space the fence covers global memory, too: every warp of the epilogue waits until its earlier global
    stores have arrived. In one library the narrow form took a small GEMM from 84 to 90 percent of cuBLAS.

ISA
    PTX ISA 9.4, 9.7.15.4 "fence.proxy.async": with a state space the fence is limited to objects there; ptxas emits
    MEMBAR.ALL.GPU and FENCE.VIEW.ASYNC.G for the form without one.

Bad
    ```ptx
    warp 0:
    st.global.b32 [data], r2;
    st.shared.b32 [buf], r1;
    fence.proxy.async;        // PRF606
    bar.warp.sync -1;
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    ```

Good
    ```ptx
    warp 0:
    st.global.b32 [data], r2;
    st.shared.b32 [buf], r1;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    ```

Limits
    A kernel whose threads write global memory and which also loads by bulk copies is taken to need the wide form:
    whether a copy reads what was written cannot be told from a tensor map. Fences that too many threads execute are not
    counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.visibility import fences_shared, reads_async, writes_shared
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.proxies import ALL_SPACES, bridge
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "write fence.proxy.async.shared::cta (CuTe DSL: cute.arch.fence_view_async_shared())"


@rule(code="PRF606", name="too-wide-proxy-fence", hazard=Hazard.PERFORMANCE, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not any(reads_async(e) for e in model.events):
        return
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        writes = flow.select(writes_shared)
        published = flow.may_reach(writes, fences_shared)
        stored = flow.may_reach(flow.select(_writes_global), lambda e: False)
        for fence in flow.select(fences_shared):
            covered = published.get(fence.instr, 0)
            if covered:
                first = next(w for i, w in enumerate(writes) if covered >> i & 1)
                yield _judge(model, stream, fence, first, bool(stored.get(fence.instr)))


def _judge(model: KernelModel, stream: Stream, fence: Event, write: Event, stored: bool) -> Judgement:
    if bridge(fence.flags).spaces != ALL_SPACES:
        return proved(model, stream, fence, "names the state space of what it publishes")
    if stored and any(e.kind is Kind.BULK_LOAD for e in model.events):
        return proved(model, stream, fence, "bulk loads of this kernel may read what it stored to global memory")
    cost = "waits for the global stores before it, too" if stored else "covers global memory, too"
    witness = (
        step(model, stream, write, "writes shared memory, which is what the async proxy reads"),
        step(model, stream, fence, f"names no state space: it {cost}"),
    )
    message = f"{model.role_of(stream)} fences all state spaces where only shared memory is handed over"
    return violated(
        model,
        stream,
        fence,
        message,
        severity=Severity.NOTE,
        hazard=Hazard.PERFORMANCE,
        witness=witness,
        fix=_FIX,
    )


def _writes_global(event: Event) -> bool:
    return event.kind in (Kind.STORE, Kind.ATOMIC) and event.space in ("global", None)
