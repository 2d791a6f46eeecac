"""Loops that poll a word of memory until it has some value."""

from __future__ import annotations

from verifier.model.events import Event
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream

_DEPTH = 8


def is_polled(stream: Stream, load: Event) -> bool:
    """Whether a loop around the load ends when the loaded value says so."""
    block = stream.cfg.block_of[load.instr]
    loaded = {value.id for value in stream.ssa.writes[load.instr].values()}
    for loop in stream.cfg.loops_of(block):
        for edge in (e for b in loop.blocks for e in stream.cfg.successors[b]):
            if edge.dst not in loop.blocks and edge.guard is not None:
                last = stream.cfg.blocks[edge.src].end - 1
                if _depends(stream.ssa.reads[last][edge.guard.reg], loaded, _DEPTH):
                    return True
    return False


def _depends(value: SsaValue, on: set[int], depth: int) -> bool:
    if value.id in on:
        return True
    return depth > 0 and any(isinstance(a, SsaValue) and _depends(a, on, depth - 1) for a in value.args)
