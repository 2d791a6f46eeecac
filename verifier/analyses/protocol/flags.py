"""Strong accesses of shared memory: words through which warps may hand over without a barrier.

A store that another warp's load or atomic observes is an edge of order if the one releases and the other acquires
(PTX ISA 9.4, 8.9.6). Which store is observed depends on values and schedules, so these edges are not followed: a run
only knows that there may be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from verifier.model.events import Event, Kind

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code

_SCOPES = {"cta": 1, "cluster": 2, "gpu": 3, "sys": 4}
_CLUSTER = _SCOPES["cluster"]
_ACQUIRES = frozenset({"acquire", "acq_rel", "sc"})
WarpName = tuple[int, int]


class Strength(msgspec.Struct, frozen=True):
    """How strong an access is: its scope, and whether what it observes may order its warp after others."""

    scope: int
    observes: bool
    line: int | None


def strength(code: Code, event: Event) -> Strength | None:
    """None for a weak access. A volatile load counts as one, unless a loop retries it."""
    polls = event.instr in code.polls
    if event.sem == "weak" or (event.kind is Kind.LOAD and event.has("volatile") and not polls):
        return None
    returns = event.kind is Kind.LOAD or (event.kind is Kind.ATOMIC and event.opcode.startswith("atom"))
    observes = returns and (polls or event.sem in _ACQUIRES or code.fenced)
    return Strength(_SCOPES.get(event.scope or "", 0), observes, event.location.ptx_line)


def fenced(events: Iterable[Event]) -> bool:
    """Whether fences may make releases and acquires of what is relaxed."""
    return any(e.kind is Kind.FENCE for e in events)


def morally_strong(a: int, b: int, same_cta: bool) -> bool:
    """Whether strong accesses with these scopes include each other: then they do not race (8.7.1, 8.9.1)."""
    return min(a, b) >= (1 if same_cta else _CLUSTER)


class Flags:
    """Words that one warp writes and another observes by strong accesses."""

    def __init__(self) -> None:
        self._written: dict[int, set[WarpName]] = {}
        self._observed: dict[int, dict[WarpName, int | None]] = {}
        self.open = ""  # why some order may not have been seen; empty when there is none

    def touch(self, warp: WarpName, starts: Iterable[int], write: bool, strong: Strength) -> None:
        if self.open:
            return
        for start in starts:
            if write:
                self._written.setdefault(start, set()).add(warp)
            if strong.observes:
                self._observed.setdefault(start, {}).setdefault(warp, strong.line)
            self._meet(start)

    def lost(self, strong: Strength) -> None:
        """The address of a strong access is not known."""
        if strong.observes:
            self._say(strong.line)

    def _meet(self, start: int) -> None:
        for warp, line in self._observed.get(start, {}).items():
            if self._written.get(start, set()) - {warp}:
                self._say(line)

    def _say(self, line: int | None) -> None:
        self.open = self.open or f"warps may hand over through the word that PTX line {line} observes"
