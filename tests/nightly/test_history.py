"""The history file: refused when it is not sound, migrated in steps, whole after every transaction."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.nightly.support import build, dump, found, result, write_run
from verifier.errors import ConfigError, InputError, VerifierError
from verifier.findings import Suppressed, Waiver
from verifier.nightly import history as module
from verifier.nightly.history import History
from verifier.nightly.migrations import MIGRATIONS
from verifier.nightly.rows import cells_of, last_good
from verifier.report.comparison import Counts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    with History(path) as history:
        write_run(history, {build(): result(build(), findings=(found(),))}, 1)
    return path


def test_a_run_comes_back_as_it_was_written(path: Path) -> None:
    waived = Suppressed(finding=found(fingerprint="a" * 64), waiver=Waiver.SOURCE, reason="ours", origin="x:1")
    label = build()
    given = result(label, findings=(found(),), metrics={"registers": 40, "ratio": 0.5}, counts={"TCG101": (3, 1, 2)})
    record = given.kernels[0]
    outcome = msgspec.structs.replace(record.outcome, suppressed=(waived,))
    record = msgspec.structs.replace(record, outcome=outcome)
    given = msgspec.structs.replace(given, kernels=(record,), seconds=2.5)
    with History(path) as history:
        number = write_run(history, {label: given, build("other"): result(build("other"), state="time")}, 2)
    with History(path) as history:
        cells = cells_of(history, number)
        assert history.run(number).exit_code == 2
        assert not history.run(number).good
        assert history.durations() == {label: 2.5}
    assert cells[build("other")].state == "time"
    assert cells[build("other")].kernels == {}
    (kernel,) = cells[label].kernels.values()
    assert (kernel.ptx, kernel.sass) == ("p", "s")
    assert kernel.metrics == {"registers": 40, "ratio": 0.5}
    assert kernel.counts == {"TCG101": Counts(3, 1, 2)}
    assert {key[0]: row.waived for key, row in kernel.findings.items()} == {"f": "", "a": "ours"}
    assert kernel.findings["f" * 64].file == "gemm.py"
    assert kernel.findings["f" * 64].line == 9


def test_a_cell_is_written_once(path: Path) -> None:
    with History(path) as history:
        run, _ = history.begin("plan", 1, "0")
        history.record(run.id, build(), {}, "k", result(build()))
        before = dump(path)
        history.record(run.id, build(), {}, "k", result(build(), state="crash"))
    assert dump(path) == before


def test_a_run_that_was_cut_off_is_taken_up_only_with_the_same_plan(path: Path) -> None:
    with History(path) as history:
        first, resumed = history.begin("plan", 2, "0")
        assert not resumed
        again, resumed = history.begin("plan", 2, "0")
        assert (again.id, resumed) == (first.id, True)
        other, resumed = history.begin("another plan", 2, "0")
        assert not resumed
        assert other.id != first.id
        assert history.run(first.id).state == "superseded"
        history.finish(other.id, 0)
        third, resumed = history.begin("another plan", 2, "0")
        assert not resumed
        assert third.id != other.id


def test_the_last_good_run_is_found_cell_by_cell(path: Path) -> None:
    one, two = build(), build("other")
    with History(path) as history:
        first = write_run(history, {one: result(one), two: result(two)}, 0, "1")
        bad = write_run(history, {one: result(one), two: result(two)}, 1, "2")
        narrow = write_run(history, {one: result(one)}, 0, "3")
        lost = write_run(history, {one: result(one, state="crash"), two: result(two)}, 2, "4")
        now = write_run(history, {one: result(one), two: result(two)}, None, "5")
        assert last_good(history, now) == {one: narrow, two: first}
        history.accept(lost, "known crash of the compiler")
        assert last_good(history, now) == {one: narrow, two: lost}
        assert last_good(history, bad) == {one: first, two: first}
        with pytest.raises(ConfigError, match="did not finish"):
            history.accept(now, "why")


def damaged(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[4096 + 100 : 4096 * 2] = os.urandom(4096 - 100)
    return bytes(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"this is no database, but a text that somebody wrote\n" * 40, "damaged"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (None, "damaged"),
    ],
)
def test_a_damaged_history_is_refused_and_left_alone(filled: Path, change: object, message: str) -> None:
    filled.write_bytes(change(filled.read_bytes()) if callable(change) else damaged(filled))
    before = filled.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        History(filled)
    assert caught.value.do
    assert filled.read_bytes() == before
    assert [file.name for file in filled.parent.iterdir()] == [filled.name]


def test_a_newer_history_is_refused_and_left_alone(filled: Path) -> None:
    newer = (*MIGRATIONS, "CREATE TABLE more (id INTEGER PRIMARY KEY)")
    with History(filled, migrations=newer):
        pass
    before = filled.read_bytes()
    with pytest.raises(InputError, match=f"of version {len(newer)}, and this verifier knows up to {len(MIGRATIONS)}"):
        History(filled)
    assert filled.read_bytes() == before


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE runs (id INTEGER)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="not a history of the verifier"):
        History(path)
    assert path.read_bytes() == before


def test_migrations_keep_what_was_there(filled: Path) -> None:
    before = dump(filled)
    newer = (
        *MIGRATIONS,
        "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'; CREATE INDEX i ON runs (note)",
    )
    with History(filled, migrations=newer) as history:
        assert history.db.execute("SELECT note FROM runs").fetchall() == [("none",)]
    assert dump(filled) == before
    with History(filled, migrations=newer) as history:
        assert history.db.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_migration_that_fails_changes_nothing(filled: Path) -> None:
    before = dump(filled)
    broken = (*MIGRATIONS, "CREATE TABLE more (id INTEGER); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(InputError):
        History(filled, migrations=broken)
    with History(filled) as history:
        names = {row[0] for row in history.db.execute("SELECT name FROM sqlite_master")}
    assert "more" not in names
    assert dump(filled) == before


def test_a_transaction_is_all_or_nothing(path: Path) -> None:
    def half(history: History) -> None:
        with history.transaction():
            history.db.execute("UPDATE runs SET state = 'finished'")
            raise KeyboardInterrupt

    with History(path) as history:
        run, _ = history.begin("plan", 1, "0")
        before = dump(path)
        with pytest.raises(KeyboardInterrupt):
            half(history)
        assert history.run(run.id).state == "running"
    assert dump(path) == before


def test_a_second_process_can_read_and_write(path: Path) -> None:
    """While one history is open, another process accepts a run and this one sees it."""
    with History(path) as history:
        number = write_run(history, {build(): result(build())}, 1)
        code = (
            "import sys; from pathlib import Path; from verifier.nightly.history import History\n"
            f"with History(Path({str(path)!r})) as h: h.accept({number}, 'seen'); print(len(h.recorded({number})))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.stdout == "1\n", done.stderr
        assert history.run(number).accepted == "seen"


def test_a_busy_history_is_one_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)
    with History(path) as history:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="cannot be written"):
            history.begin("plan", 1, "0")
        other.close()
        history.begin("plan", 1, "0")


def test_reading_needs_a_history(path: Path) -> None:
    with pytest.raises(VerifierError, match="there is no history yet"):
        History(path, create=False)
    assert not path.exists()
