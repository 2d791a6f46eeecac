"""Running the command line, and inputs to run it on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import PTX, Ran, Verifier
from verifier.cli import run


@pytest.fixture
def verifier(capfd: pytest.CaptureFixture[str]) -> Verifier:
    """`verifier(*arguments)` runs one command line in this process."""

    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def process() -> Verifier:
    """The same in a process of its own."""

    def call(*arguments: object, **options: Any) -> Ran:
        command = [sys.executable, "-m", "verifier", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def ptx(tmp_path: Path) -> Callable[..., Path]:
    """`ptx(file, name=, arch=)` writes a small kernel."""

    def write(file: str = "kernel_a.ptx", name: str = "kernel_a", arch: str = "sm_100a") -> Path:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PTX.format(name=name, arch=arch))
        return path

    return write


@pytest.fixture(scope="session")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`kernel_a` for sm_100a, assembled by the pinned ptxas."""
    from verifier.compile.assemble import assemble

    path = tmp_path_factory.mktemp("cubin") / "kernel_a.cubin"
    path.write_bytes(assemble(PTX.format(name="kernel_a", arch="sm_100a"), "sm_100a").cubin)
    return path
