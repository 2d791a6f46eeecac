"""The TMEM base address is read from shared memory before the allocation has been published.

What
    Every read of the slot that `tcgen05.alloc` writes, by another warp, comes after a barrier that the allocating warp
    passes after the allocation, on all paths: also on the path with no tile to compute.

Why
    `tcgen05.alloc` writes the address with a weak store. A warp that reads the slot first gets whatever was there, and
    then loads, computes or deallocates at that address.

ISA
    PTX ISA 9.4, 9.7.18.7.1 "tcgen05.alloc": the write of the address is a weak generic store; 8.9 causality order.

Bad
    ```ptx
    warp 0:
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [buf], 64;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    ld.shared.b32 r2, [buf];        // TCG107
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r3}, [r2];
    ```

Good
    ```ptx
    warp 0:
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [buf], 64;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    ld.shared.b32 r2, [buf];
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r3}, [r2];
    ```

Limits
    A slot reached through an address that does not fold to the same object and offset is not recognized as the slot.
    Order that a third warp passes on is not followed: then the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.ordering import WAITS, Ordering
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "put a barrier between the allocation and the read, on every path: also where the tile loop runs zero times"


@rule(
    code="TCG107",
    name="tmem-address-read-before-published",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    ordering = Ordering(kernel, model)
    allocs = [(s, e) for s in model.streams for e in model.events if e.kind is Kind.TMEM_ALLOC and s.runs(e)]
    for stream in model.streams:
        for read in kernel.flow(model, stream).select(lambda e: e.kind is Kind.LOAD):
            place = model.place(stream, read, read.address)
            for source, alloc in allocs:
                slot = model.place(source, alloc, alloc.address)
                if slot.resolved and slot == place and stream.shares_cta(source):
                    yield _judge(kernel, model, ordering, source, alloc, stream, read)


def _judge(
    kernel: KernelFacts,
    model: KernelModel,
    ordering: Ordering,
    source: Stream,
    alloc: Event,
    stream: Stream,
    read: Event,
) -> Judgement:
    path = ordering.unordered_path(source, alloc, stream, read)
    if path is None:
        return proved(model, stream, read, "a barrier that follows the allocation precedes the read")
    own = {e.instr for e in path if e.kind in WAITS and source.runs(e)}
    if any(e.kind in WAITS and e.instr not in own and e.kind is Kind.BARRIER_WAIT for e in path):
        return unknown(model, stream, read, "only waits for other roles precede the read")
    witness = (
        step(model, source, alloc, "allocates and writes the address to the slot"),
        step(model, stream, read, "reads the slot: on this path no barrier that follows the allocation precedes"),
    )
    message = f"{model.role_of(stream)} may read the TMEM address before {model.role_of(source)} has written it"
    return violated(
        model, stream, read, message, severity=Severity.ERROR, witness=witness, fix=_FIX, between_warps=True
    )
