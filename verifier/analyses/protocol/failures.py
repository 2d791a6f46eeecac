"""Runs that go wrong beside runs that end: a fault of the kernel, inputs that do not fit together, or a corner case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from verifier.analyses.protocol.barrier import MBarrier
from verifier.analyses.protocol.hang import Blame, able_to_signal, stuck_warps
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.scripts import Script
from verifier.analyses.protocol.signals import Blocked
from verifier.analyses.protocol.steering import GRID, Steering

WarpName = tuple[int, int]
CONFIRMED = 2  # runs that must show a violation


class Failures(msgspec.Struct, frozen=True):
    """`runs` go wrong under inputs that a proof would have to cover, those that get stuck first.

    `left_out` are corner cases (a loop that runs zero times, the end of the grid) that come to no code of their own:
    whether a host allows them is not in the kernel. `certain` is a run that gets stuck for no fault of its inputs.
    """

    runs: tuple[Machine, ...] = ()
    left_out: tuple[Machine, ...] = ()
    certain: Machine | None = None

    @property
    def doubt(self) -> str:
        """Why nothing is proved beside these runs; empty when there are none."""
        if not self.runs:
            return ""
        run = self.runs[0]
        what = f"stops at {run.problem}" if run.misused else "hangs"
        return f"the run with {run.script.text} {what}"

    @property
    def exception(self) -> str:
        """Which inputs a proof does not cover, as the end of a sentence."""
        texts = dict.fromkeys(run.script.corner for run in self.left_out)
        return f"; except {', '.join(texts)}: there it hangs" if texts else ""


def failures(tried: Sequence[Machine], ended: Sequence[Machine]) -> Failures:
    """Sort the runs that went wrong."""
    wrong = [run for run in tried if run.failed]
    left_out = [r for r in wrong if r.script.degenerate and any(r.worked <= other.worked for other in ended)]
    rest = sorted((r for r in wrong if r not in left_out), key=lambda r: (r.misused, r.script.degenerate))
    return Failures(tuple(rest), tuple(left_out), _certain(rest, ended) if rest and ended else None)


def _certain(wrong: Sequence[Machine], ended: Sequence[Machine]) -> Machine | None:
    """A run that gets stuck where others do, with more of the work of one that ended, and not because of its inputs."""
    stuck = [run for run in wrong if not run.misused and not run.script.degenerate]
    places = Counter(place for place, _ in {(_culprit(run), run.script) for run in stuck})
    for run in stuck:
        less = [other.script for other in ended if is_multiple(run.script, other.script)]
        if less and places[_culprit(run)] >= CONFIRMED and _is_consistent(run, less):
            return run
    return None


def _culprit(run: Machine) -> tuple[int, str]:
    first, *_ = stuck_warps(run)
    return first.instr, first.label


def is_multiple(more: Script, script: Script) -> bool:
    """Whether each input of `more` is a multiple of that of `script`: then it meets what a host asks of sizes, too."""
    names = {key for key, _ in (*more.named, *script.named)}
    pairs = [(more.scalar, script.scalar), *((more.value(key), script.value(key)) for key in names)]
    return all(less and much % less == 0 for much, less in pairs)


def _is_consistent(run: Machine, less: Sequence[Script]) -> bool:
    """Whether those who hold each other up all do what one input says, the same input; `less` are scripts that end.

    Two inputs may belong together, and so may one and the grid: then only a script with the same grid has less to do.
    """
    blocked: dict[WarpName, list[Blocked]] = {}
    for fiber in run.stuck:
        if not isinstance(fiber.waits, Blocked):
            return False
        blocked.setdefault(fiber.warp.name, []).append(fiber.waits)
    if any(stuck.blame is Blame.NOBODY for stuck in stuck_warps(run)):
        return True
    steering = Steering(run.code)
    same_grid = any(script.grid == run.script.grid for script in less)
    for circle in (_holding_up(run, warp, blocked) for warp in blocked):
        inputs = {steering.of(warp) for warp in circle}
        if len(inputs) == 1 and all(len(own - {GRID}) <= 1 and (same_grid or GRID not in own) for own in inputs):
            return True
    return False


def _holding_up(run: Machine, warp: WarpName, blocked: dict[WarpName, list[Blocked]]) -> set[WarpName]:
    """The warps that `warp` waits for, those that these wait for, and so on; empty when that cannot be told."""
    seen = {warp}
    work = [warp]
    while work:
        for wait in blocked.get(work.pop(), ()):
            if not isinstance(wait.barrier, MBarrier):
                return set()
            able = able_to_signal(run, wait.barrier)
            if able is None:
                return set()
            missing = able - {a.warp for a in wait.barrier.phases[-1].arrivals if a.count} or able
            work += missing - seen
            seen |= missing
    return seen
