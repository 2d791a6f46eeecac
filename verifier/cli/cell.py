"""One cell of the nightly job, in a process of its own: `python -m verifier.cli.cell`.

Reads a `CellSpec` from standard input and writes a `CellResult` to standard output, both JSON. Whatever the programs
and libraries in between print goes to standard error. The parent sets the limits and judges how this process ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from verifier.cli.inputs import Bundle
from verifier.cli.joining import join
from verifier.cli.loading import LoadedKernel, build_kernels
from verifier.cli.output import show_error
from verifier.cli.parts import LoadOptions, Parts, parse_bundle
from verifier.cli.runner import FileExcerpts, near, read_source
from verifier.compile.artifacts import Artifacts, write_artifacts
from verifier.compile.build import compile_case
from verifier.compile.orphans import end_with_parent
from verifier.compile.process import Limits
from verifier.compile.reassemble import reassemble
from verifier.compile.store import default_store
from verifier.config import Policy
from verifier.diff.identity import identity
from verifier.diff.ptx_lines import ptx_listing, written_functions
from verifier.diff.sass_lines import machine_code, sass_listing
from verifier.errors import CompileError, InternalError, ToolchainError, VerifierError
from verifier.findings import Finding, Profile
from verifier.nightly.cells import CaseSubject, CellResult, CellSpec, CellStore, FileSubject, KernelRecord, State
from verifier.report.html import CONTEXT, TOOLCHAIN
from verifier.report.waivers import Waivers
from verifier.rules import KernelOutcome, run_rules, select_rules

# The rest is for the parent, which would otherwise not tell a slow compile from a slow proof.
_SHARE = 0.9


class _Case(msgspec.Struct, frozen=True):
    name: str
    module: str
    config: Mapping[str, str | int | float | bool | None]


def main() -> int:
    """0 when a result was written, however the cell itself ended."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    end_with_parent()
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=CellSpec)
    try:
        result = check(spec)
    except MemoryError:
        result = CellResult(state="memory", what=f"needed more than {spec.memory / (1 << 30):g} GiB of memory")
    _write(answer, result)
    return 0


def _write(answer: BinaryIO, result: CellResult) -> None:
    with answer:
        answer.write(msgspec.json.encode(result))


def check(spec: CellSpec) -> CellResult:
    """Compile the cell if it is a kernel case, and check it."""
    checker = _Checker(spec)
    try:
        subject = spec.subject
        if isinstance(subject, CaseSubject):
            checker.check([_compiled(spec, subject)], ())
        else:
            checker.check([_files(spec, subject)], subject.archs)
    except MemoryError:
        raise
    except VerifierError as error:
        checker.failed(error)
    except Exception as error:
        bug = InternalError(f"{type(error).__name__}: {error}")
        bug.__cause__ = error
        checker.failed(bug)
    return checker.result()


