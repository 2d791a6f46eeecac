"""The child process that does what may hang, crash or eat memory: `python -m verifier.compile.worker`.

It reads one job (jobs.py) from its standard input, runs it, and leaves `outcome.json` in the job's folder. Its
parent sets the limits; the exit code is 0 whenever the outcome was written.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from verifier.compile.jobs import OUTCOME, Capture, CaseJob, CudaJob, Failure, Job, LinkJob, Outcome, ProgramJob
from verifier.compile.orphans import end_with_parent

_DSL_PREFIXES = ("CUTE_DSL", "CUTE_EXPERIMENTAL_DSL")


def main() -> int:
    """Run the job on standard input; 0 when its outcome was written."""
    end_with_parent()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    folder = Path(job.folder)
    captures: list[Capture] = []
    failure: Failure | None = None
    try:
        run(job, captures)
    except SystemExit as error:
        failure = _exit_failure(error)
    except BaseException as error:
        traceback.print_exc()
        failure = failure_of(error)
    sys.stdout.flush()
    outcome = Outcome(captures=tuple(captures), failure=failure)
    (folder / OUTCOME).write_bytes(msgspec.json.encode(outcome))
    return 0


def run(job: Job, captures: list[Capture]) -> None:
    """Do the job; what it compiled is appended to `captures`, also when it raises later."""
    if isinstance(job, LinkJob):
        from verifier.compile.assemble import link_in_process

        captures.append(link_in_process(Path(job.folder), job.arch))
    elif isinstance(job, CudaJob):
        from verifier.compile.nvrtc import compile_in_process

        captures.append(compile_in_process(job))
    elif isinstance(job, CaseJob):
        _run_case(job, captures)
    else:
        _run_program(job, captures)


def dsl_environment(arch: str, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Variables that make the CuTe DSL compile for `arch` on the CPU and keep its files; `given` may add options."""
    settings = {
        "ARCH": arch,
        "KEEP": "ptx,cubin",
        "DUMP_DIR": str(folder / "keep"),
        "LINEINFO": "1",
        "DISABLE_FILE_CACHING": "1",
        # The assembler's own messages; the machine code is the same with and without (compared on 4.8.1).
        "COMPILER_OPT": given.get("CUTE_DSL_COMPILER_OPT", "remarks{ptx}"),
    }
    # The experimental front end of the DSL reads variables of its own.
    return {f"{prefix}_{name}": value for prefix in _DSL_PREFIXES for name, value in settings.items()}


def _start_recording(job: CaseJob | ProgramJob, captures: list[Capture], *, skip_launch: bool) -> None:
    folder = Path(job.folder)
    os.environ.update(dsl_environment(job.arch, folder, os.environ))
    (folder / "keep").mkdir()
    from verifier.compile.capture import Recorder

    recorder = Recorder(folder)
    recorder.captures = captures
    recorder.install(skip_launch=skip_launch)


def _run_case(job: CaseJob, captures: list[Capture]) -> None:
    sys.path.insert(0, job.root)
    _start_recording(job, captures, skip_launch=False)
    from cutlass import cute

    module: Any = importlib.import_module(job.module)
    function, arguments = module.build(job.config, job.defect)
    cute.compile(function, *arguments)


def _run_program(job: ProgramJob, captures: list[Capture]) -> None:
    _start_recording(job, captures, skip_launch=True)
    for path in job.preload:
        runpy.run_path(path)
    sys.argv = [job.path, *job.arguments]
    sys.path.insert(0, str(Path(job.path).resolve().parent))
    runpy.run_path(job.path, run_name="__main__")


def _exit_failure(error: SystemExit) -> Failure | None:
    # A program may end with sys.exit(0) or sys.exit(); anything else is its own error.
    if error.code in (None, 0):
        return None
    return Failure(kind="user", message=f"the program ended with exit code {error.code}")


def failure_of(error: BaseException) -> Failure:
    """Describe an exception and the last place in the user's own code that led to it."""
    if isinstance(error, MemoryError):
        return Failure(kind="memory", message="out of memory")
    kind = "toolchain" if _is_missing_toolchain(error) else "user"
    file, line = _user_frame(error.__traceback__)
    text = str(error).strip() or "no message"
    return Failure(kind=kind, message=f"{type(error).__name__}: {text}", file=file, line=line)


def _is_missing_toolchain(error: BaseException) -> bool:
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("cutlass", "cuda")


def _user_frame(trace: TracebackType | None) -> tuple[str | None, int | None]:
    foreign = ("<", str(Path(__file__).parent), sysconfig.get_path("stdlib"))
    found: tuple[str | None, int | None] = (None, None)
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if not file.startswith(foreign) and "site-packages" not in file and Path(file).is_file():
            found = (file, line)
    return found


if __name__ == "__main__":
    sys.exit(main())
