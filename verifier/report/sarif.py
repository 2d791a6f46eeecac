"""The report as SARIF 2.1.0, for code scanning: one result for each finding, its witness as the code flow.

A kernel that is checked for several architectures or toolchains has one result for all of them. Limits of GitHub
("SARIF support for code scanning: Validating your SARIF file"): 25,000 results of a run, of which 5,000 are shown;
10,000 locations of a thread flow, of which 1,000 are shown; 20 tags of a rule. They are kept, and what is cut is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from verifier.findings import Finding, Hazard, Severity, Suppressed, Verdict, Waiver
from verifier.findings import Location as Place
from verifier.report import sarif_v2 as sarif
from verifier.report.results import Excerpts, Results, first_file
from verifier.report.text import place, short_name
from verifier.rules import KernelOutcome, Rule
from verifier.rules.reference import markdown

MAX_RESULTS = 25_000
MAX_STEPS = 200
_ROOT = "%SRCROOT%"
_FINGERPRINT = "verifierFinding/v1"
# The only key that GitHub compares; without it, it would hash the text of the line.
_GITHUB_FINGERPRINT = "primaryLocationLineHash"
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class _Group(msgspec.Struct):
    """One finding with every kernel build that has it, and the waiver of it, if there is one."""

    finding: Finding
    builds: list[KernelOutcome]
    waiver: Suppressed | None = None


def render(results: Results, excerpts: Excerpts, rules: Sequence[Rule], *, baseline: bool = False) -> str:
    """The report as one JSON object and a newline. `rules` are those that were selected; `baseline`: there is one."""
    groups = _groups(results)
    log = sarif.Log(runs=(_run(results, excerpts, rules, groups, baseline),))
    return msgspec.json.format(msgspec.json.encode(log), indent=1).decode() + "\n"


def _groups(results: Results) -> list[_Group]:
    """The worst first, so that a cut takes the least."""
    found: dict[tuple[str, bool], _Group] = {}
    for kernel in results.kernels:
        items = [*((f, None) for f in kernel.findings), *((s.finding, s) for s in kernel.suppressed)]
        for finding, waiver in items:
            key = (finding.fingerprint, waiver is not None)
            group = found.setdefault(key, _Group(finding, [], waiver))
            group.builds.append(kernel)
    return sorted(found.values(), key=lambda group: (group.waiver is not None, _rank(group.finding)))


def _rank(finding: Finding) -> tuple[bool, int]:
    return finding.verdict is not Verdict.VIOLATED, _ORDER[finding.severity]


def _run(
    results: Results, excerpts: Excerpts, rules: Sequence[Rule], groups: Sequence[_Group], baseline: bool
) -> sarif.Run:
    tools = results.tools
    index = {rule.code: number for number, rule in enumerate(rules)}
    driver = sarif.ToolComponent(
        name="ptx-sass-verifier",
        semantic_version=tools.version,
        rules=tuple(_descriptor(rule) for rule in rules),
        properties={key: value for key, value in _versions(results).items() if value},
    )
    return sarif.Run(
        tool=sarif.Tool(driver=driver),
        invocations=(_invocation(results, len(groups)),),
        automation_details=sarif.Automation(id="ptx-sass-verifier/"),
        column_kind="unicodeCodePoints",
        results=tuple(_result(group, excerpts, index, baseline) for group in groups[:MAX_RESULTS]),
    )


def _versions(results: Results) -> Mapping[str, str]:
    tools = results.tools
    return {"ptxas": tools.ptxas, "nvdisasm": tools.nvdisasm, "dsl": tools.dsl}


def _invocation(results: Results, groups: int) -> sarif.Invocation:
    notes = [
        sarif.Notification(
            level="error",
            message=sarif.Message(text=f"{failure.where}: {failure.what}" if failure.where else failure.what),
            descriptor={"id": failure.kind},
        )
        for failure in results.failures
    ]
    notes += [sarif.Notification(level="note", message=sarif.Message(text=notice)) for notice in results.notices]
    if groups > MAX_RESULTS:
        text = f"{groups - MAX_RESULTS} findings were left out: a run may have {MAX_RESULTS}"
        notes.append(sarif.Notification(level="warning", message=sarif.Message(text=text)))
    return sarif.Invocation(execution_successful=not results.failures, tool_execution_notifications=tuple(notes))


def _descriptor(rule: Rule) -> sarif.ReportingDescriptor:
    what = " ".join(rule.doc.sections["What"].split())
    level = "warning" if rule.hazard is Hazard.PERFORMANCE else "error"
    return sarif.ReportingDescriptor(
        id=rule.code,
        name="".join(part.capitalize() for part in rule.name.split("-")),
        short_description=sarif.Message(text=rule.doc.summary),
        full_description=sarif.Message(text=what),
        help=sarif.Message(text=what, markdown=markdown(rule)),
        default_configuration=sarif.Configuration(level=level),
        properties={
            "tags": [rule.hazard.value, *rule.isa],
            "precision": "very-high",
            "problem.severity": "error" if level == "error" else "recommendation",
        },
    )


def _result(group: _Group, excerpts: Excerpts, index: Mapping[str, int], baseline: bool) -> sarif.Result:
    finding, kernel = group.finding, group.builds[0]
    failed = finding.verdict is Verdict.VIOLATED
    known = group.waiver is not None and group.waiver.waiver is Waiver.BASELINE
    return sarif.Result(
        rule_id=finding.rule,
        rule_index=index.get(finding.rule, -1),
        kind="fail" if failed else "open",
        level=finding.severity.value if failed else "none",  # SARIF 3.27.10: none unless the kind is fail
        message=sarif.Message(text=_text(group)),
        locations=(_location(finding.location, kernel, excerpts, finding.role),),
        code_flows=_code_flows(finding, kernel, excerpts),
        partial_fingerprints={
            _FINGERPRINT: finding.fingerprint,
            _GITHUB_FINGERPRINT: f"{finding.fingerprint[:16]}:1",
        },
        baseline_state="" if not baseline else "unchanged" if known else "new",
        suppressions=(_suppression(group.waiver),) if group.waiver else (),
        properties={
            "name": finding.name,
            "hazard": finding.hazard.value,
            "verdict": finding.verdict.value,
            "builds": [_build(kernel) for kernel in group.builds],
        },
    )


def _text(group: _Group) -> str:
    finding = group.finding
    archs = ", ".join(dict.fromkeys(kernel.arch for kernel in group.builds))
    lines = [f"{finding.message} (kernel {short_name(finding.kernel)}, {archs}, role {finding.role})"]
    if finding.fix:
        lines.append(f"Help: {finding.fix}")
    return "\n".join(lines)


def _build(kernel: KernelOutcome) -> dict[str, str]:
    return {"kernel": kernel.name, "arch": kernel.arch, "source": kernel.source, **kernel.toolchain}


def _suppression(item: Suppressed) -> sarif.Suppression:
    kind = "inSource" if item.waiver is Waiver.SOURCE else "external"
    return sarif.Suppression(kind=kind, status="accepted", justification=f"{item.reason} ({item.origin})")


def _code_flows(finding: Finding, kernel: KernelOutcome, excerpts: Excerpts) -> tuple[sarif.CodeFlow, ...]:
    steps = finding.witness
    if not steps:
        return ()
    message = None
    if len(steps) > MAX_STEPS:
        message = sarif.Message(text=f"{len(steps) - MAX_STEPS} steps in the middle are left out")
        steps = (*steps[: MAX_STEPS // 2], *steps[-(MAX_STEPS // 2) :])
    locations = tuple(
        sarif.ThreadFlowLocation(
            location=_location(step.location, kernel, excerpts, step.role, f"{step.role}: {step.fact}"),
            execution_order=number,
        )
        for number, step in enumerate(steps, 1)
    )
    return (sarif.CodeFlow(thread_flows=(sarif.ThreadFlow(locations=locations),), message=message),)


def _location(
    location: Place, kernel: KernelOutcome, excerpts: Excerpts, role: str, message: str = ""
) -> sarif.Location:
    """The Python line where the line map leads to one, else the PTX line; the PTX is quoted either way."""
    quoted = excerpts.ptx_line(kernel, location.ptx_line).strip() if location.ptx_line else ""
    parts = [part for part in (message, place(location), quoted) if part]
    if location.file and location.line:
        region = sarif.Region(start_line=location.line)
        physical = sarif.PhysicalLocation(artifact_location=_artifact(location.file), region=region)
    else:
        file = first_file(kernel)
        line = (location.ptx_line if file.endswith(".ptx") else None) or 1
        region = sarif.Region(start_line=line)
        physical = sarif.PhysicalLocation(artifact_location=_artifact(file or "kernel.ptx"), region=region)
    return sarif.Location(
        physical_location=physical,
        logical_locations=(
            sarif.LogicalLocation(name=role, fully_qualified_name=f"{kernel.name}/{role}", kind="function"),
        ),
        message=sarif.Message(text=" | ".join(parts)) if message else None,
    )


def _artifact(file: str) -> sarif.ArtifactLocation:
    """Files below the working directory relative to it, as code scanning wants them; others by their full path."""
    relative = os.path.relpath(file)
    if relative.startswith(".."):
        return sarif.ArtifactLocation(uri=f"file://{quote(str(Path(file).absolute()))}")
    return sarif.ArtifactLocation(uri=quote(relative), uri_base_id=_ROOT)


def findings_of(results: Results) -> Iterator[Finding]:
    """Each finding that nobody waived, once."""
    return (group.finding for group in _groups(results) if group.waiver is None)
