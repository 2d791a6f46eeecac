"""The wheel: what is in it, and that it works away from the checkout and without the CUDA packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.support import PTX

ROOT = Path(__file__).resolve().parents[2]

# Pretend that no CUDA package is installed.
BLOCK = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
hidden = ("cutlass", "cuda", "nvidia", "kernels")
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in hidden else find(name, *rest)
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_it_ships_the_grammars_and_nothing_of_the_tests(unpacked: Path) -> None:
    assert {path.name for path in (unpacked / "verifier" / "grammars").iterdir()} >= {"ptx.lark", "sass.lark"}
    assert {path.name for path in unpacked.iterdir() if "dist-info" not in path.name} == {"verifier"}


def test_every_data_file_of_the_package_is_in_it(unpacked: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "verifier"], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = [
        file for file in tracked.stdout.splitlines() if not (unpacked / file).exists() and (ROOT / file).exists()
    ]
    assert missing == []


def test_it_checks_stored_text_without_cuda_packages(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "a.ptx").write_text(PTX.format(name="a", arch="sm_100a"))
    code = f"{BLOCK}\nimport verifier; print(verifier.__file__, file=sys.stderr)\nfrom verifier.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "a.ptx"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert str(unpacked) in done.stderr
    assert "note: a.ptx is checked without SASS, because ptxas is missing" in done.stderr
    assert done.returncode == 0, done.stderr
    assert "ptxas not installed" in done.stdout.splitlines()[-1]
