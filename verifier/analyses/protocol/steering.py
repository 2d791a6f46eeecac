"""Which inputs decide what a warp does: whether a run that goes wrong may do so because its inputs do not fit together.

Scripts invent each input alone. Where one role counts by a parameter and another by a second one that the host derives
from the first, an invented pair can leave a role waiting that would never wait in use. Roles that all decisions of hang
on the same inputs cannot disagree in that way.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from verifier.analyses.protocol.slicing import HARD, operand_registers
from verifier.model.events import Event, Kind, in_shared
from verifier.model.program import Arg, Const, Reg, SReg, Sym
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code

Inputs = frozenset[str]
GRID = "the grid"
_POINTER = 64  # bits: each pointer is invented to point into a region of its own
_OF_GRID = ("ctaid.", "nctaid.", "clusterid.", "nclusterid.")


class Steering:
    """The inputs behind the branches and guards of a slice, warp by warp."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._known: dict[int, Inputs] = {}

    def of(self, warp: tuple[int, int]) -> Inputs:
        """Inputs that a warp's decisions depend on: numbers in parameters, words of memory, the grid, a scheduler."""
        for number, stream in enumerate(self._code.model.streams):
            if warp in stream.members or (warp[1] in stream.warps and not stream.knows_rank):
                if number not in self._known:
                    self._known[number] = self._expand(self._leaves(stream, self._decisions(stream)))
                return self._known[number]
        return frozenset()

    def _decisions(self, stream: Stream) -> Iterator[SsaValue]:
        code = self._code
        for index in sorted(code.slice.keep & stream.instructions):
            instr, event = code.model.function.instrs[index], code.events.get(index)
            forks = len(stream.cfg.successors[stream.cfg.block_of[index]]) > 1
            if forks or (event is not None and event.kind in HARD):
                reads = code.model.ssa.reads[index]
                yield from (reads[guard.reg] for guard in instr.guards if guard.reg in reads)

    def _leaves(self, stream: Stream | None, values: Iterator[SsaValue]) -> Inputs:
        """Inputs from which values are computed; `shared` where they come through shared memory."""
        found: set[str] = set()
        seen: set[int] = set()
        work: list[SsaValue | Arg] = list(values)
        while work:
            value = work.pop()
            if not isinstance(value, SsaValue):
                found.update(_name(value))
            elif value.id not in seen:
                seen.add(value.id)
                work += self._behind(stream, value, found)
        return frozenset(found)

    def _behind(self, stream: Stream | None, value: SsaValue, found: set[str]) -> list[SsaValue | Arg]:
        if value.incoming is not None:
            blocks = stream.cfg.reachable if stream is not None else value.incoming.keys()
            return [v for block, v in value.incoming.items() if block in blocks]
        if value.assign is None:
            return []
        behind: list[SsaValue | Arg] = [guard for guard, _ in value.guards]
        if value.old is not None:
            behind.append(value.old)
        if value.assign.op == "ld_param":
            base, offset = value.assign.args
            assert isinstance(base, Sym)
            assert isinstance(offset, Const)
            if value.assign.width < _POINTER:
                found.add(f"{base.name}+{offset.value}")
            return behind
        event = self._code.events.get(value.instr)
        if event is not None:
            return behind + self._loaded(event, found)
        return [*behind, *value.args]

    def _loaded(self, event: Event, found: set[str]) -> list[SsaValue | Arg]:
        if event.kind is Kind.LOAD and in_shared(event):
            found.add("shared")
            return []
        if event.kind in (Kind.LOAD, Kind.ATOMIC) and event.address is not None:
            reads = self._code.model.ssa.reads[event.instr]
            found.add(f"what PTX line {event.location.ptx_line} loads")
            return [reads[reg] for reg in sorted(operand_registers(event)) if reg in reads]
        return []

    def _expand(self, inputs: Inputs) -> Inputs:
        return inputs - {"shared"} | self._forwarded if "shared" in inputs else inputs

    @cached_property
    def _forwarded(self) -> Inputs:
        """Inputs behind all that is handed on through shared memory."""
        code = self._code
        values: list[SsaValue] = []
        for index in sorted(code.slice.data):
            reads = code.model.ssa.reads[index]
            values += [reads[reg] for reg in code.events[index].registers if reg in reads]
        found = self._leaves(None, iter(values)) - {"shared"}
        asks = any(event.kind is Kind.CLC_CANCEL for event in code.events.values())
        return found | {"the scheduler's answers"} if asks else found


def _name(arg: Arg) -> Iterator[str]:
    if isinstance(arg, SReg) and arg.name.startswith(_OF_GRID):
        yield GRID
    elif isinstance(arg, Reg):
        yield f"an unwritten {arg.name}"
