"""What happens to running cells when the runner is interrupted or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.conftest import Project
from verifier.nightly.history import History

ENDLESS = """
import os, time
from pathlib import Path

def build(config, defect):
    Path(__file__).with_name("started").write_text(str(os.getpid()))
    while True:
        time.sleep(1)
"""


@pytest.fixture
def endless(project: Project) -> Project:
    """A project whose one kernel compiles for ever and leaves its process id."""
    project.kernel("endless", ENDLESS)
    project.register(['Case("endless")'])
    return project


@contextlib.contextmanager
def running(project: Project) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The runner, and the process that compiles."""
    environment = {**os.environ, "PYTHONPATH": str(project.root), "VERIFIER_CACHE_DIR": str(project.root / "cache")}
    command = [sys.executable, "-m", "verifier", "nightly", "--out", "out"]
    marker = project.root / "kernels" / "started"
    with subprocess.Popen(command, cwd=project.root, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and not (marker.exists() and marker.read_text()):
                time.sleep(0.05)
            assert marker.exists(), process.stderr and process.stderr.read()
            yield process, int(marker.read_text())
        finally:
            process.kill()


def alive(pid: int) -> bool:
    """Whether it runs; one that nobody waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def state(project: Project) -> list[str]:
    with History(project.root / "out" / "history.sqlite") as history:
        return [run.state for run in history.runs()]


@pytest.mark.toolchain
def test_an_interrupt_ends_the_cells_and_the_run_goes_on_later(endless: Project) -> None:
    with running(endless) as (process, worker):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert not alive(worker)
    assert state(endless) == ["running"]
    endless.settings("seconds = 8\n")  # limits are no part of the plan
    ran = endless.run("--out", "out")
    assert ran.code == 2
    assert "run 1 was cut off and is taken up" in ran.err
    assert state(endless) == ["finished"]


@pytest.mark.toolchain
def test_cells_end_with_a_runner_that_is_killed(endless: Project) -> None:
    with running(endless) as (process, worker):
        process.kill()
        process.wait()
        while alive(worker):  # the kernel needs a moment; a worker that stays is a time-out of this test
            time.sleep(0.05)
    assert state(endless) == ["running"]
