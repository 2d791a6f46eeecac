"""Fat binaries and host files with device code are taken apart; other files are refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compile.test_assemble import GOOD
from verifier.compile.assemble import assemble
from verifier.compile.fatbin import unpack
from verifier.compile.toolchain import Tool, wheel_folders
from verifier.errors import InputError, ToolchainError


@pytest.fixture(scope="module")
def fatbin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fat binary with a cubin for sm_90a, one for sm_100a and the PTX of the first."""
    folder = tmp_path_factory.mktemp("fatbin")
    (folder / "k.ptx").write_text(GOOD)
    for arch in ("sm_90a", "sm_100a"):
        (folder / f"{arch}.cubin").write_bytes(assemble(GOOD.replace("sm_90a", arch).replace("8.0", "8.8"), arch).cubin)
    images = ("kind=elf,sm=90a,file=sm_90a.cubin", "kind=elf,sm=100a,file=sm_100a.cubin", "kind=ptx,sm=90a,file=k.ptx")
    tool = next(path for place in wheel_folders() if (path := place / "fatbinary").exists())
    argv = [str(tool), "--create=all.fatbin", "-64", *(f"--image3={image}" for image in images)]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "all.fatbin"


@pytest.mark.toolchain
def test_every_image_with_its_architecture(fatbin: Path) -> None:
    images = unpack(fatbin)
    assert [(i.kind, i.arch) for i in images] == [("cubin", "sm_90a"), ("cubin", "sm_100a"), ("ptx", "sm_90a")]
    assert images[0].data == (fatbin.parent / "sm_90a.cubin").read_bytes()
    assert images[1].data == (fatbin.parent / "sm_100a.cubin").read_bytes()
    assert images[1].name == f"{fatbin}:2.sm_100a.cubin"
    assert b".visible .entry copy(" in images[2].data


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a host compiler to make an executable")
@pytest.mark.parametrize("options", [("-shared",), ()])
def test_a_library_and_an_executable(fatbin: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "host.s").write_text(
        f'.section .nv_fatbin,"a"\n.align 8\n.incbin "{fatbin}"\n.text\n.globl main\nmain: ret\n'
        '.section .note.GNU-stack,"",@progbits\n'
    )
    target = tmp_path / "host"
    subprocess.run(["gcc", *options, "-o", str(target), str(tmp_path / "host.s")], check=True)
    assert [i.data for i in unpack(target)] == [i.data for i in unpack(fatbin)]


@pytest.mark.toolchain
def test_a_truncated_fat_binary_and_files_without_device_code(fatbin: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.fatbin"
    cut.write_bytes(fatbin.read_bytes()[:-500])
    with pytest.raises(InputError, match=r"cut\.fatbin: cuobjdump cannot take it apart: .*Invalid fatbin header"):
        unpack(cut)
    cut.write_text("text")
    with pytest.raises(InputError, match="cannot take it apart"):
        unpack(cut)
    with pytest.raises(InputError, match="holds no device code"):
        unpack(Path("/bin/sh"))


def test_a_missing_file_and_a_missing_tool(tmp_path: Path, script: Callable[[str, str], Path]) -> None:
    tool = Tool(name="cuobjdump", path=str(script("cuobjdump", "exit 0")), version="1.2.3", origin="environment")
    with pytest.raises(InputError, match="cannot be read"):
        unpack(tmp_path / "absent.fatbin", tool=tool)
    (tmp_path / "k.fatbin").write_text("")
    with pytest.raises(ToolchainError, match="cuobjdump cannot be run"):
        unpack(tmp_path / "k.fatbin", tool=Tool(name="cuobjdump", path="/absent", version="", origin="PATH"))
