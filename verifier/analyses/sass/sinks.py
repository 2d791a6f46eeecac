"""Instructions by which a warp announces something, as SASS shows them."""

from __future__ import annotations

from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.loops import Loops, is_poll
from verifier.model.events import TMEM_WRITES, Event, Kind
from verifier.model.kernel import KernelModel

# What can tell another warp that tensor memory may be used again.
_ARRIVES = frozenset(
    {
        Kind.BARRIER_ARRIVE,
        Kind.BARRIER_COMPLETE,
        Kind.COPY_ARRIVE,
        Kind.TMEM_COMMIT,
        Kind.CTA_SYNC,
        Kind.CTA_ARRIVE,
        Kind.CLUSTER_ARRIVE,
        Kind.ASYNC_STORE,
        Kind.ASYNC_REDUCE,
        Kind.ATOMIC,
    }
)


def is_sink(event: Event) -> bool:
    """Whether a SASS event is arrive-like: an arrive in any form, an atomic, or a strong store (a flag)."""
    return event.kind in _ARRIVES or is_flag(event)


def is_flag(event: Event) -> bool:
    """Whether an event is an ordinary memory operation that others may poll."""
    return event.kind is Kind.ATOMIC or (event.kind is Kind.STORE and event.sem != "weak")


def polls_before_tmem_writes(facts: KernelFacts, model: KernelModel) -> bool:
    """Whether some warp polls ordinary memory and may then write or free tensor memory: flags can give it away."""
    for stream in model.streams:
        flow = facts.flow(model, stream)
        polls = flow.select(lambda e: e.kind in (Kind.LOAD, Kind.ATOMIC) and is_poll(e))
        loops = Loops(model, stream) if polls else None
        spinning = [poll for poll in polls if loops is not None and loops.spins(poll.instr)]
        if spinning:
            reach = flow.may_reach(spinning, lambda e: False)
            if any(e.kind in TMEM_WRITES and reach.get(e.instr) for e in flow.events):
                return True
    return False
