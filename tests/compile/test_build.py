"""Kernels compile in children under limits; however a compile ends, the caller gets artifacts or one clear error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compile.conftest import FIXTURES, SampleCase
from verifier.compile import build
from verifier.compile.build import Outcome, Request, compile_case, compile_many, compile_program
from verifier.compile.process import GIB, Limits
from verifier.compile.store import Store
from verifier.errors import CompileError, InputError, ToolchainError
from verifier.launch import LaunchFacts

Sample = Callable[..., SampleCase]
ARCHS = ("sm_90a", "sm_100a", "sm_103a")


@pytest.mark.toolchain
def test_three_architectures_at_once_then_from_the_store(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    wanted = [Request(case=sample("scale", cluster=2), arch=arch) for arch in ARCHS]
    seen: list[Outcome] = []
    outcomes = compile_many(wanted, store=store, workers=2, progress=seen.append)
    assert [o.request for o in outcomes] == wanted
    assert len(seen) == 3
    for arch, outcome in zip(ARCHS, outcomes, strict=True):
        check_scale(outcome, arch)

    monkeypatch.setattr(build, "run_job", lambda *_args, **_options: pytest.fail("compiled again"))
    again = compile_many(wanted, store=store)
    assert [o.artifacts for o in again] == [o.artifacts for o in outcomes]
    assert all(o.cached for o in again)


def check_scale(outcome: Outcome, arch: str) -> None:
    """Everything about sample_kernels/scale.py with cluster=2."""
    assert outcome.error is None
    assert not outcome.cached
    made = outcome.artifacts
    assert made is not None
    meta = made.meta
    assert meta.launch == LaunchFacts(grid=(None, 1, 1), cluster=(2, 1, 1), block=(128, 1, 1), dynamic_smem=512)
    assert (meta.name, meta.arch, meta.config, meta.defect) == ("scale", arch, {"cluster": 2}, None)
    assert meta.entry is not None
    assert f".entry {meta.entry}(" in (made.ptx or "")
    assert f".target {arch}" in (made.ptx or "")
    assert meta.source == str(FIXTURES / "sample_kernels" / "scale.py")
    assert meta.source in (made.ptx or "")
    assert f'File "{meta.source}", line ' in (made.sass or "")
    assert "cuda.launch_ex" in (made.mlir or "")
    assert [(u.entry, u.spill_stores) for u in meta.usage] == [(meta.entry, 0)]
    # The flavour without this extra embeds ptxas 12.9, which loses scoreboard waits.
    assert (meta.toolchain.assembler or "").startswith("ptxas 13.")


@pytest.mark.toolchain
def test_another_configuration_is_another_kernel(sample: Sample, tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = compile_case(sample("scale", static_grid=7), "sm_90a", store=store)
    expected = LaunchFacts(grid=(7, 1, 1), cluster=(1, 1, 1), block=(128, 1, 1), dynamic_smem=512)
    assert made.meta.launch == expected
    assert made.path is not None
    assert compile_case(sample("scale", static_grid=7), "sm_90a", store=store) == made


@pytest.mark.toolchain
def test_the_kernels_own_error_is_shown_with_its_line(sample: Sample) -> None:
    with pytest.raises(CompileError, match=r"compiling kernel broken for sm_100a failed: .*NameError") as caught:
        compile_case(sample("broken"), "sm_100a")
    assert "broken.py:14" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.toolchain
def test_an_architecture_without_the_instruction(sample: Sample) -> None:
    with pytest.raises(CompileError, match=r"failed: .*\n(.*\n)*.*target architecture: sm_90a"):
        compile_case(sample("wrong_arch"), "sm_90a")


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        ("forever", Limits(seconds=3), r"took longer than 3 s and was stopped\n  help: look for a loop"),
        ("hungry", Limits(memory=GIB), r"needed more than 1 GiB of memory and was stopped\n  help: look for an alloc"),
        ("chatty", Limits(output=1 << 20), "printed more than 1 MiB"),
        ("crash", Limits(), r"crashed \(SIGSEGV\)(.*\n)*.*crash\.py"),
    ],
)
def test_every_other_ending_is_told_apart(sample: Sample, name: str, limits: Limits, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_case(sample(name), "sm_100a", limits=limits)


@pytest.mark.toolchain
def test_one_failure_does_not_stop_the_others(sample: Sample, tmp_path: Path) -> None:
    wanted = [Request(case=sample("absent"), arch="sm_90a"), Request(case=sample("scale"), arch="sm_90a")]
    bad, good = compile_many(wanted, store=Store(tmp_path))
    assert isinstance(bad.error, InputError)
    assert "no module sample_kernels.absent" in str(bad.error)
    assert good.artifacts is not None


@pytest.mark.toolchain
def test_an_interrupt_ends_the_running_children(sample: Sample) -> None:
    def interrupt(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    wanted = [Request(case=sample(name), arch="sm_90a") for name in ("absent", "forever", "forever")]
    with pytest.raises(KeyboardInterrupt):
        compile_many(wanted, progress=interrupt, limits=Limits(seconds=300))


def test_a_module_of_no_package() -> None:
    with pytest.raises(InputError, match="no Python package no_such_package_here"):
        build.module_root("no_such_package_here.kernel")


def test_without_the_dsl(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "current_fingerprint", lambda: build.Fingerprint())
    with pytest.raises(ToolchainError, match="nvidia-cutlass-dsl") as caught:
        compile_case(sample("scale"), "sm_90a")
    assert "pip install" in caught.value.do


@pytest.mark.toolchain
def test_a_program_gives_all_its_modules_and_its_error() -> None:
    found = compile_program(FIXTURES / "program.py", "sm_100a", arguments=("--fail",))
    two, one = found.artifacts
    assert [facts.block for facts in two.meta.launches.values()] == [(1, 1, 1), (64, 2, 1)]
    assert two.meta.launch == LaunchFacts(grid=(4, 1, 1), cluster=(1, 1, 1), block=(64, 2, 1), dynamic_smem=0)
    assert two.meta.entry is not None
    assert "worker" in two.meta.entry
    assert one.meta.launch == LaunchFacts(grid=(1, 1, 1), cluster=(1, 1, 1), block=(32, 1, 1), dynamic_smem=4096)
    assert isinstance(found.error, CompileError)
    line = 1 + (FIXTURES / "program.py").read_text().split("\n").index('    raise ValueError("asked to fail")')
    assert found.error.where == f"{FIXTURES / 'program.py'}:{line}"
    assert "ValueError: asked to fail" in str(found.error)


@pytest.mark.toolchain
def test_a_preloaded_file_runs_first_and_sees_no_launch(tmp_path: Path) -> None:
    (tmp_path / "preload.py").write_text("import sys\nsys.argv_of_preload = list(sys.argv)\nsys.seen = True\n")
    (tmp_path / "program.py").write_text(
        "import sys\nassert sys.seen\nassert sys.argv[1:] == ['a', 'b']\nsys.exit(0)\n"
    )
    preload = (tmp_path / "preload.py",)
    found = compile_program(tmp_path / "program.py", "sm_90a", arguments=("a", "b"), preload=preload)
    assert (found.artifacts, found.error) == ((), None)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        compile_program(tmp_path / "absent.py", "sm_90a")


def test_importing_this_package_imports_no_cuda() -> None:
    code = (
        "import pkgutil, importlib, sys, verifier.compile as package\n"
        "for module in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'verifier.compile.{module.name}')\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('cuda', 'cutlass', 'numpy', 'nvidia')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
