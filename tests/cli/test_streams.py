"""Standard streams that are closed, full, or left by their reader."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import Ran

MakePtx = Callable[..., Path]
Shell = Callable[..., Ran]

COMMANDS = [
    "rules",
    "--help",
    "--version",
    "verify --help",
    "nightly trend --help",
    "check --no-assemble kernel_a.ptx",
    "check --no-assemble --format json kernel_a.ptx",
    "show streams kernel_a.ptx",
]
each_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def shell(ptx: MakePtx) -> Shell:
    """`shell(arguments, redirections)`: a command line of the verifier with a kernel at hand, run by a shell."""
    folder = ptx().parent

    def call(command: str, redirections: str = "") -> Ran:
        line = f"{shlex.quote(sys.executable)} -m verifier {command} {redirections}"
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120)
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@each_command
def test_a_closed_stdout_is_one_error(shell: Shell, command: str) -> None:
    ran = shell(command, ">&-")
    assert ran.code == 2
    assert ran.err.splitlines()[0].endswith("cannot be written: it is closed")
    assert ran.err.splitlines()[1:] == ["  where: standard output"]


@each_command
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_one_error(shell: Shell, command: str) -> None:
    ran = shell(command, ">/dev/full")
    assert ran.code == 2
    assert ran.err.count("error: ") == 1
    assert "No space left on device" in ran.err
    assert "internal" not in ran.err


@each_command
def test_a_reader_that_leaves_is_no_error(shell: Shell, command: str) -> None:
    ran = shell(command, "| true; exit ${PIPESTATUS[0]}")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("redirections", ["2>&-", "2>&- <&-", "2>/dev/full"])
def test_messages_that_nobody_takes_change_nothing(shell: Shell, redirections: str) -> None:
    ran = shell("check --no-assemble --format json kernel_a.ptx nowhere.ptx", redirections)
    assert ran.code == 2
    assert json.loads(ran.out)["errors"][0]["where"] == "nowhere.ptx"


def test_a_file_that_is_opened_does_not_become_stdout(shell: Shell, tmp_path: Path) -> None:
    """The lowest free number goes to the next file: without care a report would end in somebody's input."""
    before = (tmp_path / "kernel_a.ptx").read_bytes()
    ran = shell("check kernel_a.ptx --output-file report.txt", ">&- <&-")
    assert (ran.code, ran.err) == (0, "")
    assert "1 kernel (sm_100a)" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "kernel_a.ptx").read_bytes() == before