class _Checker:
    """Gathers what is found in the kernels of a cell."""

    def __init__(self, spec: CellSpec) -> None:
        self._spec = spec
        checks = spec.checks
        self._rules = select_rules(checks.select, checks.ignore)
        self._policy = Policy(profile=Profile(checks.profile))
        self._waivers = Waivers(read_source, ignores=checks.ignores, rules=self._rules, display=near)
        self._kernels: list[KernelRecord] = []
        self._quotes: dict[str, str] = {}
        self._errors: list[VerifierError] = []

    def check(self, bundles: Sequence[Bundle], archs: tuple[str, ...]) -> None:
        options = LoadOptions(archs=archs)
        for bundle in join(bundles):
            if isinstance(bundle, VerifierError):
                self.failed(bundle)
                continue
            for parts in parse_bundle(bundle, options):
                for loaded in build_kernels(parts, options):
                    self._kernel(parts, loaded)

    def failed(self, error: VerifierError) -> None:
        show_error(error)
        self._errors.append(error)

    def result(self) -> CellResult:
        if self._errors:
            first = self._errors[0]
            return CellResult(state=_state(first), what=str(first), kernels=tuple(self._kernels))
        return CellResult(
            state="checked",
            kernels=tuple(self._kernels),
            quotes=self._quotes,
            usage=self._waivers.usage(),
        )

    def _kernel(self, parts: Parts, loaded: LoadedKernel) -> None:
        found = run_rules(loaded.kernel, self._rules, self._policy)
        listings = dict(_identities(parts, loaded))
        metrics = {**found.metrics, **_more_metrics(loaded)}
        outcome = msgspec.structs.replace(
            found,
            toolchain={TOOLCHAIN: self._spec.toolchain, **loaded.toolchain},
            assumptions=loaded.assumptions,
            unknown_opcodes=loaded.unknown_opcodes,
            metrics=metrics,
        )
        outcome = self._waivers.apply(outcome)
        outcome = msgspec.structs.replace(outcome, name=self._name(outcome.name))
        self._kernels.append(KernelRecord(outcome=outcome, ptx=listings.get("ptx", ""), sass=listings.get("sass", "")))
        excerpts = FileExcerpts()
        excerpts.add(outcome, loaded.ptx)
        for finding in (*outcome.findings, *(item.finding for item in outcome.suppressed)):
            self._quote(finding, outcome, excerpts)

    def _name(self, kernel: str) -> str:
        """Unique in the matrix: helpers beside a kernel, and kernels of files, bear the name of where they are from."""
        subject = self._spec.subject
        owner = subject.name if isinstance(subject, CaseSubject) else subject.source
        return kernel if kernel == owner else f"{owner}/{kernel}"

    def _quote(self, finding: Finding, outcome: KernelOutcome, excerpts: FileExcerpts) -> None:
        """Keep the lines that a report about this finding shows."""
        for location in (finding.location, *(step.location for step in finding.witness)):
            if location.ptx_line:
                self._quotes[f"{outcome.name}:{location.ptx_line}"] = excerpts.ptx_line(outcome, location.ptx_line)
        file, line = finding.location.file, finding.location.line
        for number in range(max(1, line - CONTEXT), line + CONTEXT + 1) if file and line else ():
            self._quotes[f"{file}:{number}"] = excerpts.python_line(file or "", number)


def _state(error: VerifierError) -> State:
    if isinstance(error, ToolchainError):
        return "error"
    if isinstance(error, CompileError) and error.reason in ("time", "memory", "crash"):
        return error.reason  # type: ignore[return-value]
    return "failed"


def _compiled(spec: CellSpec, subject: CaseSubject) -> Bundle:
    if subject.root not in sys.path:
        sys.path.insert(0, subject.root)
    limits = Limits(seconds=spec.seconds * _SHARE, memory=spec.memory)
    artifacts = compile_case(
        _Case(subject.name, subject.module, subject.config),
        subject.arch,
        subject.defect,
        store=default_store(),
        limits=limits,
        environment=spec.environment,
    )
    if spec.ptxas is not None:
        artifacts = reassemble(artifacts, spec.ptxas, limits=limits)
    source = near(artifacts.meta.source) if artifacts.meta.source else subject.name
    return Bundle(source=source, compiled=_kept(artifacts, CellStore(Path(spec.store)).artifacts(spec.key)))


def _kept(artifacts: Artifacts, folder: Path) -> Artifacts:
    """The artifacts, and a copy of them beside the result for `verifier diff`."""
    try:
        return write_artifacts(folder, artifacts)
    except FileExistsError:
        return artifacts  # a run that was cut off wrote them


def _files(spec: CellSpec, subject: FileSubject) -> Bundle:
    if spec.ptxas is not None:
        os.environ["VERIFIER_PTXAS"] = spec.ptxas.path
    found = {kind: Path(file) for kind, file in subject.files.items()}
    return Bundle(
        source=subject.source,
        ptx=found.get("ptx"),
        cubin=found.get("cubin"),
        listing=found.get("listing"),
        cuda=found.get("cuda"),
        meta=found.get("meta"),
    )


def _identities(parts: Parts, loaded: LoadedKernel) -> Iterator[tuple[str, str]]:
    kernel = loaded.kernel
    if parts.ptx is not None and kernel.ptx is not None:
        yield "ptx", identity(ptx_listing(parts.ptx, kernel.ptx, written_functions(parts.ptx)))
    if parts.sass is not None and kernel.sass is not None:
        code = machine_code(parts.sass, loaded.machine)
        yield "sass", identity(sass_listing(kernel.sass.function.name, code, lambda _: ()))


def _more_metrics(loaded: LoadedKernel) -> dict[str, int | float]:
    """Numbers that only a comparison over time needs."""
    kernel = loaded.kernel
    models = (("ptx_instructions", kernel.ptx), ("sass_instructions", kernel.sass))
    found: dict[str, int | float] = {name: len(model.function.instrs) for name, model in models if model is not None}
    found["unknown_instructions"] = sum(loaded.unknown_opcodes.values())
    return found


if __name__ == "__main__":
    sys.exit(main())
