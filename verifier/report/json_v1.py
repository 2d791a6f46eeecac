"""The JSON report, schema version 1.

These structs are the public format. They are separate from the values that the verifier works with, so that those may
change freely; a change here is a change of the schema (`schema_v1.json`, CHANGELOG). Keys may be added in version 1,
never removed or given another meaning. Reading a report: ignore keys you do not know.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from verifier import findings as internal
from verifier.report.results import Results
from verifier.rules import KernelOutcome, RuleCount

SCHEMA_VERSION: Literal[1] = 1


class Verdict(str, enum.Enum):
    PROVED = "proved"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class OpenVerdict(str, enum.Enum):
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class Severity(str, enum.Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Hazard(str, enum.Enum):
    CONTRACT = "contract"
    CODEGEN = "codegen"
    PERFORMANCE = "performance"


class Waiver(str, enum.Enum):
    SOURCE = "source"
    SETTINGS = "settings"
    BASELINE = "baseline"


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lines are 1-based, `sass_offset` is in bytes from the start of the kernel; what is not known is left out."""

    ptx_line: int | msgspec.UnsetType = msgspec.UNSET
    sass_offset: int | msgspec.UnsetType = msgspec.UNSET
    file: str | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET


class Step(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    fact: str
    location: Location


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`fingerprint` stays the same when lines, registers and labels are renumbered. `arch` and `source` are those of
    the kernel: with its name they say which of `kernels` it is."""

    rule: str
    name: str
    severity: Severity
    hazard: Hazard
    verdict: OpenVerdict
    kernel: str
    arch: str
    source: str
    role: str
    message: str
    fix: str
    fingerprint: str
    location: Location
    witness: list[Step]


class Obligation(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    verdict: Verdict
    role: str
    location: Location
    reason: str


class Role(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    warps: list[int]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Every selected rule stands here, also with nothing to check. `skipped`: why it was not run; "" if it was."""

    rule: str
    proved: int
    violated: int
    unknown: int
    skipped: str


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """`toolchain` names what built this kernel, `assumptions` says what was assumed where launch facts are missing,
    `unknown_opcodes` counts instructions that the tables do not know."""

    name: str
    arch: str
    source: str
    toolchain: dict[str, str]
    assumptions: list[str]
    unknown_opcodes: dict[str, int]
    roles: list[Role]
    rules: list[Rule]
    obligations: list[Obligation]
    metrics: dict[str, int | float]


class Suppressed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that does not fail the run. `waiver` tells what waives it, `origin` where that stands."""

    finding: Finding
    waiver: Waiver
    reason: str
    origin: str


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the verifier and of the tools it calls; "" where one is not installed."""

    version: str
    ptxas: str
    nvdisasm: str
    dsl: str


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """An input that could not be checked; while there is one, the report is incomplete."""

    kind: str
    what: str
    where: str
    help: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """`errors`, `warnings`, `notes` count violations by severity, without the `suppressed`; `unparsed` counts lines
    that no grammar accepted, `unknown_instructions` those that parsed and that the tables do not know, `not_run`
    rules that apply to a kernel and could not look at it, because what they read is not at hand."""

    kernels: int
    proved: int
    violated: int
    unknown: int
    errors: int
    warnings: int
    notes: int
    unparsed: int
    unknown_instructions: int
    suppressed: int
    not_run: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: Literal[1]
    complete: bool
    tool: Tool
    kernels: list[Kernel]
    findings: list[Finding]
    suppressed: list[Suppressed]
    notices: list[str]
    errors: list[Error]
    summary: Summary


def render(results: Results) -> str:
    """The report as one JSON object and a newline."""
    encoded = msgspec.json.encode(convert(results))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def convert(results: Results) -> Report:
    tools, totals = results.tools, results.totals
    return Report(
        schema_version=SCHEMA_VERSION,
        complete=not results.failures,
        tool=Tool(version=tools.version, ptxas=tools.ptxas, nvdisasm=tools.nvdisasm, dsl=tools.dsl),
        kernels=[_kernel(kernel) for kernel in results.kernels],
        findings=[_finding(finding, kernel) for kernel in results.kernels for finding in kernel.findings],
        suppressed=[_suppressed(item, kernel) for kernel in results.kernels for item in kernel.suppressed],
        notices=list(results.notices),
        errors=[Error(kind=f.kind, what=f.what, where=f.where, help=f.do) for f in results.failures],
        summary=Summary(
            kernels=totals.kernels,
            proved=totals.proved,
            violated=totals.violated,
            unknown=totals.unknown,
            errors=totals.errors,
            warnings=totals.warnings,
            notes=totals.notes,
            unparsed=totals.unparsed,
            unknown_instructions=totals.unknown_instructions,
            suppressed=totals.suppressed,
            not_run=totals.not_run,
        ),
    )


def _kernel(kernel: KernelOutcome) -> Kernel:
    return Kernel(
        name=kernel.name,
        arch=kernel.arch,
        source=kernel.source,
        toolchain=dict(kernel.toolchain),
        assumptions=list(kernel.assumptions),
        unknown_opcodes=dict(kernel.unknown_opcodes),
        roles=[Role(name=role.name, warps=list(role.warps)) for role in kernel.roles],
        rules=[_rule(count) for count in kernel.ledger],
        obligations=[
            Obligation(
                rule=o.rule,
                verdict=Verdict(o.verdict.value),
                role=o.role,
                location=_location(o.location),
                reason=o.reason,
            )
            for o in kernel.obligations
        ],
        metrics=dict(kernel.metrics),
    )


def _rule(count: RuleCount) -> Rule:
    return Rule(
        rule=count.rule,
        proved=count.proved,
        violated=count.violated,
        unknown=count.unknown,
        skipped=count.skipped,
    )


def _finding(finding: internal.Finding, kernel: KernelOutcome) -> Finding:
    return Finding(
        rule=finding.rule,
        name=finding.name,
        severity=Severity(finding.severity.value),
        hazard=Hazard(finding.hazard.value),
        verdict=OpenVerdict(finding.verdict.value),
        kernel=finding.kernel,
        arch=kernel.arch,
        source=kernel.source,
        role=finding.role,
        message=finding.message,
        fix=finding.fix,
        fingerprint=finding.fingerprint,
        location=_location(finding.location),
        witness=[Step(role=s.role, fact=s.fact, location=_location(s.location)) for s in finding.witness],
    )


def _suppressed(item: internal.Suppressed, kernel: KernelOutcome) -> Suppressed:
    return Suppressed(
        finding=_finding(item.finding, kernel),
        waiver=Waiver(item.waiver.value),
        reason=item.reason,
        origin=item.origin,
    )


def _location(location: internal.Location) -> Location:
    def known(value: int | None) -> int | msgspec.UnsetType:
        return msgspec.UNSET if value is None else value

    return Location(
        ptx_line=known(location.ptx_line),
        sass_offset=known(location.sass_offset),
        file=msgspec.UNSET if location.file is None else location.file,
        line=known(location.line),
    )
