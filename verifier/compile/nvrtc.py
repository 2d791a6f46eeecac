"""CUDA C++ -> PTX and cubin through NVRTC, in a child process: no nvcc, no host compiler, no GPU."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from verifier.compile.artifacts import Artifacts, Meta
from verifier.compile.child import run_job
from verifier.compile.elf import assemblers_of, describe_assemblers
from verifier.compile.jobs import Capture, CudaJob
from verifier.compile.process import Limits
from verifier.compile.toolchain import current_fingerprint
from verifier.errors import CompileError, InputError

LIMITS = Limits(seconds=120.0)
_INPUT = "input.cu"
_SHOWN_LINES = 24
# Headers of the CUDA C++ core libraries, which are a package of their own.
_LIBRARIES = ("cuda", "cub", "thrust", "nv")
_FOLDERS = ("cu13/include", "cuda_runtime/include", "cu13/include/cccl")


def compile_cuda(
    path: Path, arch: str, *, include: tuple[str, ...] = (), options: tuple[str, ...] = (), limits: Limits = LIMITS
) -> Artifacts:
    """Compile a .cu file for an architecture such as sm_100a; PTX and cubin of one NVRTC run, unnamed entry.

    `include` are folders searched before the file's own and those of the CUDA wheels. Raises InputError when the
    file cannot be read, CompileError with NVRTC's log, ToolchainError when NVRTC is missing.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    folders = (*include, str(path.resolve().parent), *map(str, header_folders()))
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        (Path(folder) / _INPUT).write_bytes(source)
        job = CudaJob(folder=folder, arch=arch, name=str(path), include=folders, options=options)
        capture = run_job(job, subject=f"compiling {path}", limits=limits).captures[0]
        ptx, cubin = (Path(folder) / f"{capture.stem}.{kind}" for kind in ("ptx", "cubin"))
        if not ptx.exists():
            raise _refusal(path, arch, capture.log)
        machine_code = cubin.read_bytes() if cubin.exists() else None
        return Artifacts(meta=_meta(path, arch, machine_code), ptx=ptx.read_text(), cubin=machine_code)


def header_folders() -> list[Path]:
    """Folders with the CUDA headers of this Python's wheels; the runtime headers first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return [folder for name in _FOLDERS for root in roots if (folder := root / name).is_dir()]


def _meta(path: Path, arch: str, cubin: bytes | None) -> Meta:
    made_by = describe_assemblers(assemblers_of(cubin)) if cubin else None
    toolchain = msgspec.structs.replace(current_fingerprint(), assembler=made_by)
    return Meta(name=path.stem, arch=arch, source=str(path), toolchain=toolchain)


def _refusal(path: Path, arch: str, log: str) -> CompileError:
    """NVRTC's errors look like `file.cu(4): error: text`; they are shown as they are."""
    lines = [line for line in log.splitlines() if line.strip()]
    shown = lines[:_SHOWN_LINES]
    if len(lines) > len(shown):
        shown.append(f"... {len(lines) - len(shown)} more lines")
    missing = any(f'cannot open source file "{library}/' in log for library in _LIBRARIES)
    do = "pip install nvidia-cuda-cccl, the package of these headers" if missing else ""
    return CompileError(f"NVRTC does not compile it for {arch}:\n  " + "\n  ".join(shown), where=str(path), do=do)


def compile_in_process(job: CudaJob) -> Capture:
    """The child's side of `compile_cuda`: writes 000.ptx and 000.cubin, or only the log when NVRTC refuses."""
    from cuda.bindings import nvrtc

    folder = Path(job.folder)
    source = (folder / _INPUT).read_bytes()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source, job.name.encode(), 0, [], []))
    options = [f"--gpu-architecture={job.arch}", "-lineinfo", "-default-device"]
    options += [f"--include-path={path}" for path in job.include]
    encoded = [option.encode() for option in (*options, *job.options)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    log = _read(nvrtc, "ProgramLog", program).rstrip(b"\0").decode("utf-8", "replace")
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        (folder / "000.ptx").write_bytes(_read(nvrtc, "PTX", program).rstrip(b"\0"))
        if cubin := _read(nvrtc, "CUBIN", program):
            (folder / "000.cubin").write_bytes(cubin)
    elif not log.strip():
        log = f"{status.name}: is {job.arch} an architecture that this NVRTC knows?"
    return Capture(stem="000", function="", log=log)


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {status.name}")
    return values[0] if values else None


def _read(nvrtc: Any, what: str, program: Any) -> bytes:
    size = _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    buffer = bytearray(size)
    if size:
        _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return bytes(buffer)
