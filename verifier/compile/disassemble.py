"""Cubin -> listing of its code: `nvdisasm -c -hex -g -gp`, one text with SASS, control words, PTX and Python lines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from verifier.compile.artifacts import Artifacts, Meta, digest
from verifier.compile.elf import check_cubin
from verifier.compile.process import Finished, Limits, run_limited
from verifier.compile.store import Store
from verifier.compile.toolchain import Tool, find_tool
from verifier.errors import InputError, ToolchainError

# -g adds `//## File "x.py", line N`, -gp `//## File ".nv_debug_ptx_txt", line N` (in a cubin of nvJitLink the name goes
# on with a number); nvdisasm 13.5 prints both, the Python line first, when both are given.
OPTIONS = ("-c", "-hex", "-g", "-gp")
LIMITS = Limits(seconds=120.0)

# nvdisasm aligns the encodings with the longest line of the section; beyond this column it is padding without end.
_WIDEST_ENCODING_COLUMN = 160
_ENCODING_COLUMN = 76


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Text of a disassembled cubin and the version of the nvdisasm that wrote it."""

    text: str
    nvdisasm: str


def disassemble(cubin: bytes, *, name: str = "cubin", tool: Tool | None = None, limits: Limits = LIMITS) -> Listing:
    """List the code of a cubin; `name` is what messages call it.

    Raises InputError when the bytes are no whole cubin or nvdisasm refuses them, ToolchainError when it is missing.
    """
    check_cubin(cubin, name=name)
    tool = tool or find_tool("nvdisasm")
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = run_limited([tool.path, *OPTIONS, str(path)], limits=limits)
        except OSError as error:
            raise ToolchainError(f"nvdisasm cannot be run: {error.strerror}", where=tool.path) from error
        text = _text_of(done, name, str(path))
    return Listing(text=squeeze_padding(text), nvdisasm=tool.version)


def cached_listing(cubin: bytes, *, name: str = "cubin", store: Store) -> Listing:
    """The listing of a cubin from the store, or a new one that is filed there. Errors: `disassemble`, `Store.put`."""
    tool = find_tool("nvdisasm")
    key = digest(msgspec.json.encode(["listing", digest(cubin), tool.version, OPTIONS]))
    found = store.get(key)
    if found is not None and found.sass is not None:
        return Listing(text=found.sass, nvdisasm=tool.version)
    listing = disassemble(cubin, name=name, tool=tool)
    store.put(key, Artifacts(meta=Meta(name="listing", arch=""), sass=listing.text))
    return listing


def _text_of(done: Finished, name: str, path: str) -> str:
    help_ = "is the file whole, and does this nvdisasm know its architecture?"
    if done.stopped:
        raise InputError(f"nvdisasm was stopped: it went over its limit of {done.stopped}", where=name, do=help_)
    if done.code != 0:
        said = done.err_text.replace(path, name).strip().splitlines()
        fatal = [line for line in said if "fatal" in line or "error" in line]
        reason = (fatal or said)[0] if said else f"it ended with {done.signal_name or f'exit code {done.code}'}"
        raise InputError(f"nvdisasm cannot list it: {reason}", where=name, do=help_)
    text = done.out.decode("utf-8", "replace")
    if not text.strip():
        raise InputError("nvdisasm found no code in it", where=name, do=help_)
    return text


def squeeze_padding(text: str) -> str:
    """Move the encodings of over-wide listings back to a fixed column; other listings stay byte for byte.

    One long label makes nvdisasm pad every line of its section (seen: ten times the text).
    """
    lines = text.split("\n")
    if not any(line.rfind("/* 0x") > _WIDEST_ENCODING_COLUMN for line in lines):
        return text
    return "\n".join(map(_squeeze, lines))


def _squeeze(line: str) -> str:
    at = line.rfind("/* 0x")
    if at <= _WIDEST_ENCODING_COLUMN:
        return line
    head = line[:at].rstrip()
    return f"{head.ljust(_ENCODING_COLUMN - 1)} {line[at:]}"
