"""A run as Markdown, for a job summary or an issue."""

from __future__ import annotations

from collections.abc import Iterator

from verifier.report.comparison import Comparison, FindingChange
from verifier.report.github import job_summary as report_summary
from verifier.report.markup import code, words
from verifier.report.results import Results
from verifier.report.text import short_name

MAX_ITEMS = 40


def job_summary(run: int, outcome: str, comparison: Comparison, results: Results) -> str:
    """What changed first, then the whole report."""
    lines = [f"## Nightly run {run}: {words(outcome)}", ""]
    for title, changes in (("New", comparison.new), ("Fixed", comparison.fixed)):
        lines += [f"* **{title}** {_finding(change)}" for change in changes[:MAX_ITEMS]]
        if len(changes) > MAX_ITEMS:
            lines.append(f"* and {len(changes) - MAX_ITEMS} more")
    lines += [
        f"* **Not checked** ({item.state}) {code(str(item.build))}: {words(item.what)}" for item in comparison.unchecked
    ]
    lines += list(_metrics(comparison))
    changed = {change.build.kernel for change in comparison.code}
    if changed:
        listed = ", ".join(code(short_name(name)) for name in sorted(changed)[:MAX_ITEMS])
        lines.append(f"* Generated code changed in {len(comparison.code)} builds of {listed}")
    lines += [f"* Toolchain {words(change)}" for change in comparison.toolchains]
    return "\n".join(lines) + "\n\n" + report_summary(results)


def _finding(change: FindingChange) -> str:
    archs = ", ".join(dict.fromkeys(build.arch for build in change.builds))
    tools = ", ".join(dict.fromkeys(build.toolchain for build in change.builds))
    kernel = code(short_name(change.builds[0].kernel))
    where = f" {code(change.place)}" if change.place else ""
    word = change.severity if change.verdict == "violated" else "unknown"
    return f"{word} {change.rule} {kernel}{where} ({words(archs)}; {words(tools)}): {words(change.message)}"


def _metrics(comparison: Comparison) -> Iterator[str]:
    for change in comparison.metrics:
        if change.failing:
            yield (
                f"* **Grew** {words(change.name)} of {code(str(change.build))}: "
                f"{change.before:g} to {change.after:g} (allowed {words(change.limit)})"
            )
