"""Does this build's control data mean what `parse.control` takes it to mean?

NVIDIA publishes no encoding. If a new one moved a field, every statement about scoreboards would be wrong without a
sign. So each function is checked against what any good code does: whoever reads or overwrites the result of a
variable-latency instruction has waited, on every path, for the scoreboard that the instruction names; and hardly any
wait is for a scoreboard that nothing can have set. docs/facts.md has the numbers for right and for wrong positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from verifier.analyses.sass.controls import Controls
from verifier.isa.sass_ops import Latency, SassOp, decode
from verifier.model.cfg import Cfg
from verifier.model.program import Function, Instr

CONSTANT_PREDICATES = frozenset({"PT", "UPT"})
_UNITS = dict.fromkeys(("LDS", "LDSM", "SHFL", "ATOMS"), "shared")  # opcodes that share one queue
_MISSES = 0.05  # share of the results
_IDLE = 0.4  # share of the waits
_FEW = 10  # waits of which no share is taken
_DRAIN = 5  # scoreboards
_NONE = 6  # place of results that name no scoreboard


class Miss(msgspec.Struct, frozen=True):
    """`consumer` touches a register that a scoreboard still guards (None: one that no scoreboard guards); offsets in
    bytes."""

    consumer: int
    offset: int | None
    scoreboard: int | None

    @property
    def guard(self) -> str:
        return f"SB{self.scoreboard}" if self.scoreboard is not None else "a result without a scoreboard"


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`producers`: results that a scoreboard must guard; `misses`: uses of such results without a wait; `waits`: single
    waits for a scoreboard, of which `idle` are for one that nothing can have set. `complete`: there are encodings."""

    producers: int = 0
    misses: tuple[Miss, ...] = ()
    waits: int = 0
    idle: int = 0
    complete: bool = True

    @property
    def passed(self) -> bool:
        """Whether the fields are where they are taken to be. A single miss is no fault of the decoder."""
        return self.complete and not self._misses_many and not self._idles_much

    @property
    def _misses_many(self) -> bool:
        return len(self.misses) > max(1, self.producers * _MISSES)

    @property
    def _idles_much(self) -> bool:
        return self.waits >= _FEW and self.idle > self.waits * _IDLE

    @property
    def reason(self) -> str:
        """Why it failed, in one clause."""
        if not self.complete:
            return "the listing has no encodings (nvdisasm -hex)"
        if not self._misses_many:
            return f"{self.idle} of {self.waits} waits are for scoreboards that nothing has set"
        first = self.misses[0]
        at = f" at {first.offset:#x}" if first.offset is not None else ""
        return f"{len(self.misses)} uses do not wait for {first.guard}, the first one{at}"


class _Step(msgspec.Struct, frozen=True, gc=False):
    """What one instruction does to pending results: registers as bits."""

    wait: int
    touched: int
    written: int
    unit: int | None  # which unit delivers its results in order; None: they are there when the next instruction runs
    guard: int  # scoreboard of its results, or _NONE


def self_check(function: Function, cfg: Cfg, controls: Controls) -> SelfCheck:
    """Check one function on all paths."""
    if not controls.complete:
        return SelfCheck(complete=False)
    steps = _Steps(function.instrs, controls)
    translated = [steps.of(instr) for instr in function.instrs]
    misses = _Walk(translated, len(steps.units)).run(cfg)
    found = tuple(Miss(i, function.instrs[i].location.sass_offset, sb) for i, sb in sorted(misses.items()))
    waits, idle = _idle_waits(cfg, controls)
    return SelfCheck(producers=steps.producers, misses=found, waits=waits, idle=idle)


def _idle_waits(cfg: Cfg, controls: Controls) -> tuple[int, int]:
    """(single waits, those of them for a scoreboard that is zero on every path), not counting those that drain all."""
    at_start = {cfg.entry: 0}
    found: dict[int, tuple[int, int]] = {}
    work = deque([cfg.entry])
    while work:
        block = work.popleft()
        state = at_start[block]
        for index in range(cfg.blocks[block].start, cfg.blocks[block].end):
            mask = controls.masks[index]
            if mask and mask.bit_count() < _DRAIN:
                found[index] = (mask.bit_count(), (mask & ~state).bit_count())
            state &= ~controls.waits[index]
            for scoreboard in (controls.writes[index], controls.reads[index]):
                if scoreboard is not None:
                    state |= 1 << scoreboard
        for edge in cfg.successors[block]:
            merged = at_start.get(edge.dst, 0) | state
            if at_start.get(edge.dst) != merged:
                at_start[edge.dst] = merged
                work.append(edge.dst)
    return sum(waits for waits, _ in found.values()), sum(idle for _, idle in found.values())


