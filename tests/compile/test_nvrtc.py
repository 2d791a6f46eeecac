"""CUDA C++ files become PTX and cubin without nvcc, or one error with NVRTC's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.compile.nvrtc import compile_cuda, header_folders
from verifier.errors import CompileError, InputError

SOURCE = """\
#include <cuda_fp16.h>
#include "factor.h"
extern "C" __global__ void scale(float* x, __half* h) {
    h[threadIdx.x] = __float2half(FACTOR * x[127 - threadIdx.x]);
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "factor.h").write_text("#define FACTOR 3.0f\n")
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    return path


@pytest.mark.toolchain
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_ptx_and_cubin_for_each_architecture(source: Path, arch: str) -> None:
    made = compile_cuda(source, arch)
    assert made.ptx is not None
    assert f".target {arch}" in made.ptx
    assert ".visible .entry scale(" in made.ptx
    assert f'"{source}"' in made.ptx  # the .file directive that .loc lines refer to
    assert "\0" not in made.ptx
    assert made.cubin is not None
    assert (made.meta.arch, made.meta.source) == (arch, str(source))
    assert (made.meta.toolchain.assembler or "").startswith("ptxas 13.")


@pytest.mark.toolchain
def test_the_log_is_in_the_error(source: Path) -> None:
    source.write_text(SOURCE.replace("127 -", "undeclared -"))
    with pytest.raises(CompileError, match=r'scale\.cu\(4\): error: identifier "undeclared" is undefined') as caught:
        compile_cuda(source, "sm_100a")
    assert caught.value.where == str(source)


@pytest.mark.toolchain
def test_an_unknown_architecture(source: Path) -> None:
    with pytest.raises(CompileError, match=r"NVRTC does not compile it for sm_1:\n.*invalid value"):
        compile_cuda(source, "sm_1")


@pytest.mark.toolchain
def test_folders_and_options_reach_the_compiler(source: Path, tmp_path: Path) -> None:
    (tmp_path / "factor.h").unlink()
    with pytest.raises(CompileError, match=r'cannot open source file "factor\.h"'):
        compile_cuda(source, "sm_90a")
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "factor.h").write_text("")
    made = compile_cuda(source, "sm_90a", include=(str(tmp_path / "headers"),), options=("-DFACTOR=5.0f",))
    assert made.cubin


@pytest.mark.toolchain
@pytest.mark.skipif((header_folders()[-1:] or [Path()])[0].name == "cccl", reason="the core libraries are installed")
def test_headers_of_the_core_libraries_say_where_they_come_from(source: Path) -> None:
    source.write_text("#include <cuda/barrier>\n")
    with pytest.raises(CompileError, match="cannot open source file") as caught:
        compile_cuda(source, "sm_90a")
    assert "nvidia-cuda-cccl" in caught.value.do


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        compile_cuda(tmp_path / "absent.cu", "sm_90a")
