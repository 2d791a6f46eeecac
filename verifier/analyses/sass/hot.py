"""Costly instructions in loops, gathered by the PTX instruction that caused them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from verifier.analyses.sass.loops import Loops
from verifier.analyses.sass.side import SassSide
from verifier.findings import Location
from verifier.model.cfg import Loop
from verifier.model.events import Event, Kind
from verifier.model.program import Instr
from verifier.model.streams import Stream

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_BEHIND = 8  # instructions that one PTX instruction may expand to before what it is attributed to


class Site(msgspec.Struct, frozen=True):
    """One costly instruction: `depth` hot loops lie around it; `per` is what it is executed once for."""

    event: Event
    depth: int
    per: str


class Cause(msgspec.Struct, frozen=True):
    """The PTX instruction behind some sites. `event` is its meaning; both are None when it cannot be told."""

    instr: Instr | None
    event: Event | None

    @property
    def name(self) -> str:
        """Opcode without what does not matter here."""
        if self.instr is None:
            return "a PTX instruction that the line information does not name"
        return self.instr.opcode.removesuffix(".b64").removesuffix(".sync.aligned")


class Group(msgspec.Struct, frozen=True):
    """Sites of one stream with one cause."""

    cause: Cause
    sites: tuple[Site, ...]

    @property
    def location(self) -> Location:
        """PTX line and Python line of the cause, offset of the first site."""
        first = self.sites[0].event.location
        if self.cause.instr is None:
            return first
        known = self.cause.instr.location
        return Location(
            ptx_line=known.ptx_line,
            sass_offset=first.sass_offset,
            file=known.file or first.file,
            line=known.line if known.file else first.line,
        )

    @property
    def frequency(self) -> str:
        """How often the sites run: `executed once per iteration`, `two sites, one executed per successful wait`."""
        each = list(dict.fromkeys(site.per for site in self.sites))
        if len(self.sites) == 1:
            return f"executed once per {each[0]}"
        if each == ["successful wait"]:
            return f"{count(len(self.sites))} sites, one executed per successful wait"
        return f"{count(len(self.sites))} sites, each executed once per {' or '.join(each)}"


def count(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def groups(side: SassSide, stream: Stream, wanted: Sequence[Event], fits: Callable[[Event], bool]) -> Iterator[Group]:
    """The `wanted` events of `stream` by cause. `fits` says which PTX events can be the cause."""
    loops = side.loops(stream)
    found: dict[int, tuple[Cause, list[Site]]] = {}
    for event in wanted:
        cause = cause_of(side, event, fits)
        key = cause.instr.index if cause.instr is not None else -1 - event.instr
        site = Site(event, loops.depth(event.instr), _per(side, stream, loops, event))
        found.setdefault(key, (cause, []))[1].append(site)
    for cause, sites in found.values():
        yield Group(cause, tuple(sites))


def cause_of(side: SassSide, event: Event, fits: Callable[[Event], bool]) -> Cause:
    """The PTX event on the line of `event`, or of the wait whose success guards it."""
    if side.ptx is None:
        return Cause(None, None)
    instrs = side.ptx.function.instrs
    wait = _guarding_wait(side, event)
    candidates = side.join.sources(wait) if wait is not None else side.join.events(event.instr)
    for candidate in candidates:
        if fits(candidate):
            return Cause(instrs[candidate.instr], candidate)
    plain = side.join.instrs(event.instr)
    return Cause(plain[0], None) if len(plain) == 1 else Cause(None, None)


def loop_location(side: SassSide, stream: Stream, loop: Loop) -> Location:
    """Where a loop begins."""
    return side.model.function.instrs[stream.cfg.blocks[loop.header].start].location


def within(stream: Stream, loops: Sequence[Loop], event: Event) -> bool:
    block = stream.cfg.block_of[event.instr]
    return any(block in loop.blocks for loop in loops)


def _guarding_wait(side: SassSide, event: Event) -> Event | None:
    """The wait just before `event` whose success is its guard: `@P0 CCTL.IVALL` after a PHASECHK that writes P0."""
    instrs = side.model.function.instrs
    guards = instrs[event.instr].guards
    for index in range(event.instr - 1, max(event.instr - _BEHIND, -1), -1):
        other = side.model.event_at(index)
        if other is not None and other.kind is Kind.BARRIER_WAIT:
            positive = any(g.reg in other.registers and not g.negated for g in guards)
            return other if positive else None
    return None


def _per(side: SassSide, stream: Stream, loops: Loops, event: Event) -> str:
    if _guarding_wait(side, event) is not None:
        return "successful wait"
    return "poll" if loops.spins(event.instr) else "iteration"
