"""PTX -> cubin, by ptxas as a program or by the nvJitLink library; both give messages as values.

The two do not write the same machine code from the same PTX (measured on 13.5.37: nvJitLink compiles a relocatable
object and links it, 12 registers became 10 and 512 bytes of code 640). Take ptxas to see what a build with
nvcc or the CuTe DSL runs, nvJitLink to see what a program that links at run time runs.

nvJitLink always runs in a child process. It survived 2,400 damaged inputs, but an identifier of 200,000 characters
damaged its heap (SIGABRT, SIGSEGV), and 40,000 shuffled loads and stores kept it busy for 98 s.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from verifier.compile.artifacts import ToolMessage, Usage
from verifier.compile.child import run_job
from verifier.compile.elf import assemblers_of, describe_assemblers
from verifier.compile.jobs import Capture, LinkJob
from verifier.compile.messages import parse_log
from verifier.compile.process import Limits, run_limited
from verifier.compile.toolchain import Tool, find_tool
from verifier.errors import CompileError, ToolchainError

LIMITS = Limits(seconds=120.0)
_INPUT = "input.ptx"


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """A cubin with what its assembler said. `assembler` is what the cubin's own note names, e.g. "ptxas 13.5.37"."""

    cubin: bytes
    assembler: str | None
    messages: tuple[ToolMessage, ...] = ()
    usage: tuple[Usage, ...] = ()


def assemble(
    ptx: str, arch: str, *, name: str = "kernel.ptx", tool: Tool | None = None, limits: Limits = LIMITS
) -> Assembled:
    """Assemble with ptxas; `tool` chooses another ptxas than the one that is found.

    Raises CompileError when ptxas refuses the PTX or hits a limit, ToolchainError when there is no ptxas.
    """
    tool = tool or find_tool("ptxas")
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        source, target = Path(folder) / _INPUT, Path(folder) / "output.cubin"
        source.write_text(ptx)
        argv = [tool.path, "-arch", arch, "-v", "-lineinfo", "-o", str(target), str(source)]
        try:
            done = run_limited(argv, limits=limits)
        except OSError as error:
            raise ToolchainError(f"ptxas cannot be run: {error.strerror}", where=tool.path) from error
        if done.stopped:
            raise CompileError(f"ptxas was stopped: it went over its limit of {done.stopped}", where=name)
        log = done.err_text.replace(str(source), name)
        if done.code != 0 or not target.exists():
            raise _refusal("ptxas", tool.version, arch, name, log, done.signal_name)
        return _assembled(target.read_bytes(), log)


def link(ptx: str, arch: str, *, name: str = "kernel.ptx", limits: Limits = LIMITS) -> Assembled:
    """Assemble with nvJitLink, in a child process.

    Raises CompileError when it refuses the PTX, crashes or hits a limit, ToolchainError when the library is missing.
    """
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        (Path(folder) / _INPUT).write_text(ptx)
        outcome = run_job(LinkJob(folder=folder, arch=arch), subject=f"linking {name}", limits=limits)
        capture = outcome.captures[0]
        cubin = Path(folder) / f"{capture.stem}.cubin"
        if not cubin.exists():
            raise _refusal("nvJitLink", "", arch, name, capture.log, "")
        return _assembled(cubin.read_bytes(), capture.log)


def link_in_process(folder: Path, arch: str) -> Capture:
    """The child's side of `link`: `input.ptx` of the folder becomes 000.cubin, unless nvJitLink refuses it."""
    from cuda.bindings import nvjitlink

    ptx = (folder / _INPUT).read_bytes()
    options = [f"-arch={arch}", "-lineinfo", "-verbose"]
    try:
        handle = nvjitlink.create(len(options), options)
    except nvjitlink.nvJitLinkError as error:
        return Capture(stem="000", function="", log=f"ptxas fatal   : {error}")
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), _INPUT)
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        (folder / "000.cubin").write_bytes(cubin)
        log = _log(handle, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
    except nvjitlink.nvJitLinkError as error:
        log = _log(handle, nvjitlink.get_error_log_size, nvjitlink.get_error_log) + f"ptxas fatal   : {error}\n"
    nvjitlink.destroy(handle)
    return Capture(stem="000", function="", log=log)


def _log(handle: object, size_of: Callable[[object], int], read: Callable[[object, bytearray], None]) -> str:
    size = size_of(handle)
    if not size:
        return ""
    text = bytearray(size)
    read(handle, text)
    return text.rstrip(b"\0").decode("utf-8", "replace") + "\n"


def _assembled(cubin: bytes, log: str) -> Assembled:
    messages, usage = parse_log(log)
    made_by = describe_assemblers(assemblers_of(cubin))
    return Assembled(cubin=cubin, assembler=made_by, messages=messages, usage=usage)


def _refusal(tool: str, version: str, arch: str, name: str, log: str, signal_name: str) -> CompileError:
    """The first complaint as the reason, its PTX line as the place."""
    errors = [m for m in parse_log(log)[0] if m.severity in ("error", "fatal")]
    title = f"{tool} {version}".strip()
    if not errors:
        last = log.strip().splitlines()[-1:] or [f"ended with {signal_name or 'no message'}"]
        return CompileError(f"{title} does not assemble it for {arch}: {last[0].strip()}", where=name)
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    where = f"{name}:{first.line}" if first.line else name
    return CompileError(f"{title} does not assemble it for {arch}: {first.text}{more}", where=where)
