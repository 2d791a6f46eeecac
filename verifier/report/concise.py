"""The report for editors and greps: one line for each finding, as compilers print it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from verifier.findings import Finding, Verdict
from verifier.report.results import Results, first_file
from verifier.report.text import Paint, plain, short_name, summary
from verifier.rules import KernelOutcome


def render(results: Results, paint: Paint = plain) -> str:
    """`file:line: error[CODE name] message (kernel, architecture, role)` for each finding, then the summary.

    With several inputs the one that a finding is from stands there, too.
    """
    mixed = results.mixed
    lines = [_line(finding, kernel, paint, mixed) for kernel in results.kernels for finding in kernel.findings]
    lines += [f"{paint('note', 'note')}: {_on_one_line(notice)}" for notice in results.notices]
    return "\n".join([*lines, summary(results, paint)]) + "\n"


def _line(finding: Finding, kernel: KernelOutcome, paint: Paint, mixed: bool) -> str:
    style = finding.severity.value if finding.verdict is Verdict.VIOLATED else "unknown"
    head = paint(f"{style}[{finding.rule} {finding.name}]", style)
    who = f"{short_name(kernel.name)}, {kernel.arch}, {finding.role}"
    at = list(where(finding, kernel))
    source = f"; {kernel.source}" if mixed and at[0] != kernel.source else ""
    tail = f"{finding.message} ({who}{source})"
    return f"{_on_one_line(':'.join(at))}: {head} {_on_one_line(tail)}"


def _on_one_line(text: str) -> str:
    """Names of files and kernels are whatever somebody called them: a line break would make a line of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def where(finding: Finding, kernel: KernelOutcome) -> Iterator[str]:
    """File and line of a finding: Python where the line map leads there, else PTX, else a SASS offset."""
    location = finding.location
    if location.file and location.line:
        relative = os.path.relpath(location.file)
        yield location.file if relative.startswith("..") else relative
        yield str(location.line)
        return
    yield first_file(kernel)
    if location.ptx_line is not None:
        yield str(location.ptx_line)
    elif location.sass_offset is not None:
        yield f"{location.sass_offset:#06x}"
