"""Finds scripts under which a kernel runs to the end and uses its barriers often enough to judge them."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.protocol.code import Code
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.scripts import Script
from verifier.analyses.protocol.start import Dims, Start
from verifier.analyses.protocol.traffic import Boxes
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel

STEP_LIMIT = 120_000  # of one run
STEP_BUDGET = 600_000  # of one kernel
WANTED_PHASES = 4  # twice round the parity
WANTED_RUNS = 2

# What is tried. Small parameters and large grids make short runs, so they come first.
_SCALARS = (8, 128, 1024, 4, 512, 2, 256, 3)
_GRIDS = (1024, 256, 16, 1)
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (1, 1, 4))
_STEP = 256


class Protocol:
    """What running a kernel's protocol showed.

    `runs` ended, in order of how much they exercise; verdicts rest on them. `reason` says why there are none.
    """

    def __init__(self, model: KernelModel, runs: list[Machine], tries: list[Machine], reason: str) -> None:
        self.model = model
        self.runs = tuple(runs)
        self.reason = reason
        self.steps = sum(run.time for run in tries)

    @property
    def base(self) -> Machine | None:
        return self.runs[0] if self.runs else None


def analyse(model: KernelModel) -> Protocol:
    """Run the protocol of a kernel; costs nothing when it has no barrier."""
    if not any(e.kind is Kind.BARRIER_INIT for e in model.events):
        return Protocol(model, [], [], "no mbarrier")
    if model.shape.block is None:
        return Protocol(model, [], [], "the block size is not known (--block)")
    code = Code(model)
    tried: list[Machine] = []
    for cluster in _clusters(model):
        start = Start(model.function, model.shape.block, cluster)
        ended = [run for run in _tries(code, start, tried) if run.problem is None and not run.stuck]
        if ended:
            return Protocol(model, sorted(ended, key=_rank), tried, "")
    return Protocol(model, [], tried, _why(tried))


def _clusters(model: KernelModel) -> tuple[Dims, ...]:
    if model.shape.cluster is not None:
        return (model.shape.cluster,)
    if not model.in_cluster:
        return ((1, 1, 1),)
    pairs = any(e.has("cta_group::2") for e in model.events)
    return tuple(c for c in _CLUSTERS if not pairs or (c[0] * c[1] * c[2]) % 2 == 0)


def _tries(code: Code, start: Start, tried: list[Machine]) -> Iterator[Machine]:
    """Runs, until enough of them cover the barriers or the budget is spent."""
    covered = 0
    for scalar in _SCALARS:
        grids = list(_GRIDS)
        before = -1
        while grids and covered < WANTED_RUNS and sum(run.time for run in tried) < STEP_BUDGET:
            grid = grids.pop(0)
            run = Machine(code, start, _script(scalar, grid), Boxes(), STEP_LIMIT)
            run.run()
            tried.append(run)
            yield run
            if run.time > STEP_LIMIT:
                break  # a smaller grid only makes it longer
            if run.problem is None and not run.stuck and _covers(run):
                covered += 1
                grids = [2 * grid] if grid in _GRIDS else []
            elif run.time == before:
                grids = grids[-1:]  # the grid hardly matters
            before = run.time


def _script(scalar: int, grid: int) -> Script:
    name = f"parameters {scalar}, grid of {grid} clusters"
    return Script(name=name, scalar=scalar, step=_STEP, tiles=2 * WANTED_PHASES, grid=(grid, 1, 1))


def _covers(run: Machine) -> bool:
    """Whether each barrier that a loop signals has come round at least twice."""
    loops = run.code.looped
    for barrier in run.signals.mbarriers.values():
        signalled = {a.instr for phase in barrier.phases for a in phase.arrivals}
        if signalled & loops and barrier.current < WANTED_PHASES:
            return False
    return True


def _rank(run: Machine) -> tuple[int, int]:
    """The better a run covers, the earlier it comes; then the shorter."""
    return (-sum(b.current >= WANTED_PHASES for b in run.signals.mbarriers.values()), run.time)


def _why(tried: list[Machine]) -> str:
    """The reason most runs stopped for."""
    reasons: dict[str, int] = {}
    for run in tried:
        reason = run.problem or "the run gets stuck"
        reasons[reason] = reasons.get(reason, 0) + 1
    return max(reasons, key=lambda r: reasons[r]) if reasons else "nothing could be run"
