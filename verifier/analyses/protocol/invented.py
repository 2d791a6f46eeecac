"""Addresses of shared memory that are computed from words of global memory, which a script invents.

Where such an access goes, and what it meets there, is known for no real input. Only the data behind an address counts:
a trip count or a branch that hangs on a word decides how often an access is made, not where.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from verifier.analyses.protocol.slicing import ACCESSES
from verifier.model.events import Event, Kind, in_shared
from verifier.model.program import Reg
from verifier.model.ssa import SsaValue

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code

_ADDRESSED = frozenset({*ACCESSES, Kind.COPY_ASYNC, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE})
_Lines = dict[int, int | None]  # id of a value -> PTX line of the load that it is computed from


def invented_places(code: Code) -> dict[int, str]:
    """Access of shared memory -> why where it goes is invented."""
    sources = [e for e in map(code.events.get, sorted(code.slice.values)) if e is not None and _invents(e)]
    if not sources:
        return {}
    found = _Flow(code).run(sources)
    places: dict[int, str] = {}
    for index in sorted(code.slice.keep):
        event = code.events.get(index)
        if event is None or event.kind not in _ADDRESSED or event.address is None:
            continue
        if event.kind in ACCESSES and not in_shared(event):
            continue
        reads = code.model.ssa.reads[index]
        terms = (reads.get(term.name) for term in event.address.terms if isinstance(term, Reg))
        line = next((found[value.id] for value in terms if value is not None and value.id in found), None)
        if line is not None:
            places[index] = f"it depends on what PTX line {line} loads"
    return places


def _invents(event: Event) -> bool:
    if event.kind is Kind.LOAD:
        return event.space in (None, "global")
    return event.kind is Kind.ATOMIC and not in_shared(event)


class _Flow:
    """Where values go: through registers, and through shared memory by stores whose data is followed."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._users: defaultdict[int, list[SsaValue]] = defaultdict(list)
        for value in code.model.ssa.values:
            for source in self._behind(value):
                self._users[source.id].append(value)

    def _behind(self, value: SsaValue) -> list[SsaValue]:
        if value.incoming is not None:
            return list(value.incoming.values())
        if value.assign is None:
            return []
        found = [] if value.instr in self._code.events else [a for a in value.args if isinstance(a, SsaValue)]
        return found if value.old is None else [*found, value.old]

    def run(self, sources: list[Event]) -> _Lines:
        lines: _Lines = {}
        for event in sources:
            self._spread(lines, event.instr, event.location.ptx_line)
        handed = self._handed_on(lines)
        if handed is not None:
            for index in sorted(self._code.slice.values & self._code.events.keys()):
                load = self._code.events[index]
                if load.kind is Kind.LOAD and in_shared(load):
                    self._spread(lines, index, handed)
        return lines

    def _handed_on(self, lines: _Lines) -> int | None:
        """The line behind data that is stored to shared memory."""
        for index in sorted(self._code.slice.data):
            reads = self._code.model.ssa.reads[index]
            for reg in self._code.events[index].registers:
                if reg in reads and reads[reg].id in lines:
                    return lines[reads[reg].id]
        return None

    def _spread(self, lines: _Lines, instr: int, line: int | None) -> None:
        work = list(self._code.model.ssa.writes[instr].values())
        while work:
            value = work.pop()
            if value.id not in lines:
                lines[value.id] = line
                work += self._users[value.id]
