"""The parent's side of the child process: start it under limits; however it ends becomes an outcome or one error."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path

import msgspec

import verifier
from verifier.compile.jobs import OUTCOME, Failure, Job, Outcome
from verifier.compile.process import GIB, Finished, Limits, run_limited
from verifier.compile.toolchain import INSTALL
from verifier.errors import CompileError, ToolchainError, VerifierError

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# How C++ libraries and the kernel say that the address space ran out.
_NO_MEMORY = ("bad_alloc", "out of memory", "cannot allocate memory", "memoryerror", "failed to map segment")
# What faulthandler prints that says nothing of the user's code.
_OWN_FRAMES = (str(Path("verifier", "compile", "worker.py")), "<frozen runpy>", "Extension modules:")
_SHOWN_LINES = 12


def run_job(
    job: Job,
    *,
    subject: str,
    limits: Limits,
    cancel: threading.Event | None = None,
    keep_partial: bool = False,
    python: Path | None = None,
) -> Outcome:
    """Run a job in a child process and return its outcome; `subject` names it in messages, as in "compiling a.cu".

    `python` is an interpreter with another DSL than this one's; it needs msgspec and no verifier of its own.

    Raises CompileError (the user's own error, a time limit, a memory limit, a crash: told apart) and ToolchainError
    (a CUDA package is missing). With `keep_partial` a failure of the user's code is returned in the outcome instead,
    together with what was compiled before it.
    """
    argv = [str(python or sys.executable), "-m", "verifier.compile.worker"]
    root = _alone(Path(job.folder)) if python else _package_root()
    done = run_limited(argv, limits=limits, stdin=msgspec.json.encode(job), env=_environment(root), cancel=cancel)
    path = Path(job.folder) / OUTCOME
    if done.stopped or not path.exists():
        raise _ended_early(done, subject, limits)
    outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    if outcome.failure and not (keep_partial and outcome.failure.kind == "user"):
        raise error_of(outcome.failure, subject, limits)
    return outcome


def _package_root() -> Path:
    return Path(verifier.__file__).resolve().parent.parent


def _alone(folder: Path) -> Path:
    """A folder that holds this package and nothing beside it: what is installed here must not shadow another DSL."""
    root = folder / "import"
    root.mkdir(exist_ok=True)
    (root / "verifier").symlink_to(_package_root() / "verifier", target_is_directory=True)
    return root


def _environment(package_root: Path) -> dict[str, str]:
    environment = dict(os.environ)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{package_root}{os.pathsep}{inherited}" if inherited else str(package_root)
    # The current folder must not shadow a package; sets and dictionaries of strings must not reorder code.
    environment |= {"PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0", "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1"}
    return environment


def error_of(failure: Failure, subject: str, limits: Limits) -> VerifierError:
    """The error that a failure of the child stands for."""
    if failure.kind == "memory" or _says_no_memory(failure.message):
        return _memory_error(subject, limits)
    if failure.kind == "toolchain":
        return ToolchainError(f"{subject}: {failure.message}", do=INSTALL)
    where = f"{failure.file}:{failure.line}" if failure.file else ""
    text = plain(failure.message)
    return CompileError(f"{subject} failed: {_first_lines(text)}", where=where)


def _ended_early(done: Finished, subject: str, limits: Limits) -> VerifierError:
    if done.stopped == "time":
        return CompileError(
            f"{subject} took longer than {limits.seconds:g} s and was stopped",
            do="look for a loop without end in the kernel's Python code; raise the time limit if it is only slow",
            reason="time",
        )
    if done.stopped == "output":
        return CompileError(f"{subject} printed more than {limits.output >> 20} MiB and was stopped")
    if _says_no_memory(done.err_text) or done.signal_name == "SIGKILL":
        return _memory_error(subject, limits)
    ending = done.signal_name or f"exit code {done.code}"
    tail = _last_lines(plain(done.err_text))
    do = "a crash is a bug of the compiler: report it there"
    return CompileError(f"{subject} crashed ({ending}){tail}", do=do, reason="crash")


def _memory_error(subject: str, limits: Limits) -> CompileError:
    return CompileError(
        f"{subject} needed more than {limits.memory / GIB:g} GiB of memory and was stopped",
        do="look for an allocation without end in the kernel's Python code, or raise the memory limit",
        reason="memory",
    )


def _says_no_memory(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _NO_MEMORY)


def plain(text: str) -> str:
    """Text without the escape sequences of a terminal."""
    return _ESCAPES.sub("", text)


def _first_lines(text: str) -> str:
    lines = text.strip().splitlines()
    shown = lines[:_SHOWN_LINES]
    if len(lines) > len(shown):
        shown.append(f"... {len(lines) - len(shown)} more lines")
    return "\n  ".join(shown)


def _last_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not any(word in line for word in _OWN_FRAMES)]
    return "".join(f"\n  {line}" for line in lines[-_SHOWN_LINES:])