class _Steps:
    """Translates instructions; numbers registers and units as they come."""

    def __init__(self, instrs: Sequence[Instr], controls: Controls) -> None:
        self._controls = controls
        self._registers: dict[str, int] = {}
        self.units: dict[str, int] = {}
        self.producers = 0
        self._under: dict[tuple[str, bool], int] = {}  # results by the guard of their producers
        for instr in instrs:
            if len(instr.guards) == 1 and _delivers_late(decode(instr.opcode)):
                key = (instr.guards[0].reg, instr.guards[0].negated)
                self._under[key] = self._under.get(key, 0) | sum(self._bit(name) for name in _written(instr))

    def of(self, instr: Instr) -> _Step:
        written = sum(self._bit(name) for name in _written(instr))
        touched = written
        for reg in instr.uses:
            touched |= self._bit(reg)
        if any(guard.reg in CONSTANT_PREDICATES and guard.negated for guard in instr.guards):
            written = touched = 0  # never executes; ptxas uses such instructions as spacers
        elif len(instr.guards) == 1:  # `@P0` does not touch what `@!P0` delivers
            touched &= ~self._under.get((instr.guards[0].reg, not instr.guards[0].negated), 0)
        op = decode(instr.opcode)
        unit = None
        if written and _delivers_late(op):
            unit = self.units.setdefault(_UNITS.get(op.root, op.root), len(self.units))
            self.producers += 1
        guard = self._controls.writes[instr.index]
        return _Step(
            wait=self._controls.waits[instr.index],
            touched=touched,
            written=written,
            unit=unit,
            guard=_NONE if guard is None else guard,
        )

    def _bit(self, name: str) -> int:
        if name in CONSTANT_PREDICATES:
            return 0
        return 1 << self._registers.setdefault(name, len(self._registers))


def _delivers_late(op: SassOp) -> bool:
    """Whether a scoreboard must guard the results; of opcodes that no table knows nothing is asked."""
    return op.known and op.row.latency is Latency.VARIABLE


def _written(instr: Instr) -> frozenset[str]:
    return frozenset(assign.dst for assign in instr.assigns)


_PLACES = 7  # of one unit: registers that SB0..SB5 guard, then those that nothing guards yet


class _Walk:
    """Which results may be pending, on all paths.

    One unit delivers in order: ptxas leaves the scoreboard off all but the last of a row of loads (or reciprocals), and
    waits for the last. So a result is complete when its own scoreboard or that of a younger result of its unit is.
    """

    def __init__(self, steps: Sequence[_Step], units: int) -> None:
        self._steps = steps
        self._size = units * _PLACES
        self._misses: dict[int, int | None] = {}

    def run(self, cfg: Cfg) -> dict[int, int | None]:
        """Instructions that touch a pending result, with the scoreboard they should have waited for."""
        at_start = {cfg.entry: (0,) * self._size}
        work = deque([cfg.entry])
        while work:
            block = work.popleft()
            state = list(at_start[block])
            bounds = cfg.blocks[block]
            for index in range(bounds.start, bounds.end):
                self._apply(index, state)
            for edge in cfg.successors[block]:
                known = at_start.get(edge.dst)
                merged = tuple(state) if known is None else tuple(a | b for a, b in zip(known, state, strict=True))
                if merged != known:
                    at_start[edge.dst] = merged
                    work.append(edge.dst)
        return self._misses

    def _apply(self, index: int, state: list[int]) -> None:
        step = self._steps[index]
        for unit in range(0, self._size, _PLACES):
            if any(state[unit : unit + _PLACES]):
                self._observe(index, step, state, unit)
        if step.unit is None:
            return
        first = step.unit * _PLACES
        if step.guard == _NONE:
            state[first + _NONE] |= step.written
            return
        older = 0
        for place in range(first, first + _PLACES):
            older |= state[place]
        state[first + step.guard] = older | step.written
        state[first + _NONE] = 0

    def _observe(self, index: int, step: _Step, state: list[int], unit: int) -> None:
        """What one instruction completes, uses and overwrites of the results of a unit."""
        for n in range(6):
            if step.wait >> n & 1 and state[unit + n]:
                done = ~state[unit + n]
                for place in range(unit, unit + _PLACES):
                    state[place] &= done
        for n in range(_PLACES):
            if step.touched & state[unit + n] and step.unit != unit // _PLACES:
                self._misses.setdefault(index, None if n == _NONE else n)
                state[unit + n] = 0  # one lost wait is one miss, however many registers it was for
            state[unit + n] &= ~step.written
