"""`verifier verify`: registry, selection, failing and endless compiles. Verdicts are tested where the rules are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from kernels.registry import CASES, KernelCase
from tests.cli.support import Verifier, one_message
from verifier.cli import registry


def test_list(verifier: Verifier) -> None:
    ran = verifier("verify", "--list")
    assert ran.code == 0
    for case in CASES:
        assert case.name in ran.out
        for defect in case.defects:
            assert f"--defect {defect.name}" in ran.out


@pytest.mark.parametrize("option", ["--list", "--defects"])
@pytest.mark.parametrize("wish", [("--format", "json"), ("--output-file", "x"), ("--report", "sarif=x")])
def test_what_is_no_report_has_no_other_format(verifier: Verifier, option: str, wish: tuple[str, str]) -> None:
    ran = verifier("verify", option, *wish)
    assert one_message(ran)
    assert f"error: {option} prints text and makes no report" in ran.err
    assert f"leave out {wish[0]}," in ran.err


def test_list_may_be_asked_for_in_text(verifier: Verifier) -> None:
    assert verifier("verify", "--list", "--format", "text").out == verifier("verify", "--list").out


def test_choose() -> None:
    known = registry.load_registry()
    first = CASES[0]
    assert registry.choose(known, [], None) == list(CASES)
    assert registry.choose(known, [first.name, first.name], None) == [first]
    name = first.defects[0].name
    having = [case for case in CASES if name in {defect.name for defect in case.defects}]
    assert first in having
    assert registry.choose(known, [], name) == having


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register one kernel module with the given code."""
    monkeypatch.setenv("VERIFIER_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def register(name: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        case = KernelCase(name=name, module=name, config={}, archs=("sm_100a",))
        monkeypatch.setattr(sys.modules["kernels.registry"], "CASES", (case,))

    return register


def test_a_kernel_that_does_not_compile(verifier: Verifier, registered: Any) -> None:
    registered("odd_kernel_one", "def build(config, defect):\n    raise ValueError('no such tile')\n")
    ran = verifier("verify")
    assert one_message(ran), ran
    assert "no such tile" in ran.err
    assert "odd_kernel_one" in ran.err


def test_a_kernel_that_compiles_for_ever(verifier: Verifier, registered: Any) -> None:
    registered("odd_kernel_two", "def build(config, defect):\n    while True:\n        pass\n")
    ran = verifier("verify", "--timeout", "5")
    assert one_message(ran), ran
    assert "odd_kernel_two" in ran.err


@pytest.mark.toolchain
def test_the_second_run_compiles_nothing(verifier: Verifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFIER_CACHE_DIR", str(tmp_path))
    arguments = ("verify", CASES[0].name, "--arch", "sm_100a", "--format", "json")
    first, second = verifier(*arguments), verifier(*arguments)
    assert "compiled" in first.err
    assert "from the store" in second.err
    assert first.report == second.report
    (kernel,) = first.report["kernels"]
    assert kernel["name"] == CASES[0].name
    assert kernel["source"] == "kernels/gemm_persistent.py"
    assert len(kernel["roles"]) >= 3
    assert kernel["toolchain"]["assembler"].startswith("ptxas 13")


ENDLESS = """
import os, time
from pathlib import Path

def build(config, defect):
    Path(config["marker"]).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
"""


def test_an_interrupt_ends_the_compile_too(tmp_path: Path) -> None:
    """The registry may be that of another project: the first `kernels` on the path."""
    marker = tmp_path / "started"
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "endless.py").write_text(ENDLESS)
    (package / "registry.py").write_text(
        "from types import SimpleNamespace\nfrom pathlib import Path\n"
        f"CASES = (SimpleNamespace(name='endless', module='kernels.endless', archs=('sm_100a',), defects=(),\n"
        f"    config={{'marker': {str(marker)!r}}}, source=Path(__file__)),)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "verifier", "verify", "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (marker.exists() and marker.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not Path(f"/proc/{marker.read_text()}").exists()
