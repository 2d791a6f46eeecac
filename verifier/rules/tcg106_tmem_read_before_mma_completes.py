"""Tensor memory is read before the MMA that writes it is known to have completed.

What
    Every `tcgen05.ld` of columns that an MMA writes comes, on all paths, after a wait on a barrier that
    `tcgen05.commit` completes.

Why
    MMAs are asynchronous. Neither a fence nor an ordinary arrive by the issuing thread says that they are done: only
    the arrive that commit makes does. A load that comes too early reads a partial sum.

ISA
    PTX ISA 9.4, 9.7.18.6.4.2 "non-pipelined instructions, same thread", 9.7.18.12.1 "tcgen05.commit": tracks
    completion of the thread's earlier asynchronous tcgen05 operations.

Bad
    ```ptx
    warp 0:
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    tcgen05.fence::before_thread_sync;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];        // TCG106
    ```

Good
    ```ptx
    warp 0:
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    ```

Limits
    Whether the wait is for the phase of the right MMA is MBR202. Completion that another role observes and passes on
    through a barrier is not followed: then the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.handoff import Handoffs, overlap
from verifier.analyses.ordering import WAITS
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import ANNOUNCEMENTS, Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "commit the MMA to an mbarrier and wait for its phase before the load"
_Mma = tuple[Stream, Event]


@rule(
    code="TCG106",
    name="tmem-read-before-mma-completes",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    handoffs = Handoffs(kernel, model)
    mmas = [(s, e) for s in model.streams for e in model.events if e.kind is Kind.TMEM_MMA and s.runs(e)]
    commits = frozenset(use.barrier for use in model.barriers.uses if use.event.kind is Kind.TMEM_COMMIT)

    for stream in model.streams:
        for load in kernel.flow(model, stream).select(lambda e: e.kind is Kind.TMEM_LOAD):
            mine = handoffs.columns(stream, load)
            writer = next((m for m in mmas if overlap(mine, handoffs.columns(*m))), None)
            if writer is not None:
                observed = frozenset(
                    use.event.instr
                    for use in model.barriers.uses
                    if use.stream is stream and use.event.kind is Kind.BARRIER_WAIT and use.barrier in commits
                )
                yield _judge(kernel, model, stream, load, writer, observed)


def _judge(
    kernel: KernelFacts, model: KernelModel, stream: Stream, load: Event, writer: _Mma, observed: frozenset[int]
) -> Judgement:
    flow = kernel.flow(model, stream)
    blind = {e.instr for s, e in model.barriers.unresolved if s is stream and e.kind is Kind.BARRIER_WAIT}
    own = None
    if writer[0] is stream:
        own = flow.find_path(writer[1], lambda e: e is load, lambda e: e.instr in observed or e.instr in blind)
    if own is None and flow.find_path(None, lambda e: e is load, lambda e: e.instr in observed) is None:
        return proved(model, stream, load, "a wait on a committed barrier precedes on every path")
    if own is None and flow.find_path(None, lambda e: e is load, _PassesOn(kernel, model, writer, observed)) is None:
        return unknown(model, stream, load, "completion may have been observed by another role and passed on")
    mine = _own_stores(kernel, model, stream, load)
    if own is None and mine and flow.find_path(None, lambda e: e is load, lambda e: e.instr in observed | mine) is None:
        return unknown(model, stream, load, "it reads what its own warp stored; that no MMA is under way is not shown")
    witness = (
        step(model, *writer, "starts an MMA that writes columns of the load"),
        step(model, stream, load, "reads them; no wait on a barrier completed by tcgen05.commit precedes on this path"),
    )
    message = f"{model.role_of(stream)} reads TMEM before the MMA of {model.role_of(writer[0])} is known to be complete"
    return violated(model, stream, load, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _own_stores(kernel: KernelFacts, model: KernelModel, stream: Stream, load: Event) -> frozenset[int]:
    """Stores of the warp to the columns of its load after which it tells nobody anything before the load."""
    flow = kernel.flow(model, stream)
    place = model.place(stream, load, load.address)

    def silent(store: Event) -> bool:
        return flow.find_path(store, lambda e: e.kind in ANNOUNCEMENTS, lambda e: e is load) is None

    stores = flow.select(lambda e: e.kind is Kind.TMEM_STORE)
    return frozenset(s.instr for s in stores if model.place(stream, s, s.address) == place and silent(s))


class _PassesOn:
    """Waits through which a third role may pass on that the MMA has completed."""

    def __init__(self, kernel: KernelFacts, model: KernelModel, writer: _Mma, observed: frozenset[int]) -> None:
        flow = kernel.flow(model, writer[0])
        reach = flow.may_reach([writer[1]], lambda e: False)
        self._late = frozenset(instr for instr, bits in reach.items() if bits)
        self._observed = observed
        self._writer = writer[0]

    def __call__(self, event: Event) -> bool:
        if event.instr in self._observed or event.kind is Kind.BARRIER_WAIT:
            return True
        return event.kind in WAITS and (event.instr in self._late or not self._writer.runs(event))
