"""The report for GitHub Actions: annotations on standard output, and a job summary in Markdown.

Sources: GitHub Docs, "Workflow commands for GitHub Actions" (the form of a command and its escapes) and "Limits" of the
Checks API: a step shows 10 errors, 10 warnings and 10 notices, so the worst come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.config import Bar
from verifier.findings import Finding, Severity, Verdict
from verifier.report.concise import where
from verifier.report.markup import code, words
from verifier.report.results import Failure, Results, sources
from verifier.report.text import many, place, short_name, summary
from verifier.rules import KernelOutcome

MAX_FINDINGS = 50
MAX_STEPS = 12
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_RANK = {"error": 0, "warning": 1, "notice": 2}

Found = tuple[Finding, list[KernelOutcome]]


def commands(results: Results, bar: Bar) -> str:
    """One workflow command a line, the summary last."""
    judged = [_annotation(finding, builds, bar) for finding, builds in grouped(results)]
    judged.sort(key=lambda item: _RANK[item[0]])
    texts = [*(_command_of(failure) for failure in results.failures), *(text for _, text in judged)]
    texts += [_command("notice", notice, {"title": "verifier"}) for notice in results.notices]
    return "\n".join([*texts, summary(results)]) + "\n"


def job_summary(results: Results) -> str:
    """Markdown: a headline, a table of kernels, each finding with its witness."""
    lines = [f"### {words(summary(results))}", ""]
    lines += [f"* **not checked** {code(f.where)}: {words(f.what)}" for f in results.failures]
    lines += ["", *_table(results.kernels), ""]
    found = list(grouped(results))
    for finding, builds in found[:MAX_FINDINGS]:
        lines += [*_story(finding, builds), ""]
    if len(found) > MAX_FINDINGS:
        lines += [f"{len(found) - MAX_FINDINGS} more findings are in the other reports.", ""]
    lines += [f"* note: {words(notice)}" for notice in results.notices]
    return "\n".join(lines) + "\n"


def grouped(results: Results) -> Iterator[Found]:
    """Each finding once, with every build that has it; violations first, the worst of them first."""
    groups: dict[str, Found] = {}
    for kernel in results.kernels:
        for finding in kernel.findings:
            groups.setdefault(finding.fingerprint, (finding, []))[1].append(kernel)
    order = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    yield from sorted(
        groups.values(), key=lambda item: (item[0].verdict is Verdict.UNKNOWN, order.index(item[0].severity))
    )


def _annotation(finding: Finding, builds: Sequence[KernelOutcome], bar: Bar) -> tuple[str, str]:
    unknown = finding.verdict is Verdict.UNKNOWN
    level = ("error" if bar.strict else "warning") if unknown else _COMMANDS[finding.severity]
    file, *line = where(finding, builds[0])
    properties = {"title": f"{'unknown ' if unknown else ''}{finding.rule} {finding.name}", "file": file}
    if line and line[0].isdecimal():
        properties["line"] = line[0]
    archs = ", ".join(dict.fromkeys(kernel.arch for kernel in builds))
    text = f"{finding.message} (kernel {short_name(finding.kernel)}, {archs}, role {finding.role}; {sources(builds)})"
    steps = [
        f"{number}. {step.role}: {step.fact} [{place(step.location)}]" for number, step in enumerate(finding.witness, 1)
    ]
    return level, _command(level, "\n".join([text, *steps[:MAX_STEPS]]), properties)


def _command_of(failure: Failure) -> str:
    text = f"{failure.where}: {failure.what}" if failure.where else failure.what
    return _command("error", text, {"title": "could not be checked"})


def _command(level: str, text: str, properties: dict[str, str]) -> str:
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _table(kernels: Sequence[KernelOutcome]) -> Iterator[str]:
    yield "| kernel | architecture | assembler | proved | violated | unknown | waived |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for kernel in kernels:
        proved, violated, unknown = (
            sum(getattr(count, name) for count in kernel.ledger) for name in ("proved", "violated", "unknown")
        )
        assembler = words(kernel.toolchain.get("assembler", ""))
        numbers = f"{proved} | {violated or ''} | {unknown or ''} | {len(kernel.suppressed) or ''}"
        yield f"| {code(short_name(kernel.name))} | {kernel.arch} | {assembler} | {numbers} |"


def _story(finding: Finding, builds: Sequence[KernelOutcome]) -> Iterator[str]:
    word = "unknown" if finding.verdict is Verdict.UNKNOWN else finding.severity.value
    archs = ", ".join(dict.fromkeys(kernel.arch for kernel in builds))
    yield f"#### {word}: {finding.rule} {finding.name}"
    yield ""
    yield f"{words(finding.message)}"
    yield ""
    at = code(":".join(where(finding, builds[0])))
    yield (
        f"kernel {code(short_name(finding.kernel))} ({archs}), role {words(finding.role)}, at {at}; "
        f"{code(sources(builds))}"
    )
    yield ""
    for number, step in enumerate(finding.witness[:MAX_STEPS], 1):
        yield f"{number}. {words(step.role)}: {words(step.fact)} {code(place(step.location))}"
    if len(finding.witness) > MAX_STEPS:
        yield f"{MAX_STEPS + 1}. and {many(len(finding.witness) - MAX_STEPS, 'more step')}"
    if finding.fix:
        yield ""
        yield f"Help: {words(finding.fix)}"
