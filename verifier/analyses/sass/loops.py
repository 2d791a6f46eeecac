"""Which loops of a stream do work, and which only wait.

A spin loop polls (a barrier, a word in memory, a resource) and does nothing else until the poll succeeds: it is the
wait itself, not a loop around it. ptxas also makes a loop of an instruction that one lane must issue
(`ELECT; UTCBAR; BRA.U.ANY`) or that takes operands from uniform registers (`R2UR.OR; UTMASTG; BRA.U.ANY`); that is a
form of the instruction, too. All other loops are hot.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from verifier.model.cfg import Loop
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream

# What may stand in a spin loop beside its poll.
_HARMLESS = frozenset({Kind.CACHE_INVALIDATE, Kind.ERROR_BARRIER, Kind.FENCE, Kind.WARP_SYNC})
_CHOICES = ("ELECT", "R2UR.OR")  # one lane, or the lanes that agree on the operands
_SEARCH_LIMIT = 256


class LoopKind(enum.Enum):
    HOT = "hot"
    SPIN = "spin"
    ELECT = "elect"


class Loops:
    """The loops of one stream by kind."""

    def __init__(self, model: KernelModel, stream: Stream) -> None:
        self._model = model
        self._stream = stream
        self.kinds = {loop: self._classify(loop) for loop in stream.cfg.loops}

    @property
    def hot(self) -> tuple[Loop, ...]:
        return tuple(loop for loop, kind in self.kinds.items() if kind is LoopKind.HOT)

    @property
    def outermost(self) -> tuple[Loop, ...]:
        """Hot loops that lie in no other hot loop."""
        hot = self.hot
        return tuple(a for a in hot if not any(a is not b and a.blocks < b.blocks for b in hot))

    def depth(self, instr: int) -> int:
        """Number of hot loops around an instruction."""
        block = self._stream.cfg.block_of[instr]
        return sum(block in loop.blocks for loop in self.hot)

    def spins(self, instr: int) -> bool:
        """Whether an instruction belongs to a wait's own retry loop."""
        block = self._stream.cfg.block_of[instr]
        return any(kind is LoopKind.SPIN and block in loop.blocks for loop, kind in self.kinds.items())

    def _classify(self, loop: Loop) -> LoopKind:
        if self._is_elect(loop):
            return LoopKind.ELECT
        return LoopKind.SPIN if self._is_spin(loop) else LoopKind.HOT

    def _is_elect(self, loop: Loop) -> bool:
        """One block around one instruction of consequence, with a choice of lanes in it and BRA.U.ANY at its end."""
        if len(loop.blocks) > 1:
            return False
        bounds = self._stream.cfg.blocks[loop.header]
        body = self._stream.function.instrs[bounds.start : bounds.end]
        events = len(list(self._events(loop)))
        return ".ANY" in body[-1].opcode and any(i.opcode.startswith(_CHOICES) for i in body) and events <= 1

    def _is_spin(self, loop: Loop) -> bool:
        polled: set[int] = set()
        for event in self._events(loop):
            if is_poll(event):
                polled |= {value.id for value in self._stream.ssa.writes[event.instr].values()}
            elif event.kind not in _HARMLESS:
                return False
        return bool(polled) and self._exit_depends_on(loop, polled)

    def _events(self, loop: Loop) -> Iterator[Event]:
        for block in loop.blocks:
            bounds = self._stream.cfg.blocks[block]
            for index in range(bounds.start, bounds.end):
                event = self._model.event_at(index)
                if event is not None and event.kind is not Kind.EXIT:
                    yield event

    def _exit_depends_on(self, loop: Loop, polled: set[int]) -> bool:
        """Whether some branch out of the loop asks for a polled value, through any computation inside the loop."""
        cfg, ssa = self._stream.cfg, self._stream.ssa
        work: list[SsaValue] = []
        for block in loop.blocks:
            for edge in cfg.successors[block]:
                if edge.dst not in loop.blocks and edge.guard is not None:
                    work.append(ssa.reads[cfg.blocks[block].end - 1][edge.guard.reg])
        seen: set[int] = set()
        while work and len(seen) < _SEARCH_LIMIT:
            value = work.pop()
            if value.id in polled:
                return True
            if value.id in seen or value.block not in loop.blocks:
                continue
            seen.add(value.id)
            work += [*(value.incoming or {}).values(), *(arg for arg in value.args if isinstance(arg, SsaValue))]
            work += [predicate for predicate, _ in value.guards]
            if value.old is not None:
                work.append(value.old)
            if value.assign is not None and value.instr >= 0 and value.assign.op == "opaque":
                work += ssa.reads[value.instr].values()
        return False


def is_poll(event: Event) -> bool:
    """Whether an event can be what a spin loop asks for."""
    if event.kind in (Kind.BARRIER_WAIT, Kind.TMEM_ALLOC, Kind.ATOMIC):
        return True
    if event.kind is Kind.REGISTERS:
        return event.has("inc")
    return event.kind is Kind.LOAD and (event.sem != "weak" or event.space in ("shared", "shared::cta"))
