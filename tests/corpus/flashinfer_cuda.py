"""CUDA C++ kernels that the PyPI package `flashinfer-python` ships as sources, compiled by NVRTC.

Thousands of generated `.cu` files, each with kernels for one shape. Those that include nothing but CUDA's own headers
compile without a host compiler; of each folder of the package the smallest such file with tensor-memory
or barrier instructions is taken. Runs in the project's own Python, with the sources' folder as its argument.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from verifier.compile.artifacts import write_artifacts
from verifier.compile.nvrtc import compile_cuda
from verifier.errors import VerifierError

_SOURCES = "flashinfer/data/csrc"
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_OTHER_TARGETS = re.compile(r"sm_?(120|121|107|103)")
#: Generated file names end in a digest of their parameters.
_DIGEST = re.compile(r"_[0-9a-f]{10,}(_kernel)?$|_kernel$")
_HEADERS = {
    "cuda.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h", "cuda_fp4.h", "cuda_runtime.h", "math_constants.h",
    "stdint.h", "cstdint", "stddef.h", "cstddef",
}  # fmt: skip
#: NVRTC has no C library headers; these types are built into it.
_TYPES = """
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
"""


def kernels_in(folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Name and file of the smallest usable source of each folder, the smallest of those first, `count` in all."""
    seen: set[Path] = set()
    for path in sorted(folder.rglob("*.cu"), key=lambda path: (path.stat().st_size, str(path))):
        if len(seen) == count:
            return
        if path.parent in seen or _OTHER_TARGETS.search(str(path)) or not _usable(path.read_text(errors="replace")):
            continue
        seen.add(path.parent)
        parts = path.parent.relative_to(folder).parts
        stem = _DIGEST.sub("", path.stem).strip("_")
        yield "-".join((*parts, *([] if stem in parts else [stem]))), path


def _usable(text: str) -> bool:
    return (
        "__global__" in text
        and ("tcgen05." in text or "mbarrier." in text or "wgmma." in text)
        and set(_INCLUDE.findall(text)) <= _HEADERS
    )


def _stub_headers(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("stdint.h", "cstdint", "stddef.h", "cstddef"):
        (folder / name).write_text("#pragma once\n" + (_TYPES if "int" in name else ""))


def main() -> int:
    """Compile the chosen files; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(description="Compile CUDA C++ of flashinfer-python with NVRTC.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--package", type=Path, required=True, help="folder that holds the package")
    options = parser.parse_args()
    headers = options.out / ".headers"
    _stub_headers(headers)
    failed = 0
    for name, path in kernels_in(options.package / _SOURCES, options.count):
        try:
            arch = "sm_90a" if "wgmma." in path.read_text(errors="replace") else "sm_100a"
            artifacts = compile_cuda(path, arch, include=(str(headers),), options=("-std=c++17", "--device-int128"))
            write_artifacts(options.out / name, artifacts)
            print(f"compiled {name}", flush=True)
        except VerifierError as error:
            print(f"FAILED {name}: {' '.join(str(error).split())[:300]}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
