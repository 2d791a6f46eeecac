"""A runner that is killed at any moment, and two runners at once."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.nightly.support import dump
from verifier.nightly.history import History

ROOT = Path(__file__).resolve().parents[2]
KERNELS = 40  # four cells each
KILLS = 10
KILLS_AT_THE_END = 2


@contextlib.contextmanager
def runner(folder: Path, kernels: int = KERNELS) -> Iterator[subprocess.Popen[str]]:
    """A runner that is killed at the end of the context, if it still runs."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.nightly.driver", str(folder), str(kernels)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(folder: Path, kernels: int = KERNELS) -> None:
    """Run to the end."""
    with runner(folder, kernels) as process:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 2, said  # some fake cells crash


def wait_for(folder: Path, executions: int, process: subprocess.Popen[str]) -> None:
    while len(log(folder)) < executions and process.poll() is None:
        time.sleep(0.001)


def log(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().split() if file.exists() else []


def recorded(folder: Path) -> set[str]:
    """Keys of the cells that the history has, read as the next runner would read it."""
    with History(folder / "history.sqlite") as history:
        last = history.last()
        return set(history.recorded(last.id).values()) if last else set()


def test_ten_kills_change_nothing(tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    finish(calm)
    seed = int.from_bytes(os.urandom(4), "big")
    chance = random.Random(seed)
    done: set[str] = set()
    ran: Counter[str] = Counter()
    for number in range(KILLS):
        with runner(killed) as process:
            if number < KILLS - KILLS_AT_THE_END:
                wait_for(killed, len(log(killed)) + chance.randint(0, 12), process)
                time.sleep(chance.random() * 0.03)
            else:
                assert process.stderr is not None
                process.stderr.readline()  # it says that it is finishing
                time.sleep(chance.random() * 0.05)
        now = Counter(log(killed))
        assert not [key for key in done if now[key] != ran[key]], f"a finished cell ran again; seed {seed}"
        done, ran = recorded(killed), now
        assert done <= set(ran), f"seed {seed}"
    finish(killed)
    assert not [key for key in done if Counter(log(killed))[key] != ran[key]], f"seed {seed}"
    assert dump(killed / "history.sqlite") == dump(calm / "history.sqlite"), f"seed {seed}"
    for file in ("index.html", "findings.sarif", "junit.xml", "summary.json"):
        assert (killed / file).exists(), f"seed {seed}"
    assert not list(killed.glob(".*")), f"half a file was left; seed {seed}"


def test_the_second_runner_refuses_and_the_first_goes_on(tmp_path: Path) -> None:
    with runner(tmp_path, 60) as first:
        wait_for(tmp_path, 1, first)
        with runner(tmp_path, 60) as second:
            _, said = second.communicate(timeout=60)
        assert first.poll() is None, "the first was done before the second could try"
        assert second.returncode == 2
        assert f"another nightly run works in this folder: process {first.pid} since " in said
        assert "Traceback" not in said
        first.communicate(timeout=120)
        assert first.returncode == 2
    with History(tmp_path / "history.sqlite") as history:
        (run,) = history.runs()
        assert run.state == "finished"
        assert len(history.recorded(run.id)) == 240
    assert max(Counter(log(tmp_path)).values()) == 1


def test_a_killed_runner_holds_no_lock(tmp_path: Path) -> None:
    with runner(tmp_path, 20) as first:
        wait_for(tmp_path, 1, first)
    finish(tmp_path, 20)
