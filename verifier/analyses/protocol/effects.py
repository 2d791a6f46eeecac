"""Closures for what events do to the machine. A step returns None, or what the fiber now waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verifier.analyses.protocol import effects_async, effects_barrier, effects_memory, effects_tmem
from verifier.model.events import Event, Kind
from verifier.model.program import Instr

if TYPE_CHECKING:
    from verifier.analyses.protocol.alu import Step
    from verifier.analyses.protocol.code import Code

_MAKERS: dict[Kind, Callable[[Code, Instr, Event], Step | None]] = {
    **effects_barrier.MAKERS,
    **effects_tmem.MAKERS,
    **effects_memory.MAKERS,
    **effects_async.MAKERS,
}


# Kinds that change nothing that the machine keeps: they order what it takes as ordered anyway, or stay in one thread.
# UNKNOWN is refused before any run. A kind that only machine code has is here as well.
NO_EFFECT = frozenset(
    {
        Kind.TMEM_RELINQUISH,
        Kind.TMEM_FENCE_BEFORE,
        Kind.TMEM_FENCE_AFTER,
        Kind.FENCE,
        Kind.PROXY_FENCE,
        Kind.INIT_FENCE,
        Kind.WARP_SYNC,
        Kind.GRID_WAIT,
        Kind.GRID_LAUNCH,
        Kind.MAP_WRITE,
        Kind.MAP_COPY,
        Kind.MAP_PREFETCH,
        Kind.BULK_PREFETCH,
        Kind.WGMMA_FENCE,
        Kind.COLLECTIVE,
        Kind.REGISTERS,
        Kind.CACHE_INVALIDATE,
        Kind.ERROR_BARRIER,
        Kind.SPILL,
        Kind.EXIT,
        Kind.UNKNOWN,
    }
)
KINDS = frozenset(_MAKERS) | NO_EFFECT


def event_step(code: Code, instr: Instr, event: Event) -> Step | None:
    """The closure of an event; None when it does nothing here beyond what its assignments compute."""
    make = _MAKERS.get(event.kind)
    return None if make is None else make(code, instr, event)
