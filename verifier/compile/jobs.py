"""What the caller asks of the child process and what the child answers: JSON both ways, no pickle.

The job arrives on the child's standard input. The child writes its answer, `outcome.json`, and the files that
the answer names into the folder of the job; its standard output and error belong to the user's own program.
"""

from __future__ import annotations

import msgspec

from verifier.compile.artifacts import Scalar
from verifier.launch import LaunchFacts

OUTCOME = "outcome.json"


class CaseJob(msgspec.Struct, frozen=True, kw_only=True, tag="case"):
    """Compile `build(config, defect)` of a kernel module; `root` is the folder that holds the module's top package."""

    folder: str
    arch: str
    root: str
    module: str
    config: dict[str, Scalar] = {}
    defect: str | None = None


class ProgramJob(msgspec.Struct, frozen=True, kw_only=True, tag="program"):
    """Run a Python file as `__main__` and keep what it compiles; `preload` are Python files to run before it."""

    folder: str
    arch: str
    path: str
    arguments: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


class LinkJob(msgspec.Struct, frozen=True, kw_only=True, tag="link"):
    """Assemble `input.ptx` of the folder with nvJitLink."""

    folder: str
    arch: str


class CudaJob(msgspec.Struct, frozen=True, kw_only=True, tag="cuda"):
    """Compile `input.cu` of the folder with NVRTC; `name` is what its messages call the file."""

    folder: str
    arch: str
    name: str
    include: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


Job = CaseJob | ProgramJob | LinkJob | CudaJob


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the job ended early. `kind` is "memory", "toolchain" or "user"; file and line are the user's own code."""

    kind: str
    message: str
    file: str | None = None
    line: int | None = None


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One compiled module: stem of its files in the folder (NNN.ptx, NNN.cubin, NNN.mlir), assembler log, launches."""

    stem: str
    function: str
    log: str = ""
    launches: dict[str, LaunchFacts] = {}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the child."""

    captures: tuple[Capture, ...] = ()
    failure: Failure | None = None
