"""`verifier verify --defects`: build every seeded defect and see that it, and nothing else, is reported.

A defect is found when a violation of the rule that the registry names stands at the line that the kernel's source
marks. Violations of that rule elsewhere, and of the rules that the registry lists as consequences, belong to it; any
other violation that the kernel without the defect does not have is a surprise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from verifier.cli import output, registry
from verifier.cli.inputs import Bundle
from verifier.cli.loading import load_kernels
from verifier.cli.parts import LoadOptions
from verifier.config import Policy
from verifier.errors import VerifierError
from verifier.findings import Finding, Verdict
from verifier.rules import run_rules, select_rules

if TYPE_CHECKING:
    from kernels.registry import Defect, KernelCase
    from verifier.compile.build import Request


class DefectResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one defect of one kernel on one architecture; `error` says why it could not be checked."""

    kernel: str
    arch: str
    defect: str
    rule: str
    found_at: str = ""
    surprises: tuple[str, ...] = ()
    error: str = ""

    @property
    def good(self) -> bool:
        return bool(self.found_at) and not self.surprises and not self.error

    def describe(self) -> str:
        head = f"{self.kernel} {self.arch} {self.defect}: {self.rule}"
        if self.error:
            return f"{head} could not be checked: {self.error}"
        where = f"found at {self.found_at}" if self.found_at else "NOT FOUND at its line"
        extra = f"; also reported: {', '.join(self.surprises)}" if self.surprises else ""
        return f"{head} {where}{extra}"


def check_defects(cases: Sequence[KernelCase], archs: Sequence[str], *, jobs: int, timeout: float, cached: bool) -> int:
    """Check every defect of `cases`; prints a line each and a summary. 0: all found and nothing else; else 1 or 2."""
    from verifier.compile.build import Request

    wanted = [
        (case, Request(case=case, arch=arch, defect=defect.name))
        for case in cases
        for arch in case.archs
        if not archs or arch in archs
        for defect in case.defects
    ]
    compiled = registry.compile_all([request for _, request in wanted], jobs=jobs, timeout=timeout, cached=cached)
    results = [_judge(case, request, item) for (case, request), item in zip(wanted, compiled, strict=True)]
    output.emit("".join(f"{result.describe()}\n" for result in results))
    good = sum(result.good for result in results)
    output.emit(
        f"{len(results)} seeded defects: {good} found at their lines and nothing else, {len(results) - good} not\n"
    )
    if any(result.error for result in results):
        return 2
    return 0 if results and good == len(results) else 1


def _judge(case: KernelCase, request: Request, item: Bundle | VerifierError) -> DefectResult:
    name = request.defect or ""
    defect = case.defect(name)
    base = DefectResult(kernel=case.name, arch=request.arch, defect=name, rule=defect.rule)
    if isinstance(item, VerifierError):
        return msgspec.structs.replace(base, error=str(item))
    try:
        found = _violations(item)
    except VerifierError as error:
        return msgspec.structs.replace(base, error=str(error))
    lines = case.defect_lines(name)
    source = case.defect_source(name)
    at = next((f for f in found if f.rule == defect.rule and _stands_at(f, source, lines)), None)
    return msgspec.structs.replace(
        base,
        found_at=f"{source.name}:{at.location.line}" if at else "",
        surprises=_surprises(found, defect),
    )


def _violations(bundle: Bundle) -> list[Finding]:
    found: list[Finding] = []
    for item in load_kernels([bundle], LoadOptions()):
        if isinstance(item, VerifierError):
            raise item
        outcome = run_rules(item.kernel, select_rules(), Policy())
        found += [f for f in outcome.findings if f.verdict is Verdict.VIOLATED]
    return found


def _stands_at(finding: Finding, source: Path, lines: Sequence[int]) -> bool:
    file = finding.location.file
    return file is not None and Path(file).name == source.name and finding.location.line in lines


def _surprises(found: Sequence[Finding], defect: Defect) -> tuple[str, ...]:
    """Rules that report something the registry does not expect of the defect, be it a note."""
    return tuple(sorted({f.rule for f in found} - {defect.rule, *defect.also}))
