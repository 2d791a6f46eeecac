"""Kernel case -> artifacts, each compile in a child process of its own, under limits, through the store."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

import msgspec

from verifier.compile.artifacts import Artifacts, Meta, Scalar
from verifier.compile.child import error_of, run_job
from verifier.compile.disassemble import disassemble
from verifier.compile.elf import assemblers_of, describe_assemblers
from verifier.compile.jobs import Capture, CaseJob, ProgramJob
from verifier.compile.messages import parse_log
from verifier.compile.process import Cancelled, Limits
from verifier.compile.store import MAX_BYTES, Store, case_key, module_sources
from verifier.compile.toolchain import INSTALL, Fingerprint, current_fingerprint
from verifier.errors import CompileError, InputError, ToolchainError, VerifierError
from verifier.launch import LaunchFacts

DEFAULT_LIMITS = Limits()


class Case(Protocol):
    """What this module needs of a kernels.registry.KernelCase."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Scalar]: ...


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Another Python than this one, with the DSL that is to compile; `fingerprint` says what is in it."""

    python: str
    fingerprint: Fingerprint


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One compile of `compile_many`."""

    case: Case
    arch: str
    defect: str | None = None
    environment: Environment | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request: artifacts, or the error. `cached` says that the store had them."""

    request: Request
    artifacts: Artifacts | None = None
    error: VerifierError | None = None
    cached: bool = False


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a program compiled, in its order, and the error that ended it, if one did."""

    artifacts: tuple[Artifacts, ...]
    error: VerifierError | None = None


def compile_case(
    case: Case,
    arch: str,
    defect: str | None = None,
    *,
    store: Store | None = None,
    limits: Limits = DEFAULT_LIMITS,
    cancel: threading.Event | None = None,
    environment: Environment | None = None,
) -> Artifacts:
    """Compile one kernel case for one architecture, or take it from the store.

    Raises CompileError (the kernel's own error, time limit, memory limit, compiler crash), ToolchainError (a
    package or nvdisasm is missing), InputError (no such kernel module).
    """
    request = Request(case=case, arch=arch, defect=defect, environment=environment)
    return _compile(request, store, limits, cancel)[0]


