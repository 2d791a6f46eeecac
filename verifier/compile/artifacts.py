"""The folder of one compiled kernel: its files, and the meta.json that says where they came from.

kernel.ptx     PTX, its `.loc` lines lead to the Python lines     kernel.cubin   machine code
kernel.sass    listing of the cubin (optional)                    kernel.mlir    compiled IR (optional)
meta.json      `Meta`, schema_version 1
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from pathlib import Path

import msgspec

from verifier.compile.toolchain import Fingerprint
from verifier.errors import InputError
from verifier.launch import LaunchFacts

SCHEMA_VERSION = 1
PTX, CUBIN, SASS, MLIR, META = "kernel.ptx", "kernel.cubin", "kernel.sass", "kernel.mlir", "meta.json"

Scalar = str | int | float | bool | None


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of an assembler.

    `severity` is info, warning, error or fatal; `code` is like C7510; `line` is a PTX line, 1-based.
    """

    severity: str
    text: str
    code: str = ""
    line: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one entry function takes, as its assembler printed it. Bytes, except registers and barriers."""

    entry: str
    registers: int | None = None
    barriers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    shared: int | None = None


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Where one kernel's files came from.

    `entry` is the entry function that the kernel is named for and `launch` how it is started; a module with
    several entries has all of them in `launches`. `config` and `defect` are the choices of the kernel case.
    `files` maps each file of the folder to the SHA-256 of its bytes.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    arch: str
    entry: str | None = None
    launch: LaunchFacts | None = None
    launches: dict[str, LaunchFacts] = {}
    source: str | None = None
    config: dict[str, Scalar] = {}
    defect: str | None = None
    messages: tuple[ToolMessage, ...] = ()
    usage: tuple[Usage, ...] = ()
    toolchain: Fingerprint = Fingerprint()
    files: dict[str, str] = {}


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """One compiled kernel in memory; `path` is the folder it was read from or written to, if any."""

    meta: Meta
    ptx: str | None = None
    cubin: bytes | None = None
    sass: str | None = None
    mlir: str | None = None
    path: Path | None = None


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def contents(artifacts: Artifacts) -> dict[str, bytes]:
    """File name -> bytes of the kernel's files; meta.json is not among them."""
    texts = {PTX: artifacts.ptx, SASS: artifacts.sass, MLIR: artifacts.mlir}
    files = {name: text.encode() for name, text in texts.items() if text is not None}
    if artifacts.cubin is not None:
        files[CUBIN] = artifacts.cubin
    return files


def write_artifacts(folder: Path, artifacts: Artifacts) -> Artifacts:
    """Write a folder that must not exist yet, all of it or nothing; the same artifacts with digests and path.

    Raises FileExistsError when the folder is there already, OSError when it cannot be written.
    """
    files = contents(artifacts)
    meta = msgspec.structs.replace(artifacts.meta, files={name: digest(data) for name, data in files.items()})
    files[META] = msgspec.json.format(msgspec.json.encode(meta), indent=1)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir()
        for name, data in files.items():
            (partial / name).write_bytes(data)
        _move_into_place(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return msgspec.structs.replace(artifacts, meta=meta, path=folder)


def _move_into_place(partial: Path, folder: Path) -> None:
    # rename(2) replaces an empty folder silently, which is harmless; one with files in it refuses with ENOTEMPTY.
    try:
        partial.rename(folder)
    except OSError as error:
        if folder.exists():
            raise FileExistsError(f"{folder} exists") from error
        raise


def read_meta(folder: Path) -> Meta:
    """Read and check meta.json. Raises InputError when it is missing, is no such JSON or has another schema version."""
    path = folder / META
    try:
        meta = msgspec.json.decode(_read(path), type=Meta)
    except msgspec.DecodeError as error:
        raise InputError(
            f"not the description of a compiled kernel: {error}", where=str(path), do="compile the kernel again"
        ) from error
    if meta.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"schema version {meta.schema_version}, but this verifier reads {SCHEMA_VERSION}",
            where=str(path),
            do="compile the kernel again, or use the verifier that wrote it",
        )
    return meta


def read_artifacts(folder: Path) -> Artifacts:
    """Read a folder that `write_artifacts` wrote. Raises InputError when a file is missing, changed or unreadable."""
    meta = read_meta(folder)
    data = {
        name: _read(folder / name)
        for name in (PTX, CUBIN, SASS, MLIR)
        if name in meta.files or (folder / name).exists()
    }
    for name, want in meta.files.items():
        if name not in data or digest(data[name]) != want:
            raise InputError(
                "not the file that was compiled (its SHA-256 differs from the one in meta.json)",
                where=str(folder / name),
                do=f'compile the kernel again; to check an edited file on purpose, take it out of "files" in {META}',
            )
    texts = {name: _text(folder / name, data.get(name)) for name in (PTX, SASS, MLIR)}
    return Artifacts(meta=meta, ptx=texts[PTX], cubin=data.get(CUBIN), sass=texts[SASS], mlir=texts[MLIR], path=folder)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), do="give a folder with a compiled kernel"
        ) from error


def _text(path: Path, data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"not text: {error.reason} at byte {error.start}", where=str(path), do="compile the kernel again"
        ) from error
