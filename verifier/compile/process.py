"""Run one program under limits of time, memory and output; nothing it does can hang or flood the caller.

Source of the mechanisms: prlimit(2) for the address space and the file size, setsid(2) with killpg(2) so that
children of the program end with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

GIB = 1 << 30
_POLL_SECONDS = 0.05


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one child process may use: wall-clock seconds, bytes of address space, bytes of each output stream.

    `memory` bounds the address space; a compile by the CuTe DSL takes less than 1 GiB of it for small kernels.
    """

    seconds: float = 180.0
    memory: int = 8 * GIB
    output: int = 512 << 20


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. `code` is negative for a signal; `stopped` says which limit ended it, if one did."""

    code: int
    out: bytes
    err: bytes
    seconds: float
    stopped: str = ""

    @property
    def signal_name(self) -> str:
        """Name of the signal that ended the program, or an empty string."""
        if self.code >= 0:
            return ""
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    @property
    def err_text(self) -> str:
        return self.err.decode("utf-8", "replace")


class Cancelled(Exception):
    """The caller set the cancel event; the program was ended."""


class _Drain(threading.Thread):
    """Reads a pipe to its end so that the writer never blocks; keeps the first or the last `limit` bytes."""

    def __init__(self, pipe: BinaryIO, limit: int, *, keep_tail: bool) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._limit = limit
        self._keep_tail = keep_tail
        self.kept = bytearray()
        self.overflow = False

    def run(self) -> None:
        with contextlib.suppress(ValueError, OSError), self._pipe:
            while chunk := self._pipe.read1(1 << 16):  # type: ignore[attr-defined]
                self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        if self._keep_tail:
            self.kept += chunk
            if len(self.kept) > 2 * self._limit:
                del self.kept[: -self._limit]
            return
        room = self._limit - len(self.kept)
        self.overflow |= len(chunk) > room
        self.kept += chunk[: max(room, 0)]


def run_limited(
    argv: Sequence[str],
    *,
    limits: Limits,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cancel: threading.Event | None = None,
    err_tail: int = 1 << 16,
) -> Finished:
    """Run `argv` in a session of its own and return how it ended.

    Standard error keeps its last `err_tail` bytes, standard output its first `limits.output` bytes (more than
    that ends the program). Raises OSError when the program cannot be started, `Cancelled` when `cancel` is set.
    """
    started, pipe = time.monotonic(), subprocess.PIPE
    process = subprocess.Popen(
        list(argv),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=dict(env) if env is not None else None,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        _limit_resources(process.pid, limits)
        out = _Drain(cast(BinaryIO, process.stdout), limits.output, keep_tail=False)
        err = _Drain(cast(BinaryIO, process.stderr), err_tail, keep_tail=True)
        out.start()
        err.start()
        threading.Thread(target=_feed, args=(cast(BinaryIO, process.stdin), stdin), daemon=True).start()
        stopped = _wait(process, out, started + limits.seconds, cancel)
    finally:
        _kill_group(process)
    out.join(timeout=5)
    err.join(timeout=5)  # the last of the output may arrive after the end of the program
    return Finished(
        code=process.returncode,
        out=bytes(out.kept),
        err=bytes(err.kept[-err_tail:]),
        seconds=time.monotonic() - started,
        stopped="output" if out.overflow else stopped,
    )


def _wait(process: subprocess.Popen[bytes], out: _Drain, deadline: float, cancel: threading.Event | None) -> str:
    """Wait for the end of the process; which limit was hit ("time", "output") or an empty string."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_POLL_SECONDS)
            return ""
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if out.overflow:
            return "output"
        if time.monotonic() > deadline:
            return "time"


def _limit_resources(pid: int, limits: Limits) -> None:
    # A process that ended already needs no limit; elsewhere than on Linux there is no prlimit.
    with contextlib.suppress(OSError, AttributeError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory, limits.memory))
        # If this process is killed, nobody is left to watch the time of a child that loops for ever.
        seconds = math.ceil(limits.seconds) * (os.cpu_count() or 1) + 1
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))


def _feed(pipe: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(OSError), pipe:
        pipe.write(data)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole session, then reap the process itself. Safe when everything has ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
