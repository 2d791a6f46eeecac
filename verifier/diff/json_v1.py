"""The JSON form of a comparison, schema version 1. Keys may be added in version 1, never removed or redefined.

`error` is null in a report. When nothing could be compared there is an object with `error` and without a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from verifier.diff.claims import Claim as InternalClaim
from verifier.diff.expect import Verdict
from verifier.diff.hunks import Hunk as InternalHunk
from verifier.diff.kernels import KernelDiff, LevelDiff
from verifier.diff.lines import Line as InternalLine
from verifier.diff.lines import LineKind
from verifier.diff.metrics import LOOPS
from verifier.diff.results import DiffResults, headline, place
from verifier.diff.verdicts import Verdicts as InternalVerdicts
from verifier.errors import VerifierError
from verifier.findings import Finding, Location


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`hunks` counts differences, `reorders` lines that are only scheduled or placed differently, `renamed` names that
    differ, `conflicts` operands that no renaming explains. `skeleton_identical` is about the machine code where it is
    at hand, else about the PTX."""

    hunks: int
    reorders: int
    renamed: int
    conflicts: int
    skeleton_identical: bool
    sentence: str
    kernels: int
    changed: int
    removed: list[str]
    added: list[str]
    toolchain: list[str]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    where: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """`count` hunks of one rewrite shape; `removed` and `added` are the opcodes of the shape."""

    level: str
    kind: str
    count: int
    sentence: str
    removed: list[str]
    added: list[str]
    places: list[Place]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    location: Location


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    kind: str
    roles: list[str]
    removed: list[Line]
    added: list[Line]


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number before and after, null where a side does not tell. `*_in_loops` is the part of a count in loops."""

    before: int | float | None
    after: int | float | None
    before_in_loops: int | float | msgspec.UnsetType = msgspec.UNSET
    after_in_loops: int | float | msgspec.UnsetType = msgspec.UNSET


class Skeleton(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    identical: bool
    before: int
    after: int
    added: dict[str, int]
    removed: dict[str, int]


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """`checked` is false where the code is the same, so that the verdicts are, too."""

    checked: bool
    fixed: list[Finding]
    new: list[Finding]
    unchanged: int


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arch: str
    sentence: str
    hunks: list[Hunk]
    claims: list[Claim]
    skeletons: list[Skeleton]
    metrics: dict[str, Metric]
    verdicts: Verdicts
    toolchain: list[str]


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the claim of a file holds."""

    file: str
    holds: bool
    failures: list[str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: Literal[1] = 1
    before: str
    after: str
    summary: Summary
    kernels: list[Kernel]
    expectation: Expectation | None
    error: None = None


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was compared, where, and what to do about it; `kind` is the name of the verifier's error."""

    kind: str
    what: str
    where: str
    help: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the place of a report when nothing was compared: `subjects` are those of the command line."""

    schema_version: Literal[1] = 1
    subjects: list[str]
    error: Error


def render(results: DiffResults, verdict: Verdict | None = None) -> str:
    """The whole report, indented."""
    claim = None
    if verdict is not None:
        claim = Expectation(file=verdict.file, holds=verdict.holds, failures=list(verdict.failures))
    report = Report(
        before=results.before,
        after=results.after,
        summary=_summary(results),
        kernels=[_kernel(kernel) for kernel in results.kernels],
        expectation=claim,
    )
    return _indented(report)


def render_refusal(error: VerifierError, subjects: Sequence[str]) -> str:
    """The object that says why nothing was compared."""
    reason = Error(kind=type(error).__name__, what=error.what, where=error.where, help=error.do)
    return _indented(Refusal(subjects=list(subjects), error=reason))


def _indented(document: Report | Refusal) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _summary(results: DiffResults) -> Summary:
    mains = [kernel.main.comparison for kernel in results.kernels if kernel.main]
    return Summary(
        hunks=results.hunks,
        reorders=sum(main.reorders for main in mains),
        renamed=sum(main.renamed for main in mains),
        conflicts=sum(main.conflicts for main in mains),
        skeleton_identical=all(kernel.skeleton_identical for kernel in results.kernels),
        sentence=headline(results),
        kernels=len(results.kernels),
        changed=sum(kernel.differs for kernel in results.kernels),
        removed=[side.name for side in results.removed],
        added=[side.name for side in results.added],
        toolchain=list(results.toolchain),
    )


def _kernel(kernel: KernelDiff) -> Kernel:
    roots = kernel.roots
    return Kernel(
        name=kernel.name,
        arch=kernel.arch,
        sentence=kernel.main.sentence if kernel.main else "",
        hunks=[_hunk(level, hunk) for level in kernel.levels for hunk in level.comparison.hunks],
        claims=[_claim(claim, roots) for level in kernel.levels for claim in level.claims],
        skeletons=[
            Skeleton(
                level=skeleton.level,
                identical=skeleton.identical,
                before=skeleton.before,
                after=skeleton.after,
                added=dict(skeleton.added),
                removed=dict(skeleton.removed),
            )
            for skeleton in kernel.skeletons
        ],
        metrics=_metrics(kernel),
        verdicts=_verdicts(kernel.verdicts),
        toolchain=list(kernel.toolchain),
    )


def _claim(claim: InternalClaim, roots: Sequence[str]) -> Claim:
    return Claim(
        level=claim.level,
        kind=claim.kind.value,
        count=claim.count,
        sentence=claim.clause,
        removed=list(claim.removed),
        added=list(claim.added),
        places=[Place(role=p.role, where=place(p.location, roots)) for p in claim.places],
    )


def _hunk(level: LevelDiff, hunk: InternalHunk) -> Hunk:
    return Hunk(
        level=level.level,
        kind=hunk.kind.value,
        roles=list(hunk.roles),
        removed=_lines(hunk.removed),
        added=_lines(hunk.added),
    )


def _lines(lines: tuple[InternalLine, ...]) -> list[Line]:
    return [Line(text=line.text, location=line.location) for line in lines if line.kind is not LineKind.LABEL]


def _metrics(kernel: KernelDiff) -> dict[str, Metric]:
    found = {}
    for name, delta in kernel.metrics.items():
        loops = kernel.metrics.get(name + LOOPS)
        if name.endswith(LOOPS):
            continue
        inside = {} if loops is None else {"before_in_loops": loops.before or 0, "after_in_loops": loops.after or 0}
        found[name] = Metric(before=delta.before, after=delta.after, **inside)
    return found


def _verdicts(verdicts: InternalVerdicts) -> Verdicts:
    return Verdicts(
        checked=verdicts.checked,
        fixed=list(verdicts.fixed),
        new=list(verdicts.new),
        unchanged=verdicts.unchanged,
    )