def compile_many(
    requests: Sequence[Request],
    *,
    store: Store | None = None,
    limits: Limits = DEFAULT_LIMITS,
    workers: int = 2,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Compile several cases, at most `workers` at a time; outcomes in the order of the requests.

    An error of one case is its outcome and does not stop the others. `progress` is called in this thread, as each
    case is done. An interrupt ends the running children before it goes on. The store is kept below its bound.
    """
    cancel = threading.Event()
    outcomes: dict[int, Outcome] = {}
    with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
        futures = {pool.submit(_attempt, r, store, limits, cancel): i for i, r in enumerate(requests)}
        try:
            for future in _as_done(set(futures)):
                outcomes[futures[future]] = outcome = future.result()
                if progress is not None:
                    progress(outcome)
        except BaseException:
            cancel.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    if store is not None and not all(outcome.cached for outcome in outcomes.values()):
        store.prune(MAX_BYTES)
    return [outcomes[i] for i in range(len(requests))]


def _as_done(waiting: set[Future[Outcome]]) -> Iterator[Future[Outcome]]:
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from done


def _attempt(request: Request, store: Store | None, limits: Limits, cancel: threading.Event) -> Outcome:
    try:
        artifacts, cached = _compile(request, store, limits, cancel)
    except VerifierError as error:
        return Outcome(request=request, error=error)
    except Cancelled:
        return Outcome(request=request, error=CompileError("interrupted", where=request.case.name))
    return Outcome(request=request, artifacts=artifacts, cached=cached)


def _compile(
    request: Request, store: Store | None, limits: Limits, cancel: threading.Event | None
) -> tuple[Artifacts, bool]:
    toolchain = request.environment.fingerprint if request.environment else current_fingerprint()
    if toolchain.dsl is None:
        raise ToolchainError("the CuTe DSL (nvidia-cutlass-dsl) is missing", do=INSTALL)
    root = module_root(request.case.module)
    key = case_key(
        sources=module_sources(request.case.module, root),
        module=request.case.module,
        config=request.case.config,
        arch=request.arch,
        defect=request.defect,
        toolchain=toolchain,
    )
    if store is not None and (found := store.get(key)) is not None:
        return found, True
    artifacts = _run_case(request, root, toolchain, limits, cancel)
    return (artifacts if store is None else store.put(key, artifacts)), False


def module_root(module: str) -> Path:
    """Folder on the import path that holds the top package of `module`. Raises InputError when there is none."""
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = [*(spec.submodule_search_locations or ())] if spec else []
    if spec and not places and spec.origin:
        return Path(spec.origin).resolve().parent
    if not places:
        do = "run in the folder that holds it, or put that folder on PYTHONPATH"
        raise InputError(f"no Python package {top}", where=module, do=do)
    return Path(places[0]).resolve().parent


def _run_case(
    request: Request, root: Path, toolchain: Fingerprint, limits: Limits, cancel: threading.Event | None
) -> Artifacts:
    case = request.case
    subject = f"compiling kernel {case.name} for {request.arch}"
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        job = CaseJob(
            folder=folder,
            arch=request.arch,
            root=str(root),
            module=case.module,
            config=dict(case.config),
            defect=request.defect,
        )
        python = Path(request.environment.python) if request.environment else None
        captures = run_job(job, subject=subject, limits=limits, cancel=cancel, python=python).captures
        if len(captures) != 1:
            raise CompileError(
                f"{subject} gave {len(captures)} functions, expected one",
                where=case.module,
                do="build(config, defect) must return one jit function and its arguments, and compile nothing itself",
            )
        return with_listing(_collect(Path(folder), captures[0], case.name, request, toolchain, root))


def _collect(
    folder: Path, capture: Capture, name: str, request: Request, toolchain: Fingerprint, root: Path
) -> Artifacts:
    source = root.joinpath(*request.case.module.split(".")).with_suffix(".py")
    artifacts = from_capture(folder, capture, name, request.arch, toolchain, str(source))
    meta = msgspec.structs.replace(artifacts.meta, config=dict(request.case.config), defect=request.defect)
    return msgspec.structs.replace(artifacts, meta=meta)


def from_capture(
    folder: Path, capture: Capture, name: str, arch: str, toolchain: Fingerprint, source: str
) -> Artifacts:
    """Artifacts of one compiled module, whose files lie in `folder`."""
    cubin = (folder / f"{capture.stem}.cubin").read_bytes()
    mlir = folder / f"{capture.stem}.mlir"
    messages, usage = parse_log(capture.log)
    entry, launch = _main_entry(capture.launches)
    meta = Meta(
        name=name,
        arch=arch,
        entry=entry,
        launch=launch,
        launches=capture.launches,
        source=source,
        messages=messages,
        usage=usage,
        toolchain=msgspec.structs.replace(toolchain, assembler=describe_assemblers(assemblers_of(cubin))),
    )
    ptx = (folder / f"{capture.stem}.ptx").read_text()
    return Artifacts(meta=meta, ptx=ptx, cubin=cubin, mlir=mlir.read_text() if mlir.exists() else None)


def _main_entry(launches: Mapping[str, LaunchFacts]) -> tuple[str | None, LaunchFacts | None]:
    """The entry that a module is named for: the one with the most threads in a block, the last of several.

    Helpers that prepare the inputs of the main kernel are small and launched before it.
    """

    def rank(numbered: tuple[int, str]) -> tuple[int, int]:
        x, y, z = launches[numbered[1]].block or (0, 0, 0)
        return x * y * z, numbered[0]

    _, entry = max(enumerate(launches), key=rank, default=(0, None))
    return entry, launches[entry] if entry is not None else None


def with_listing(artifacts: Artifacts) -> Artifacts:
    """The same with the SASS of its cubin. Raises ToolchainError when nvdisasm is missing."""
    assert artifacts.cubin is not None
    listing = disassemble(artifacts.cubin, name=artifacts.meta.name)
    return msgspec.structs.replace(artifacts, sass=listing.text)


def compile_program(
    path: Path,
    arch: str,
    *,
    arguments: Sequence[str] = (),
    preload: Sequence[Path] = (),
    listing: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> ProgramResult:
    """Run somebody's Python program with the CuTe DSL set to `arch` and keep every module that it compiles.

    Compiled functions do nothing when the program calls them. `preload` are Python files to run first (a stand-in
    for a GPU, say). Kernels are named after their entry function, or the program where the DSL tells no entry.
    An error of the program is returned with what was compiled before it; limits and crashes raise CompileError.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), do="give a Python program")
    toolchain = current_fingerprint()
    if toolchain.dsl is None:
        raise ToolchainError("the CuTe DSL (nvidia-cutlass-dsl) is missing", do=INSTALL)
    subject = f"running {path}"
    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:
        job = ProgramJob(
            folder=folder,
            arch=arch,
            path=str(path),
            arguments=tuple(arguments),
            preload=tuple(str(p.resolve()) for p in preload),
        )
        outcome = run_job(job, subject=subject, limits=limits, keep_partial=True)
        found = [from_capture(Path(folder), c, path.stem, arch, toolchain, str(path)) for c in outcome.captures]
    named = [
        msgspec.structs.replace(a, meta=msgspec.structs.replace(a.meta, name=a.meta.entry or path.stem)) for a in found
    ]
    error = error_of(outcome.failure, subject, limits) if outcome.failure else None
    return ProgramResult(artifacts=tuple(with_listing(a) if listing else a for a in named), error=error)
