"""One run: take up what a run that was cut off left, execute the rest, write down every cell as it is done."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait

import msgspec

from verifier import __version__
from verifier.nightly.cells import CellResult, CellStore, run_cell
from verifier.nightly.history import History, Run
from verifier.nightly.plan import Cell
from verifier.nightly.settings import Settings

Work = Callable[[bytes], bytes]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands. `left_seconds` is an estimate, None while nothing is known; `what` was done last."""

    done: int
    total: int
    running: int
    left_seconds: float | None
    what: str


Tell = Callable[[Progress], None]


def run_matrix(
    history: History,
    store: CellStore,
    cells: Sequence[Cell],
    toolchains: Mapping[str, Mapping[str, str]],
    settings: Settings,
    tell: Tell,
    *,
    executor: Executor | None = None,
    work: Work = run_cell,
) -> tuple[Run, bool]:
    """Bring every cell of a run into the history; the run, and whether it was taken up from one that was cut off.

    Without an executor, `settings.jobs` threads of this process each watch over one cell. An interrupt ends the cells
    that run; the next call goes on where this one stopped.
    """
    run, resumed = history.begin(plan_digest(cells, settings), len(cells), __version__)
    recorder = _Recorder(history, run, cells, toolchains, tell, settings.jobs)
    waiting = []
    for cell in cells:
        if cell.label in recorder.done:
            continue
        known = CellResult(state="error", what=cell.error) if cell.error else store.get(cell.spec.key)
        if known is None:
            waiting.append(cell)
        else:
            recorder.record(cell, known, "as before" if not cell.error else known.state)
    cancel = threading.Event()
    local = functools.partial(work, cancel=cancel) if work is run_cell and executor is None else work
    pool = executor or ThreadPoolExecutor(max_workers=settings.jobs)
    try:
        for cell, result in _results(pool, local, waiting):
            recorder.record(cell, result, result.state)
    except BaseException:
        cancel.set()
        raise
    finally:
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
    return run, resumed


def plan_digest(cells: Sequence[Cell], settings: Settings) -> str:
    """Two runs with the same digest would give the same history."""
    parts = [f"{cell.label}\0{cell.spec.key}\0{cell.error}" for cell in cells]
    parts.append(f"{settings.bar!r} {sorted(settings.thresholds.items())!r}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _results(pool: Executor, work: Work, waiting: Sequence[Cell]) -> Iterator[tuple[Cell, CellResult]]:
    futures = {pool.submit(work, msgspec.json.encode(cell.spec)): cell for cell in waiting}
    pending: set[Future[bytes]] = set(futures)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield futures[future], _result(future)


def _result(future: Future[bytes]) -> CellResult:
    try:
        return msgspec.json.decode(future.result(), type=CellResult)
    except Exception as error:  # of the executor: a worker that vanished is one cell, not the end of the run
        return CellResult(state="crash", what=f"the executor lost it: {type(error).__name__}: {error}")


class _Recorder:
    """Writes cells down and tells how far the run is."""

    def __init__(
        self,
        history: History,
        run: Run,
        cells: Sequence[Cell],
        toolchains: Mapping[str, Mapping[str, str]],
        tell: Tell,
        jobs: int,
    ) -> None:
        self._history = history
        self._run = run
        self._toolchains = toolchains
        self._tell = tell
        self._jobs = jobs
        self._expected = history.durations()
        self.done = set(history.recorded(run.id))
        self._left = {cell.label: None for cell in cells if cell.label not in self.done}
        self._total = len(cells)

    def record(self, cell: Cell, result: CellResult, how: str) -> None:
        label = cell.label
        self._history.record(self._run.id, label, self._toolchains.get(label.toolchain, {}), cell.spec.key, result)
        self.done.add(label)
        self._left.pop(label, None)
        if result.state == "checked":
            self._expected[label] = result.seconds
        self._tell(
            Progress(
                done=len(self.done),
                total=self._total,
                running=min(self._jobs, len(self._left)),
                left_seconds=self._estimate(),
                what=f"{label}: {_how(result, how)}",
            )
        )

    def _estimate(self) -> float | None:
        known = list(self._expected.values())
        if not known or not self._left:
            return None if self._left else 0.0
        usual = sum(known) / len(known)
        return sum(self._expected.get(label, usual) for label in self._left) / self._jobs


def _how(result: CellResult, how: str) -> str:
    if result.state != "checked":
        return f"{result.state}: {result.what.partition(chr(10))[0]}"
    findings = sum(len(kernel.outcome.findings) for kernel in result.kernels)
    found = f", {findings} findings" if findings else ""
    return f"{how}{found} ({result.seconds:.0f} s)"
