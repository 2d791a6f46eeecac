"""The forms of a report and how each is made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from verifier.cli import output
from verifier.config import Bar
from verifier.report.results import Excerpts, Results
from verifier.rules import Rule

FORMATS = ("text", "concise", "json", "sarif", "junit", "github", "html")
FOR_PEOPLE = ("text", "concise")
_SUMMARY = "GITHUB_STEP_SUMMARY"


def render(
    format: str, results: Results, excerpts: Excerpts, rules: Sequence[Rule], bar: Bar, *, baseline: bool, colour: bool
) -> str:
    """The report in one of `FORMATS`; a job of GitHub Actions gets its summary on the way."""
    if format in FOR_PEOPLE:
        from verifier.report import concise, text

        paint = output.paint if colour else text.plain
        return text.render(results, excerpts, paint) if format == "text" else concise.render(results, paint)
    if format == "json":
        from verifier.report import json_v1

        return json_v1.render(results)
    if format == "sarif":
        from verifier.report import sarif

        return sarif.render(results, excerpts, rules, baseline=baseline)
    if format == "junit":
        from verifier.report import junit

        return junit.render(results, rules, bar)
    if format == "github":
        from verifier.report import github

        _append(os.environ.get(_SUMMARY), github.job_summary(results))
        return github.commands(results, bar)
    from verifier.report import html

    return html.render(results, excerpts, rules, html.Page(title="Verifier report"))


def _append(file: str | None, text: str) -> None:
    if file:
        with Path(file).open("a", encoding="utf-8", errors="backslashreplace") as summary:
            summary.write(text)
