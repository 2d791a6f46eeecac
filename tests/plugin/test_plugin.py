"""The pytest plugin: the fixture, kernels as items, and that it costs nothing while nobody asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.cli.support import Ran

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = """

_ALL, _find = CASES, case

def _only(name, module, archs):
    return dataclasses.replace(case("gemm_splitk_mailbox"), name=name, module=module, archs=archs)

CASES = (
    _only("good", "kernels.gemm_splitk_mailbox", ("sm_100a", "sm_103a")),
    _only("bad", "kernels.bad", ("sm_100a",)),
    _only("broken", "kernels.broken", ("sm_100a",)),
)

def case(name):
    return next(known for known in (*CASES, *_ALL) if known.name == name)
"""
BAD = """
from kernels import gemm_splitk_mailbox
def build(config, defect):
    return gemm_splitk_mailbox.build(config, "wait-not-retried")
"""
TESTS = """
import pytest
from kernels import gemm_splitk_mailbox, registry

CONFIG = registry.case("good").config

def test_good(verify_kernel):
    fn, args = gemm_splitk_mailbox.build(CONFIG, None)
    results = verify_kernel(fn, *args, arch="sm_103a", profile="isa", strict=True)
    (kernel,) = results.kernels
    assert kernel.arch == "sm_103a"
    assert kernel.name == "test_good"
    assert results.totals.proved > 50
    assert kernel.metrics["registers"] > 0

def test_bad(verify_kernel):
    fn, args = gemm_splitk_mailbox.build(CONFIG, "wait-not-retried")
    verify_kernel(fn, *args)

def test_bad_but_not_asked(verify_kernel):
    fn, args = gemm_splitk_mailbox.build(CONFIG, "wait-not-retried")
    assert verify_kernel(fn, *args, select=["TCG"]).totals.violated == 0

def test_broken(verify_kernel):
    verify_kernel(lambda x: x.no_such_thing, 1)

def test_environment_is_put_back(verify_kernel):
    import os
    before = dict(os.environ)
    fn, args = gemm_splitk_mailbox.build(CONFIG, None)
    verify_kernel(fn, *args)
    assert dict(os.environ) == before
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the kernels of this one, three of them registered: good, bad, and one that does not compile."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "kernels", root / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    registry = root / "kernels" / "registry.py"
    registry.write_text(registry.read_text() + REGISTRY)
    (root / "kernels" / "bad.py").write_text(BAD)
    (root / "kernels" / "broken.py").write_text("def build(config, defect):\n    raise ValueError('no such tile')\n")
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (root / "test_kernels.py").write_text(TESTS)
    (root / "test_other.py").write_text("def test_nothing():\n    pass\n")
    return root


def run(project: Path, *arguments: str) -> Ran:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(project), "VERIFIER_CACHE_DIR": str(project / "store")}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    return Ran(done.returncode, done.stdout, done.stderr)


def outcomes(ran: Ran) -> dict[str, str]:
    """Item -> PASSED, FAILED..., from the verbose output."""
    lines = [line.split() for line in ran.out.splitlines() if "%]" in line]
    return {words[0].rpartition("::")[2]: words[1] for words in lines}


def test_the_plugin_is_installed_and_imports_nothing(project: Path) -> None:
    ran = run(project, "--trace-config", "test_other.py")
    assert ran.code == 0, ran.out
    assert "verifier.pytest_plugin" in ran.out
    code = (
        "import pytest, sys\n"
        "assert pytest.main(['-q', 'test_other.py']) == 0\n"
        "loaded = [m for m in sys.modules if m.startswith('verifier.') and m != 'verifier.pytest_plugin']\n"
        "sys.exit(f'{loaded}' if loaded or 'cutlass' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_kernel_is_an_item_unless_asked(project: Path) -> None:
    assert outcomes(run(project, "-v", "test_other.py")) == {"test_nothing": "PASSED"}


@pytest.mark.toolchain
def test_each_registered_kernel_is_an_item(project: Path) -> None:
    ran = run(project, "-v", "--verify-kernels", "test_other.py", "--junitxml", "junit.xml")
    assert ran.code == 1
    assert outcomes(ran) == {
        "test_nothing": "PASSED",
        "good[sm_100a]": "PASSED",
        "good[sm_103a]": "PASSED",
        "bad[sm_100a]": "FAILED",
        "broken[sm_100a]": "FAILED",
    }
    assert "error[MBR201 wait-result-ignored]: epilogue uses data guarded by" in ran.out
    assert "kernels/mailbox.py" in ran.out
    assert "no such tile" in ran.out
    assert "Traceback" not in ran.out
    cases = {case.name: case for suite in JUnitXml.fromfile(str(project / "junit.xml")) for case in suite}
    assert {name for name, case in cases.items() if case.result} == {"bad[sm_100a]", "broken[sm_100a]"}


@pytest.mark.toolchain
def test_items_can_be_chosen(project: Path) -> None:
    ran = run(project, "-v", "--verify-kernels", "--verify-arch", "sm_103a", "test_other.py")
    assert outcomes(ran) == {"test_nothing": "PASSED", "good[sm_103a]": "PASSED"}
    ran = run(project, "-v", "--verify-kernels", "-k", "bad", "test_other.py")
    assert outcomes(ran) == {"bad[sm_100a]": "FAILED"}
    ran = run(project, "-v", "--verify-kernels", "-m", "verify_kernels", "-k", "good", "test_other.py")
    assert outcomes(ran) == {"good[sm_100a]": "PASSED", "good[sm_103a]": "PASSED"}


@pytest.mark.toolchain
def test_the_fixture_passes_good_kernels_and_fails_bad_ones(project: Path) -> None:
    ran = run(project, "-v", "test_kernels.py")
    assert outcomes(ran) == {
        "test_good": "PASSED",
        "test_bad": "FAILED",
        "test_bad_but_not_asked": "PASSED",
        "test_broken": "FAILED",
        "test_environment_is_put_back": "PASSED",
    }, ran.out
    assert "error[MBR201 wait-result-ignored]" in ran.out
    assert "compiling test_broken for sm_100a failed: " in ran.out


@pytest.mark.toolchain
def test_settings_of_the_project_count(project: Path) -> None:
    settings = project / "pyproject.toml"
    settings.write_text('[tool.verifier]\nselect = ["TCG"]\n')
    try:
        assert outcomes(run(project, "-v", "--verify-kernels", "-k", "bad", "test_other.py")) == {
            "bad[sm_100a]": "PASSED"
        }
    finally:
        settings.unlink()


def test_no_registry_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_nothing():\n    pass\n")
    (tmp_path / "kernels.py").write_text("# hides the package of this project\n")
    ran = run(tmp_path, "--verify-kernels")
    assert ran.code != 0
    assert "there is no registry of kernels here" in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err
