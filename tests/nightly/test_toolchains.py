"""Toolchains by wheel: environments of their own, and what two of them make of one kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.support import Ran
from tests.nightly.conftest import Project
from verifier.nightly import toolchains as module
from verifier.nightly.settings import ToolchainSettings
from verifier.nightly.toolchains import prepare

ROOT = Path(__file__).resolve().parents[2]
slow = [
    pytest.mark.slow,
    pytest.mark.toolchain,
    pytest.mark.skipif(not os.environ.get("CI") and not os.environ.get("VERIFIER_SLOW"), reason="slow; CI runs it"),
]
ASSEMBLERS = """
[toolchain.old]
ptxas = "nvidia-cuda-nvcc-cu12==12.9.86"
[toolchain.new]
ptxas = "nvidia-cuda-nvcc==13.5.37"
"""


def test_what_is_installed_is_a_toolchain(tmp_path: Path) -> None:
    found = prepare("installed", ToolchainSettings(), tmp_path, lambda _: None)
    assert found.error == ""
    assert found.python is None
    assert found.ptxas is None
    assert any(package.startswith("nvidia-cutlass-dsl==") for package in found.packages)
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_that_does_not_exist_is_the_error_of_its_column(tmp_path: Path) -> None:
    wanted = ToolchainSettings(ptxas=str(tmp_path / "no-such-wheel.whl"))
    found = prepare("broken", wanted, tmp_path / "root", lambda _: None)
    assert "no-such-wheel.whl cannot be installed" in found.error


def test_a_half_made_environment_is_made_again(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        assert not folder.exists()
        folder.mkdir()
        made.append(folder)
        if len(made) == 1:
            (folder / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module._made(tmp_path, ("a", "b"), make)
    folder = module._made(tmp_path, ("a", "b"), make)
    assert module._made(tmp_path, ("a", "b"), make) == folder
    assert len(made) == 2
    assert not (folder / "half").exists()
    assert module._made(tmp_path, ("a", "c"), lambda f: f.mkdir()) != folder


def summary(project: Project, ran: Ran) -> dict[str, object]:
    assert "Traceback" not in ran.err
    found: dict[str, object] = json.loads((project.root / "out" / "summary.json").read_text())
    return found


@pytest.mark.parametrize("marks", [pytest.param(None, marks=slow)])
def test_two_assemblers_make_different_code_of_one_kernel(project: Project, marks: None) -> None:
    """ptxas 12.9 loses a wait that 13.5 keeps: same PTX, other SASS, another verdict of SAS801."""
    project.settings(f'profile = "isa"\nstrict = true\nartifacts = ["{ROOT / "kernels" / "ptx"}"]\n{ASSEMBLERS}')
    ran = project.run("--out", "out")
    assert ran.code == 1, ran.err
    new = summary(project, ran)["comparison"]["new"]  # type: ignore[index]
    assert {(change["rule"], build["toolchain"]) for change in new for build in change["builds"]} == {
        ("SAS801", "ptxas 12.9.86")
    }
    shown = project.run("show", 1, "--out", "out").out
    assert "ptxas 12.9.86                PTX A  SASS A  SAS801: 2 violated" in shown
    assert "ptxas 13.5.37                PTX A  SASS B  SAS801: 2 proved" in shown
    page = (project.root / "out" / "index.html").read_text()
    assert "Toolchains side by side" in page
    assert "SAS801: 2 violated" in page


@pytest.mark.parametrize("marks", [pytest.param(None, marks=slow)])
def test_two_versions_of_the_dsl_build_a_kernel_of_this_project(tmp_path: Path, marks: None) -> None:
    """A small real matrix, and a defect that the next run must report with its Python line."""
    settings = tmp_path / "nightly.toml"
    settings.write_text(
        'profile = "isa"\nstrict = true\nkernels = ["gemm_splitk_mailbox"]\narchs = ["sm_100a"]\n'
        '[toolchain.installed]\n[toolchain.other]\ndsl = ["nvidia-cutlass-dsl==4.8.0"]\n'
        'ptxas = "nvidia-cuda-nvcc-cu12==12.9.86"\n'
    )
    project = Project(tmp_path)
    (tmp_path / "kernels").rename(tmp_path / "unused")
    (tmp_path / "kernels").symlink_to(ROOT / "kernels")
    ran = project.run("--out", "out")
    assert ran.code == 0, ran.out + ran.err
    assert summary(project, ran)["totals"]["checked"] == 2  # type: ignore[index]
    shown = project.run("show", 1, "--out", "out").out
    assert "SASS B" in shown
    ran = project.run("--out", "out", "--defect", "wait-not-retried", "--alert-command", "cat > alert.json")
    assert ran.code == 1, ran.err
    alert = json.loads((tmp_path / "alert.json").read_text())
    change = next(change for change in alert["comparison"]["new"] if change["rule"] == "MBR201")
    assert {build["toolchain"] for build in change["builds"]} == {"installed", "other"}
    assert change["builds"][0]["kernel"] == "gemm_splitk_mailbox"
    source = (ROOT / change["file"] if not Path(change["file"]).is_absolute() else Path(change["file"])).read_text()
    assert "defect: wait-not-retried" in source.splitlines()[change["line"] - 1]
