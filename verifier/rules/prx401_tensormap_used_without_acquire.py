"""TMA goes through a tensor map in global memory that this warp has not acquired since the map was written.

What
    Each warp that issues a tensor copy (or prefetch) through a tensor map which is neither a kernel parameter nor in
    constant memory has executed `fence.proxy.tensormap::generic.acquire` on the address of that very map, on every
    path, after its last change. One acquire per change is enough: a later use of the same address needs none. An
    acquire covers 128 bytes: one map, not its neighbours in an array. A map that an earlier kernel wrote needs it, too,
    at `.gpu` scope or wider.

Why
    Tensor maps are read through a proxy and a cache of their own. Without the acquire the copy may use what stood at
    that address before: a stale shape or pointer, so wrong tiles or writes into foreign memory.

ISA
    PTX ISA 9.4, 9.7.15.4 "fence.proxy.tensormap" (covers [addr, addr+size), size 128), 8.9.4 (a kernel's start
    synchronizes all proxies but the tensormap proxy), 9.7.21 "tensormap.replace" (a weak generic write).

Bad
    ```ptx
    warp 0:
    fence.proxy.tensormap::generic.acquire.gpu [gmap], 128;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [gmap+128, {r1}], [buf];        // PRX401
    ```

Good
    ```ptx
    warp 0:
    fence.proxy.tensormap::generic.acquire.gpu [gmap+128], 128;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [gmap+128, {r1}], [buf];
    ```

Limits
    Addresses are compared as expressions: an acquire of an earlier iteration counts if a branch or a copied register
    shows that the address is the same. An acquire by any lane counts for its warp, one by another warp after a barrier
    of the CTA if the address is fixed. Where the first acquire is skipped if the index is the number that stands for
    none (-1), that is impossible if the range of the index shows it, else unknown. That the writer has released the map
    is not checked: it may be another kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.acquired import AcquireWalk, PathLimit, map_address
from verifier.analyses.facts import KernelFacts
from verifier.analyses.rewriting import TooDeep
from verifier.analyses.tensormaps import Acquires, Home, home
from verifier.analyses.visibility import acquires_map, names_map
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = (
    "acquire this map in this warp before its first use after each change: "
    "fence.proxy.tensormap::generic.acquire.gpu [map], 128 (CuTe DSL: fence_tma_desc_acquire), "
    "or pass the map as a kernel parameter"
)
_ODD = "an index that is the number for none (-1, say) skips the acquire; that it never is one is not shown"


@rule(code="PRX401", name="tensormap-used-without-acquire", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    acquires = Acquires(kernel, model)
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        uses = [(e, home(model, stream, map_address(flow, e))) for e in flow.select(names_map)]
        yield from (proved(model, stream, e, f"the map is in {h.value}") for e, h in uses if _is_safe(h))
        if all(_is_safe(h) for _, h in uses):
            continue
        try:
            walk = acquires.walk(stream)
        except (PathLimit, TooDeep):
            yield from (unknown(model, stream, e, "too many paths to follow each") for e, h in uses if not _is_safe(h))
            continue
        yield from (_judge(model, stream, walk, e, h) for e, h in uses if not _is_safe(h))


def _is_safe(where: Home) -> bool:
    return where in (Home.PARAMETER, Home.CONSTANT)


def _judge(model: KernelModel, stream: Stream, walk: AcquireWalk, use: Event, where: Home) -> Judgement:
    path = walk.bare.get(use.instr)
    if path is None and use.instr in walk.odd:
        return unknown(model, stream, use, _ODD)
    if path is None:
        return proved(model, stream, use, "acquired on every path since its address last changed")
    if where is Home.UNKNOWN:
        return unknown(model, stream, use, "whether the tensor map is in global memory cannot be told from its address")
    others = [e for e in path if acquires_map(e)]
    witness: tuple[WitnessStep, ...] = ()
    if others:
        fact = "acquires the 128 bytes of another map, or of this one before it changed"
        witness = (step(model, stream, others[-1], fact),)
    fact = "goes through a tensor map in global memory with no acquire of its address on the path from the entry"
    witness = (*witness, step(model, stream, use, fact))
    message = f"{model.role_of(stream)} issues TMA through a tensor map in global memory that it has not acquired"
    return violated(model, stream, use, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
