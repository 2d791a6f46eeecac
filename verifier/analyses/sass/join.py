"""Which PTX instruction a SASS instruction realizes: by the PTX line that `nvdisasm -gp` gives, and by kind.

ptxas attributes most instructions exactly. What it does not: the first try of a wait, which it places inline before the
retry loop, carries the line above the `try_wait` (ptxas up to 13.4); it is joined through the retry it branches to.
Where several PTX instructions of one kind share a line they are told apart by their order, if code was not copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import FlowKind, Instr
from verifier.model.streams import Stream
from verifier.parse.sass_ast import Address, Operand, SassInstruction

# What PTX may stand behind a kind of SASS event, where it is not that kind alone.
_SOURCES: dict[Kind, frozenset[Kind]] = {
    Kind.CTA_SYNC: frozenset({Kind.CTA_SYNC, Kind.CLUSTER_WAIT, Kind.CLUSTER_ARRIVE}),
    Kind.BARRIER_ARRIVE: frozenset({Kind.BARRIER_ARRIVE, Kind.COPY_ARRIVE}),
    Kind.ATOMIC: frozenset({Kind.ATOMIC, Kind.MAP_COPY}),
    Kind.STORE: frozenset({Kind.STORE, Kind.MAP_WRITE}),
    Kind.WGMMA_MMA: frozenset({Kind.WGMMA_MMA, Kind.WGMMA_COMMIT}),
}
# Events that one PTX instruction makes, and no other; hardly any lie on lines of something else.
_TELLING = frozenset(
    {Kind.TMEM_LOAD, Kind.TMEM_STORE, Kind.TMEM_MMA, Kind.BULK_LOAD, Kind.BULK_STORE, Kind.ASYNC_STORE}
)
_AGREEMENT = 0.5
_RETRY_DISTANCE = 4  # instructions from the target of a failed wait to its retry


class Join:
    """SASS events to PTX events of one kernel.

    Nothing joins with `ptx` None, without line information, or when the lines are those of another PTX.
    """

    def __init__(self, ptx: KernelModel | None, sass: KernelModel) -> None:
        self._ptx = ptx
        self._sass = sass
        self._instrs: dict[int, list[Instr]] = defaultdict(list)
        self._events: dict[int, list[Event]] = defaultdict(list)
        self._copies: dict[tuple[int, Kind], list[int]] = defaultdict(list)
        for instr in ptx.function.instrs if ptx else ():
            if instr.location.ptx_line is not None:
                self._instrs[instr.location.ptx_line].append(instr)
        for event in ptx.events if ptx else ():
            if event.location.ptx_line is not None:
                self._events[event.location.ptx_line].append(event)
        self._lines = sorted(self._events)
        if not self._agrees():
            self._instrs.clear()
            self._events.clear()
            self._lines.clear()
        for event in sass.events:
            if event.location.ptx_line is not None:
                self._copies[event.location.ptx_line, event.kind].append(event.instr)

    def _agrees(self) -> bool:
        """Whether the lines lead to what they should: another PTX than the one assembled would lead anywhere."""
        known = [e for e in self._sass.events if e.kind in _TELLING and e.location.ptx_line is not None]
        right = sum(any(s.kind is e.kind for s in self._events.get(e.location.ptx_line or 0, ())) for e in known)
        return right >= len(known) * _AGREEMENT

    @property
    def has_lines(self) -> bool:
        """Whether the machine code says which PTX lines it comes from."""
        return bool(self._instrs) and bool(self._copies)

    def instrs(self, instr: int) -> Sequence[Instr]:
        """PTX instructions on the line that a SASS instruction is attributed to."""
        line = self._sass.function.instrs[instr].location.ptx_line
        return self._instrs.get(line, ()) if line is not None else ()

    def events(self, instr: int) -> Sequence[Event]:
        """PTX events on the line that a SASS instruction is attributed to, of any kind."""
        line = self._sass.function.instrs[instr].location.ptx_line
        return self._events.get(line, ()) if line is not None else ()

    def sources(self, event: Event) -> tuple[Event, ...]:
        """PTX events that a SASS event may realize: one where it can be told, none where nothing fits."""
        kinds = _SOURCES.get(event.kind, frozenset({event.kind}))
        found = [source for source in self.events(event.instr) if source.kind in kinds]
        if not found and event.kind is Kind.BARRIER_WAIT:
            return self._first_try(event)
        if len(found) > 1:
            copies = self._copies[event.location.ptx_line or 0, event.kind]
            if len(copies) == len(found):
                return (found[copies.index(event.instr)],)
        return tuple(found)

    def _first_try(self, wait: Event) -> tuple[Event, ...]:
        """The PTX wait of an inline first try: that of its retry, else the first event below the line it carries."""
        retry = self._retry(wait)
        if retry is not None:
            return self.sources(retry)
        below = bisect_right(self._lines, wait.location.ptx_line or 0)
        following = self._events[self._lines[below]] if below < len(self._lines) else []
        return tuple(following[:1]) if following and following[0].kind is Kind.BARRIER_WAIT else ()

    def _retry(self, wait: Event) -> Event | None:
        """The wait that runs when an inline first try has failed."""
        instrs = self._sass.function.instrs
        statement = instrs[wait.instr].origin
        assert isinstance(statement, SassInstruction)
        for instr in instrs[wait.instr + 1 :]:
            if instr.flow.kind is FlowKind.BRANCH and any(g.reg in wait.registers and g.negated for g in instr.guards):
                return self._wait_near(instr.flow.targets[0], statement, wait)
            if instr.flow.kind is not FlowKind.NEXT or any(a.dst in wait.registers for a in instr.assigns):
                return None
        return None

    def _wait_near(self, start: int, like: SassInstruction, first: Event) -> Event | None:
        """A wait for the same barrier and parity a few instructions from `start` on.

        The base register may be a copy: `[UR17+0x40]` is retried as `[R0+URZ+0x40]`.
        """
        for index in range(start, min(start + _RETRY_DISTANCE, len(self._sass.function.instrs))):
            event = self._sass.event_at(index)
            origin = self._sass.function.instrs[index].origin
            if event is None or event.kind is not Kind.BARRIER_WAIT or event.instr == first.instr:
                continue
            if isinstance(origin, SassInstruction) and _operands(origin) == _operands(like):
                return event if event.location.ptx_line != first.location.ptx_line else None
        return None

    def streams(self, stream: Stream) -> tuple[Stream, ...]:
        """PTX streams of the warps that execute a SASS stream."""
        if self._ptx is None:
            return ()
        members = set(stream.members)
        return tuple(other for other in self._ptx.streams if members & set(other.members))


def _operands(wait: SassInstruction) -> list[int | Operand]:
    """Offset of the barrier and register of the parity."""
    return [o.offset if isinstance(o, Address) else o for o in wait.operands[1:]]
