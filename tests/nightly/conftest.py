"""A project of its own, with a registry of its own, that the nightly command runs in."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.support import PTX, Ran

REGISTRY = """
import dataclasses
from pathlib import Path

@dataclasses.dataclass(frozen=True)
class Defect:
    name: str
    rule: str = ""
    summary: str = ""

@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    archs: tuple = ("sm_100a",)
    config: dict = dataclasses.field(default_factory=dict)
    defects: tuple = ()
    @property
    def module(self): return f"kernels.{self.name}"
    @property
    def source(self): return Path(__file__).with_name(f"{self.name}.py")

CASES = (%s)
"""


class Project:
    """A folder with `kernels/registry.py`, nightly.toml and files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "kernels").mkdir()
        (root / "kernels" / "__init__.py").touch()
        self.register(())

    def register(self, cases: Sequence[str]) -> None:
        """`cases` are constructor calls such as `Case("gemm")`."""
        (self.root / "kernels" / "registry.py").write_text(REGISTRY % "".join(f"{case}, " for case in cases))

    def kernel(self, name: str, code: str) -> None:
        (self.root / "kernels" / f"{name}.py").write_text(textwrap.dedent(code))

    def settings(self, text: str) -> None:
        (self.root / "nightly.toml").write_text(text)

    def ptx(self, file: str, name: str) -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PTX.format(name=name, arch="sm_100a"))
        return path

    def run(self, *arguments: object) -> Ran:
        command = [sys.executable, "-m", "verifier", "nightly", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(self.root), "VERIFIER_CACHE_DIR": str(self.root / "cache")}
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=300)
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
