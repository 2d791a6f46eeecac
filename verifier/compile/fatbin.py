"""Fat binaries, shared libraries and executables -> the cubins and PTX inside, through cuobjdump."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from verifier.compile.process import Limits, run_limited
from verifier.compile.toolchain import Tool, find_tool
from verifier.errors import InputError, ToolchainError

LIMITS = Limits(seconds=300.0)
# cuobjdump option -> suffix of the files that it writes.
_EXTRACTIONS = {"-xelf": ".cubin", "-xptx": ".ptx"}
_NOTHING_INSIDE = "does not contain device code"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """One cubin or one PTX text out of a larger file; `name` says which, as in `libfoo.so:2.sm_100a.cubin`."""

    name: str
    kind: str
    arch: str
    data: bytes


def unpack(path: Path, *, tool: Tool | None = None, limits: Limits = LIMITS) -> tuple[Image, ...]:
    """The cubins, then the PTX texts of a file, each in the order of the file.

    PTX comes without its comments and indentation, on the lines of the original. Raises InputError when the file
    cannot be read or holds no device code, ToolchainError when cuobjdump is missing.
    """
    tool = tool or find_tool("cuobjdump")
    images: list[Image] = []
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        copy = Path(folder) / f"input{path.suffix}"
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
        for option, suffix in _EXTRACTIONS.items():
            target = Path(folder) / suffix
            target.mkdir()
            _extract(tool, option, copy, target, path, limits)
            files = sorted(target.glob(f"*{suffix}"), key=lambda file: _order(file.name))
            images += [_image(path, file) for file in files]
    if not images:
        do = "give a .fatbin, a CUDA library or a CUDA executable"
        raise InputError("it holds no device code", where=str(path), do=do)
    return tuple(images)


def _extract(tool: Tool, option: str, source: Path, target: Path, path: Path, limits: Limits) -> None:
    """Run cuobjdump in `target`; that a file has no images of this kind is no error."""
    try:
        done = run_limited([tool.path, option, "all", str(source)], limits=limits, cwd=target)
    except OSError as error:
        raise ToolchainError(f"cuobjdump cannot be run: {error.strerror}", where=tool.path) from error
    said = (done.out.decode("utf-8", "replace") + done.err_text).replace(str(source), path.name)
    if done.stopped:
        raise InputError(f"cuobjdump was stopped: it went over its limit of {done.stopped}", where=str(path))
    if done.code != 0 and _NOTHING_INSIDE not in said:
        lines = said.strip().splitlines() or [f"it ended with {done.signal_name or f'exit code {done.code}'}"]
        raise InputError(f"cuobjdump cannot take it apart: {lines[-1]}", where=str(path), do="is the file whole?")


def _order(name: str) -> tuple[int, str]:
    """Position of an image in its file: cuobjdump writes `input.2.sm_100a.cubin`."""
    number = name.split(".")[-3]
    return (int(number), name) if number.isdigit() else (0, name)


def _image(path: Path, file: Path) -> Image:
    *_, arch, kind = file.name.split(".")
    inner = file.name.removeprefix("input.")
    return Image(name=f"{path}:{inner}", kind=kind, arch=arch, data=file.read_bytes())
