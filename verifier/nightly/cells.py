"""One cell of the matrix: a pure function from its description to its result, both JSON.

`run_cell` starts a process with limits of time and memory for it; however that ends is the result. Results that would
be the same again are filed under the key of the cell, which covers everything that decides them:

    ROOT/ab/abcdef.../{result.json, artifacts/}

`run_cell` takes and gives bytes, so any executor with the interface of concurrent.futures can run it, also elsewhere,
provided that ROOT is a folder which both ends see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from verifier.compile.build import Environment
from verifier.compile.process import Finished, Limits, run_limited
from verifier.compile.toolchain import Tool
from verifier.config import Ignore
from verifier.report.waivers import Usage
from verifier.rules import KernelOutcome

RESULT = "result.json"
ARTIFACTS = "artifacts"
WORKER = "verifier.cli.cell"
_NO_MEMORY = ("memoryerror", "bad_alloc", "out of memory", "cannot allocate memory")
_TAIL = 600

Scalar = str | int | float | bool | None
# "checked": every kernel has verdicts. "failed": it cannot be compiled or read, and never will. "error": not now, for
# want of a tool. The others say which limit or signal ended it.
State = Literal["checked", "failed", "error", "time", "memory", "crash"]


class CaseSubject(msgspec.Struct, frozen=True, kw_only=True, tag="case"):
    """A registered kernel. `root` is the folder on the import path that holds its package."""

    name: str
    module: str
    config: dict[str, Scalar]
    defect: str | None
    root: str
    arch: str


class FileSubject(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Files that somebody else compiled, by kind ("ptx", "cubin", "listing", "cuda", "meta")."""

    source: str
    files: dict[str, str]
    archs: tuple[str, ...] = ()


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules run, and what is waived."""

    profile: str
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    ignores: tuple[Ignore, ...] = ()


class CellSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a cell needs. `store` is ROOT; `environment` and `ptxas` are None for what is installed."""

    key: str
    subject: CaseSubject | FileSubject
    toolchain: str
    environment: Environment | None = None
    ptxas: Tool | None = None
    checks: Checks
    seconds: float
    memory: int
    store: str


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: what the rules said, and the identity of its code, "" where there is none."""

    outcome: KernelOutcome
    ptx: str = ""
    sass: str = ""


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cell. `quotes` are lines that a report shows: "KERNEL:LINE" of PTX, "FILE:LINE" of source."""

    state: State
    what: str = ""
    seconds: float = 0.0
    kernels: tuple[KernelRecord, ...] = ()
    quotes: dict[str, str] = {}
    usage: Usage = Usage()
    version: int = 1

    @property
    def settled(self) -> bool:
        """It would be the same again."""
        return self.state in ("checked", "failed")


class CellStore:
    """Results by key below `root`. Entries appear whole and are never changed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        return self.root / key[:2] / key

    def get(self, key: str) -> CellResult | None:
        """The result of a key; None when there is none, or none that this version can read."""
        try:
            data = (self.folder(key) / RESULT).read_bytes()
            found = msgspec.json.decode(data, type=CellResult)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.version == CellResult(state="error").version else None

    def put(self, key: str, result: CellResult) -> None:
        folder = self.folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{RESULT}.{uuid.uuid4().hex}"
        try:
            partial.write_bytes(msgspec.json.encode(result))
            partial.replace(folder / RESULT)
        finally:
            partial.unlink(missing_ok=True)

    def artifacts(self, key: str) -> Path:
        """Where the files of a cell are, or would be."""
        return self.folder(key) / ARTIFACTS

    def prune(self, keep: frozenset[str]) -> int:
        """Remove the entries of all other keys; how many they were."""
        removed = 0
        for folder in list(self._entries()):
            if folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        return removed

    def _entries(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from self.root.glob("??/*")


def run_cell(spec: bytes, cancel: threading.Event | None = None) -> bytes:
    """Do one cell, or take its result from the store. Raises `Cancelled` when `cancel` is set meanwhile."""
    wanted = msgspec.json.decode(spec, type=CellSpec)
    store = CellStore(Path(wanted.store))
    known = store.get(wanted.key)
    if known is None:
        known = _execute(wanted, spec, cancel)
        if known.settled:
            store.put(wanted.key, known)
    return msgspec.json.encode(known)


def _execute(wanted: CellSpec, spec: bytes, cancel: threading.Event | None) -> CellResult:
    started = time.monotonic()
    # The cell itself ends what it started when the limit is near; this limit is for a cell that does not even do that.
    limits = Limits(seconds=wanted.seconds, memory=wanted.memory, output=256 << 20)
    argv = [sys.executable, "-m", WORKER]
    done = run_limited(argv, limits=limits, stdin=spec, env=_environment(), cancel=cancel)
    seconds = round(time.monotonic() - started, 3)
    try:
        result = msgspec.json.decode(done.out, type=CellResult) if done.code == 0 and not done.stopped else None
    except msgspec.DecodeError:
        result = None
    return msgspec.structs.replace(result or ended_early(done, wanted), seconds=seconds)


def _environment() -> dict[str, str]:
    package_root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    path = f"{package_root}{os.pathsep}{inherited}" if inherited else package_root
    # Sets of strings must not reorder anything.
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1"}


def ended_early(done: Finished, wanted: CellSpec) -> CellResult:
    """The result of a process that gave none."""
    if done.stopped == "time":
        return CellResult(state="time", what=f"took longer than {wanted.seconds:g} s and was stopped")
    said = done.err_text.lower()
    if done.signal_name == "SIGKILL" or any(phrase in said for phrase in _NO_MEMORY):
        return CellResult(state="memory", what=f"needed more than {wanted.memory / (1 << 30):g} GiB and was stopped")
    ending = done.signal_name or done.stopped or f"exit code {done.code}"
    return CellResult(state="crash", what=f"{ending}: {done.err_text[-_TAIL:].strip() or 'no message'}")
