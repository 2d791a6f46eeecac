"""One cell: every way in which its process can end is a result; what would be the same again is kept."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.nightly.support import TOOLCHAINS, build, cell, matrix, result
from verifier.compile.process import Cancelled
from verifier.nightly import cells as module
from verifier.nightly.cells import CellResult, CellSpec, CellStore, run_cell
from verifier.nightly.history import History
from verifier.nightly.rows import cells_of
from verifier.nightly.run import Progress, run_matrix
from verifier.nightly.settings import Settings


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKER", "tests.nightly.worker")


def spec(store: Path, name: str, **changes: object) -> CellSpec:
    return msgspec.structs.replace(cell(build(name), store).spec, **changes)


def run(wanted: CellSpec) -> CellResult:
    return msgspec.json.decode(run_cell(msgspec.json.encode(wanted)), type=CellResult)


@pytest.mark.parametrize(
    ("name", "state", "what"),
    [
        ("sleeps", "time", "took longer than 2 s"),
        ("allocates", "memory", "needed more than 0.5 GiB"),
        ("segfaults", "crash", "SIGSEGV"),
        ("exits", "crash", "exit code 1: no reason"),
        ("babbles", "crash", "exit code 0"),
        ("fails", "failed", ""),
        ("fine", "checked", ""),
    ],
)
def test_every_ending_is_a_result(tmp_path: Path, name: str, state: str, what: str) -> None:
    limit = 2.0 if name == "sleeps" else 60.0
    found = run(spec(tmp_path, name, seconds=limit, memory=1 << 29))
    assert found.state == state
    assert what in found.what
    assert found.seconds > 0


def test_a_settled_cell_is_done_once_and_another_again(tmp_path: Path) -> None:
    assert run(spec(tmp_path, "fine")) == run(spec(tmp_path, "fine"))
    run(spec(tmp_path, "fails"))
    run(spec(tmp_path, "fails"))
    assert (tmp_path / "executions").read_text().splitlines() == ["fine-sm_100a-one", "fails-sm_100a-one"]
    assert run(spec(tmp_path, "segfaults")).state == "crash"
    assert CellStore(tmp_path).get(spec(tmp_path, "segfaults").key) is None


def test_a_damaged_result_counts_as_none(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    store.put("key", result(build()))
    assert store.get("key") == result(build())
    (store.folder("key") / "result.json").write_text('{"state": "che')
    assert store.get("key") is None
    store.put("key", msgspec.structs.replace(result(build()), version=99))
    assert store.get("key") is None


def test_prune_keeps_what_is_asked_for(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    for key in ("aa1", "aa2", "bb3"):
        store.put(key, result(build()))
    assert store.prune(frozenset({"aa1"})) == 2
    assert store.get("aa1") is not None
    assert store.get("bb3") is None


def test_a_cell_can_be_cancelled(tmp_path: Path) -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    with pytest.raises(Cancelled):
        run_cell(msgspec.json.encode(spec(tmp_path, "sleeps")), cancel)
    timer.join()


def in_history(tmp_path: Path, executor: Executor | None, **options: Any) -> dict[str, str]:
    names = ("fine", "segfaults", "more", "fails")
    cells = [cell(build(name), tmp_path) for name in names]
    told: list[Progress] = []
    with History(tmp_path / "history.sqlite") as history:
        started, _ = run_matrix(
            history, CellStore(tmp_path), cells, TOOLCHAINS, Settings(), told.append, executor=executor, **options
        )
        rows = cells_of(history, started.id)
    assert [progress.done for progress in told] == [1, 2, 3, 4]
    assert (told[-1].running, told[-1].left_seconds) == (0, 0.0)
    return {label.kernel: row.state for label, row in rows.items()}


EXPECTED = {"fine": "checked", "segfaults": "crash", "more": "checked", "fails": "failed"}


def test_one_bad_cell_does_not_end_the_run(tmp_path: Path) -> None:
    assert in_history(tmp_path, None) == EXPECTED


def _fake(data: bytes) -> bytes:
    """Sent to another process by the executor, as a distributed one would."""
    wanted = msgspec.json.decode(data, type=CellSpec)
    states: dict[str, Any] = EXPECTED
    name = wanted.subject.name  # type: ignore[union-attr]
    return msgspec.json.encode(result(build(name), state=states[name]))


def test_any_executor_will_do(tmp_path: Path) -> None:
    with ProcessPoolExecutor(max_workers=2) as pool:
        assert in_history(tmp_path, pool, work=_fake) == EXPECTED


class Broken(Executor):
    """An executor whose worker for one cell vanishes."""

    def submit(self, work: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if b'"more"' in arguments[0]:
            future.set_exception(ConnectionError("node 7 is gone"))
        else:
            future.set_result(work(*arguments))
        return future


def test_a_worker_that_vanishes_is_one_cell(tmp_path: Path) -> None:
    assert in_history(tmp_path, Broken(), work=_fake) == {**EXPECTED, "more": "crash"}


def test_the_estimate_comes_from_earlier_runs(tmp_path: Path) -> None:
    cells = matrix(tmp_path, 1)
    told: list[Progress] = []

    def work(data: bytes) -> bytes:
        wanted = msgspec.json.decode(data, type=CellSpec)
        label = next(c.label for c in cells if c.spec.key == wanted.key)
        return msgspec.json.encode(result(label, seconds=10.0))

    settings = Settings(jobs=1)
    with History(tmp_path / "history.sqlite") as history:
        for _ in range(2):
            started, _resumed = run_matrix(
                history, CellStore(tmp_path / "none"), cells, TOOLCHAINS, settings, told.append, work=work
            )
            history.finish(started.id, 0)
    assert [progress.left_seconds for progress in told] == [30.0, 20.0, 10.0, 0.0] * 2


def test_a_cell_that_cannot_be_done_is_recorded(tmp_path: Path) -> None:
    broken = [cell(build(), tmp_path, error="the toolchain is missing")]
    with History(tmp_path / "history.sqlite") as history:
        started, _ = run_matrix(history, CellStore(tmp_path), broken, TOOLCHAINS, Settings(), lambda _: None)
        (row,) = cells_of(history, started.id).values()
    assert (row.state, row.what) == ("error", "the toolchain is missing")
