"""The programs of the CUDA toolchain: where they are, and which version each one is.

Search order: the environment variable (VERIFIER_PTXAS, VERIFIER_NVDISASM, VERIFIER_CUOBJDUMP), the PyPI wheels of
this Python, then PATH. A tool taken from PATH says so, because then the machine decides what is measured.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from pathlib import Path

import msgspec

from verifier.compile.process import Limits, run_limited
from verifier.errors import ToolchainError

INSTALL = "pip install ptx-sass-verifier[compile]"

# Wheel layouts: nvidia/cu13/bin since CUDA 13, nvidia/<component>/bin before.
_WHEEL_FOLDERS = ("cu13/bin", "cuda_nvcc/bin", "cuda_nvdisasm/bin", "cuda_cuobjdump/bin")
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)\b")
_PROBE = Limits(seconds=30.0, output=1 << 16)


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One program. `origin` is "environment", "wheel" or "PATH"; `version` reads like 13.5.37."""

    name: str
    path: str
    version: str
    origin: str


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the machine code of a kernel. A field is None where that tool took no part or is missing.

    `assembler` is what the cubin itself says of its maker, e.g. "ptxas 13.4.59"; `driver` is the CUDA version
    of the driver of this machine, because the CuTe DSL chooses its embedded assembler by it.
    """

    assembler: str | None = None
    dsl: str | None = None
    ptxas: str | None = None
    nvdisasm: str | None = None
    nvjitlink: str | None = None
    nvrtc: str | None = None
    driver: str | None = None
    python: str | None = None


def wheel_folders() -> list[Path]:
    """Folders of this Python's NVIDIA wheels that can hold programs, newest layout first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return [folder for name in _WHEEL_FOLDERS for root in roots if (folder := root / name).is_dir()]


def locate(name: str) -> tuple[Path, str]:
    """Path and origin of a program ("ptxas", "nvdisasm", "cuobjdump"). Raises ToolchainError when there is none."""
    variable = f"VERIFIER_{name.upper()}"
    if given := os.environ.get(variable):
        path = Path(given)
        if not _runnable(path):
            raise ToolchainError(
                f"{variable} names no program that can be run", where=given, do=f"correct or unset {variable}"
            )
        return path, "environment"
    for folder in wheel_folders():
        if _runnable(folder / name):
            return folder / name, "wheel"
    if found := shutil.which(name):
        return Path(found), "PATH"
    raise ToolchainError(f"{name} is missing", do=f"{INSTALL}, or set {variable} to its path")


def find_tool(name: str) -> Tool:
    """Locate a program and ask it for its version. Raises ToolchainError when it is missing or does not answer."""
    return tool_at(name, *locate(name))


def tool_at(name: str, path: Path, origin: str) -> Tool:
    """The program in this file, with its version. Raises ToolchainError when it does not answer."""
    stamp = path.stat()
    return Tool(
        name=name, path=str(path), origin=origin, version=_version_of(name, path, stamp.st_mtime_ns, stamp.st_size)
    )


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@functools.lru_cache(maxsize=64)
def _version_of(name: str, path: Path, mtime: int, size: int) -> str:
    # mtime and size are part of the cache key: a tool that was replaced is asked again.
    try:
        done = run_limited([str(path), "--version"], limits=_PROBE)
    except OSError as error:
        raise ToolchainError(f"{name} cannot be run: {error.strerror}", where=str(path), do=INSTALL) from error
    match = _VERSION.search(done.out.decode("utf-8", "replace"))
    if done.code != 0 or match is None:
        raise ToolchainError(f"{name} --version does not answer as expected", where=str(path), do=INSTALL)
    return match.group(1)


def package_version(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tool_version(name: str) -> str | None:
    try:
        return find_tool(name).version
    except ToolchainError:
        return None


@functools.lru_cache(maxsize=1)
def _driver_version() -> str | None:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        answer = ctypes.c_int(0)
        if library.cuDriverGetVersion(ctypes.byref(answer)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return f"{answer.value // 1000}.{answer.value % 1000 // 10}"


def dsl_version() -> str | None:
    """Version of the CuTe DSL with the flavours that are installed, e.g. "4.8.1+cu12.cu13"; None without it."""
    version = package_version("nvidia-cutlass-dsl")
    if version is None:
        return None
    flavours = [f for f in ("cu12", "cu13") if package_version(f"nvidia-cutlass-dsl-libs-{f}")]
    return f"{version}+{'.'.join(flavours)}" if flavours else version


def current_fingerprint() -> Fingerprint:
    """Fingerprint of the toolchain that is installed here; `assembler` is known only once there is a cubin."""
    return Fingerprint(
        dsl=dsl_version(),
        ptxas=_tool_version("ptxas"),
        nvdisasm=_tool_version("nvdisasm"),
        nvjitlink=package_version("nvidia-nvjitlink"),
        nvrtc=package_version("nvidia-cuda-nvrtc"),
        driver=_driver_version(),
        python=platform.python_version(),
    )
