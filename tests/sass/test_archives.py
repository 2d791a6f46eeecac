"""Fat binaries and libraries: every image is a kernel of its architecture, PTX joined to the cubin with its kernels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sass.test_assemblers import PTX
from verifier.analyses.facts import KernelFacts
from verifier.cli.inputs import discover
from verifier.cli.loading import load_kernels
from verifier.cli.parts import LoadOptions
from verifier.compile.assemble import assemble
from verifier.compile.toolchain import wheel_folders
from verifier.errors import VerifierError

pytestmark = pytest.mark.toolchain

OLD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry old()\n{\nret;\n}\n"


@pytest.fixture(scope="module")
def fatbin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two architectures of one kernel, the PTX of the first, and a kernel for sm_80."""
    folder = tmp_path_factory.mktemp("fat")
    (folder / "k.ptx").write_text(PTX)
    for arch, text in (("sm_100a", PTX), ("sm_103a", PTX.replace("sm_100a", "sm_103a")), ("sm_80", OLD)):
        (folder / f"{arch}.cubin").write_bytes(assemble(text, arch).cubin)
    images = [
        "kind=elf,sm=100a,file=sm_100a.cubin",
        "kind=elf,sm=103a,file=sm_103a.cubin",
        "kind=ptx,sm=100a,file=k.ptx",
        "kind=elf,sm=80,file=sm_80.cubin",
    ]
    tool = next(path for place in wheel_folders() if (path := place / "fatbinary").exists())
    argv = [str(tool), "--create=all.fatbin", "-64", *(f"--image3={image}" for image in images)]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "all.fatbin"


def kernels_of(path: Path, **options: tuple[str, ...]) -> list[KernelFacts]:
    bundles, errors = discover([path])
    assert not errors
    found = []
    for item in load_kernels(bundles, LoadOptions(assemble=False, **options)):  # type: ignore[arg-type]
        assert not isinstance(item, VerifierError), item
        found.append(item.kernel)
    return found


def test_every_image(fatbin: Path) -> None:
    found = {(k.name, k.arch): k.isas for k in kernels_of(fatbin)}
    assert found == {
        ("two_roles", "sm_100a"): {"ptx", "sass"},
        ("two_roles", "sm_103a"): {"sass"},
        ("old", "sm_80"): {"sass"},
    }


def test_one_architecture(fatbin: Path) -> None:
    assert [(k.name, k.arch) for k in kernels_of(fatbin, archs=("sm_103a",))] == [("two_roles", "sm_103a")]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a host compiler to make a library")
def test_a_library(fatbin: Path, tmp_path: Path) -> None:
    (tmp_path / "host.s").write_text(
        f'.section .nv_fatbin,"a"\n.align 8\n.incbin "{fatbin}"\n.text\n.globl main\nmain: ret\n'
        '.section .note.GNU-stack,"",@progbits\n'
    )
    target = tmp_path / "libkernels.so"
    subprocess.run(["gcc", "-shared", "-o", str(target), str(tmp_path / "host.s")], check=True)
    assert len(kernels_of(target)) == 3


def test_a_program_without_device_code() -> None:
    bundles, errors = discover([Path("/bin/sh")])
    assert not bundles
    assert [e.what for e in errors] == ["it holds no device code"]


def test_metrics_of_machine_code(fatbin: Path) -> None:
    kernel = next(k for k in kernels_of(fatbin) if k.arch == "sm_103a")
    assert kernel.metrics["LDTM.x8"] == 1
    assert kernel.metrics["LDTM.x8 in loops"] == 0
    assert kernel.metrics["SYNCS.PHASECHK.TRANS64.TRYWAIT in loops"] == 0, "a wait's own loop does no work"
    assert kernel.metrics["sass_instructions"] > 20
    assert kernel.metrics["registers"] > 0
