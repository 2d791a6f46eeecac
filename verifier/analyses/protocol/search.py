"""Invents inputs: looks for scripts under which a kernel runs to the end and its barriers come round."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.protocol.code import Code
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.recurrence import Head, Recorder, Recurrence, choose_head, find
from verifier.analyses.protocol.scripts import Script
from verifier.analyses.protocol.start import Start
from verifier.analyses.protocol.traffic import Boxes
from verifier.analyses.protocol.transactions import Bytes, balance_bytes

STEP_LIMIT = 120_000  # of one run
SMALL_BUDGET = 100_000  # the same for a kernel without an mbarrier
STEP_BUDGET = 700_000  # of the search under one cluster shape
REACH_BUDGET = 200_000  # of reaching code that the best run does not come to
WANTED_PHASES = 4  # twice round the parity

# What is tried. Small parameters and large grids make short runs, so they come first.
_SCALARS = (8, 4, 2, 1, 128, 1024, 512, 256)
_GRIDS = (1024, 256, 16, 1)
_BETWEEN = (64, 32, 16, 4)
_RAISED = (640, 128, 2048)
_FIRST_LIMIT = 80_000
_SHORT = 20_000
_REACH_LIMIT = 40_000
_CORNERS = 6
_DRAINED = 4  # the longest period for which each way out of the loop is run
_MANY = 24  # work items, enough for the rings of all kernels seen to come back to their start
_STEP = 256
_TILES = 2 * WANTED_PHASES

Score = tuple[int, int, int]


class Search:
    """Runs of one kernel under one cluster shape. `runs` holds every run made, in order."""

    def __init__(self, code: Code, start: Start, *, small: bool = False) -> None:
        self.code = code
        self.start = start
        self.runs: list[Machine] = []
        self.bytes: Bytes | None = None
        self.best: Machine | None = None  # the run that verdicts rest on
        self.recurrence: Recurrence | None = None
        self.drained = False  # every way out of the recurring loop has been run
        self.second: Machine | None = None  # a run like the best one, with other numbers
        self._recorded: tuple[Machine, Recorder] | None = None
        self._spent = 0
        self._budget = SMALL_BUDGET if small else STEP_BUDGET

    def attempt(self, script: Script, limit: int = STEP_LIMIT, recorder: Recorder | None = None) -> Machine:
        """One run; the bytes of copies come from an earlier run that ended."""
        boxes = self.bytes.boxes if self.bytes is not None else Boxes()
        run = Machine(self.code, self.start, script, boxes, limit, recorder)
        run.run()
        self._spent += run.time
        if recorder is None or all(script != other.script for other in self.runs):
            self.runs.append(run)  # a second run of one script is no second witness
        return run

    @property
    def sized(self) -> bool:
        """Whether later runs know the bytes of tensor copies."""
        return self.bytes is not None and bool(self.bytes.boxes.loads or self.bytes.boxes.stores)

    def ended(self) -> list[Machine]:
        """Runs that came to their end, those that exercise most first."""
        return sorted((r for r in self.runs if r.ended), key=merit, reverse=True)

    def explore(self) -> None:
        """Look for a covering run, then make the two runs that verdicts rest on, and the corner cases."""
        best = self._base()
        if best is None:
            return
        self.bytes = balance_bytes(best)
        if not covers(best):
            best = self._climb(best)
            self.bytes = balance_bytes(best)
        self.best = best if best.sized == self.sized else self._again(best)
        for script in self._variations(best.script):
            again = self.attempt(script)
            if again.ended and again.worked >= best.worked:
                self.second = again
                break
        short = min((r for r in self.ended() if r.worked >= best.worked), key=lambda r: r.time)
        self._reach(best)
        self._visit_corners(best, short.script)
        self._visit_last(best.script)
        self._watch(best)
        self._repeat_failure()

    def _again(self, best: Machine) -> Machine:
        """The best run with the bytes of copies that it told, its states recorded for `_watch`."""
        head = choose_head(best)
        recorder = Recorder(head) if head is not None and self.bytes is not None else None
        run = self.attempt(best.script, recorder=recorder)
        if run not in self.runs:
            self.runs.append(run)
        self._recorded = (run, recorder) if recorder is not None else None
        return run

    def _watch(self, best: Machine) -> None:
        """Run once more and see whether the state at the head of the outer loop comes back."""
        head = choose_head(best)
        if head is None or self.bytes is None:
            return
        longer = Script(scalar=_MANY, step=_STEP, tiles=_MANY, grid=best.script.grid)
        for script in (best.script, longer) if best.time <= STEP_LIMIT // 2 else (best.script,):
            recorder = Recorder(head)
            if self._recorded is not None and script is best.script:
                run, recorder = self._recorded
            else:
                run = self.attempt(script, recorder=recorder)
            self.recurrence = find(run, recorder) if run.ended else None
            run.recorder = None  # its snapshots are large
            if self.recurrence is not None:
                if self.recurrence.period <= _DRAINED and run.time * self.recurrence.period <= STEP_LIMIT:
                    self._drain(script, head, self.recurrence.period)
                return

    def _repeat_failure(self) -> None:
        """When one run alone goes wrong, see whether a run with a little more work does, too."""
        wrong = [run for run in self.runs if run.failed and not run.script.degenerate]
        if len(wrong) == 1:
            for script in self._variations(wrong[0].script):
                self.attempt(msgspec.structs.replace(script, scalar=2 * script.scalar))
                return

    def _drain(self, script: Script, head: Head, period: int) -> None:
        """Leave the loop after every number of rounds modulo the period, so that each way out has been run."""
        seen = {run.heads.get(head, 0) % period for run in self.ended()}
        x, y, z = script.grid
        grids = dict.fromkeys((x * 4 // 3, x * 6 // 5, x * 7 // 6, x * 8 // 7, x))
        for grid in grids:
            for more in range(period if grid == x else 1):
                if len(seen) == period or self._spent > 2 * self._budget:
                    break
                varied = msgspec.structs.replace(
                    script, grid=(grid, y, z), tiles=script.tiles + more, scalar=script.scalar + more
                )
                run = self.attempt(varied)
                if run.ended:
                    seen.add(run.heads.get(head, 0) % period)
        self.drained = len(seen) == period

    def _base(self) -> Machine | None:
        """The best of a few uniform scripts: smaller numbers when a run gets too long, larger ones otherwise."""
        first, *_ = _SCALARS
        smaller = [s for s in _SCALARS if s < first]
        larger = [s for s in _SCALARS if s > first]
        scalar = first
        while self._spent < self._budget:
            best = self._descend(scalar)
            if best is not None:
                return best
            long = self.runs[-1].time > self.runs[-1].limit
            queue = (smaller or larger) if long else (larger or smaller)
            if not queue:
                return None
            scalar = queue.pop(0)
        return None

    def _descend(self, scalar: int) -> Machine | None:
        """Smaller and smaller grids give a cluster more and more work."""
        best: Machine | None = None
        grids = list(_GRIDS)
        before, skipped = -1, False
        while grids and self._spent < self._budget:
            script = Script(scalar=scalar, step=_STEP, tiles=_TILES, grid=(grids.pop(0), 1, 1))
            run = self.attempt(script, _FIRST_LIMIT)
            if run.ended and (best is None or merit(run) > merit(best)):
                best = run
            if (run.ended and covers(run)) or (run.stuck and run.problem is None):
                break  # more work does not free what is stuck
            if run.time > run.limit:  # a smaller grid only makes it longer
                grids = list(_BETWEEN) if skipped else []
                skipped = False
            elif run.time == before and len(grids) > 1:
                grids, skipped = grids[-1:], True  # the grid hardly matters, or is still too large
            before = run.time
        return best

    def _climb(self, best: Machine) -> Machine:
        """Raise one parameter at a time while that brings more barriers round."""
        for value in _RAISED:
            for key in self.knobs():
                if self._spent > self._budget or covers(best):
                    return best
                run = self._raise(best, key, value)
                if run.ended and merit(run) > merit(best):
                    best = run
        return best

    def _reach(self, best: Machine) -> None:
        """Raise one parameter at a time, with little work, while code is left that no run has come to."""
        limit = self._spent + min(REACH_BUDGET, self._budget)
        seen: frozenset[int] = frozenset().union(*(run.worked for run in self.ended()))
        script = msgspec.structs.replace(best.script, grid=(_GRIDS[0], 1, 1), probe=True)
        for value in _RAISED:
            for key in self.knobs():
                if self._spent > limit or seen >= self.code.feasible:
                    return
                run = self.attempt(script.with_value(key, value), _REACH_LIMIT)
                if run.ended and run.worked - seen:
                    seen |= run.worked
                    self.attempt(msgspec.structs.replace(run.script, step=_STEP + 128))
                    script = run.script

    def _raise(self, best: Machine, key: tuple[str, int], value: int) -> Machine:
        """One parameter raised; with the largest grid when that gets too long."""
        script = best.script.with_value(key, value)
        limit = min(STEP_LIMIT, max(_SHORT, 3 * best.time))
        run = self.attempt(script, limit)
        largest = (_GRIDS[0], 1, 1)
        if run.time > limit and script.grid != largest:
            run = self.attempt(msgspec.structs.replace(script, grid=largest), limit)
        return run

    def knobs(self) -> list[tuple[str, int]]:
        """Scalar parameters that steer the slice; byte-sized ones are flags."""
        return sorted({(name, offset) for name, offset, width in self.code.layout.params if 16 <= width < 64})

    def _variations(self, script: Script) -> Iterator[Script]:
        """Scripts of the same kind with other numbers."""
        x, y, z = script.grid
        for scalar, step in ((script.scalar, 384), (12, 256), (16, 512), (script.scalar, 256)):
            yield Script(scalar=scalar, step=step, tiles=script.tiles + 1, grid=(x + x // 2, y, z), named=script.named)

    def _visit_corners(self, best: Machine, short: Script) -> None:
        """Loops that run not at all: one parameter zero at a time. What is new there is confirmed by a second run."""
        for key in self.knobs()[:_CORNERS]:
            if self._spent > 2 * self._budget:
                return
            run = self.attempt(short.with_value(key, 0))
            if run.traffic.conflicts.keys() - best.traffic.conflicts.keys():
                for script in self._variations(short):
                    self.attempt(script.with_value(key, 0))
                    break

    def _visit_last(self, script: Script) -> None:
        """The cluster at the end of the grid, where a static schedule leaves little work or none."""
        x, y, z = script.grid
        for grid in dict.fromkeys((_GRIDS[0], 2 * _GRIDS[0], x, x + x // 2)):
            if self._spent < 2 * self._budget:
                self.attempt(msgspec.structs.replace(script, grid=(grid, y, z), last=True), _REACH_LIMIT)


def merit(run: Machine) -> Score:
    """How much a run shows: blocks reached, barriers that come round, and then how short it is."""
    rounds = sum(min(b.current, WANTED_PHASES) for b in run.signals.mbarriers.values())
    return (len(run.worked), rounds, -run.time)


def covers(run: Machine) -> bool:
    """Whether each barrier that a loop signals has come round at least twice."""
    loops = run.code.looped
    for barrier in run.signals.mbarriers.values():
        signalled = {a.instr for phase in barrier.phases for a in phase.arrivals}
        if signalled & loops and barrier.current < WANTED_PHASES:
            return False
    return True
