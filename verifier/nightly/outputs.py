"""What a run leaves for people and other programs: page, SARIF, JUnit, text, job summary, and the alert."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from verifier.nightly.cells import CellResult, CellStore
from verifier.nightly.history import History, Run
from verifier.nightly.markdown import job_summary
from verifier.nightly.rows import CellRow
from verifier.nightly.settings import Settings
from verifier.report import html, junit, sarif, text
from verifier.report.comparison import Across, Build, Comparison
from verifier.report.html import built
from verifier.report.results import Failure, Results, Tools
from verifier.report.waivers import merge_usage
from verifier.rules import KernelOutcome, Rule

_ALERT_SECONDS = 120
_SHOWN_RUNS = 10
_PARTIAL = ".partial"


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Cells by how they ended, obligations by verdict, findings that nobody waived."""

    cells: int
    checked: int
    kernels: int
    proved: int
    violated: int
    unknown: int
    errors: int
    warnings: int
    notes: int
    waived: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the alert command reads on its standard input. Keys may be added in version 1, never removed."""

    schema_version: Literal[1] = 1
    run: int
    exit_code: int
    started: str
    regressions: int
    totals: Totals
    comparison: Comparison
    page: str


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a finished run that outputs are made of."""

    run: Run
    results: Results
    comparison: Comparison
    across: tuple[Across, ...]
    exit_code: int
    cells: int
    checked: int
    quotes: Mapping[tuple[str, str, str], Mapping[str, str]]

    @property
    def outcome(self) -> str:
        if self.exit_code == 2:
            return f"incomplete: {text.many(len(self.comparison.unchecked), 'cell')} could not be checked"
        regressions = self.comparison.regressions
        return f"{text.many(regressions, 'regression')}" if regressions else "no regression"


class StoredExcerpts:
    """Lines that cells kept with their results."""

    def __init__(self, quotes: Mapping[tuple[str, str, str], Mapping[str, str]]) -> None:
        self._quotes = quotes
        self._source = {key: line for found in quotes.values() for key, line in found.items()}

    def ptx_line(self, kernel: KernelOutcome, line: int) -> str:
        return self._quotes.get((kernel.name, kernel.arch, built(kernel)), {}).get(f"{kernel.name}:{line}", "")

    def python_line(self, file: str, line: int) -> str:
        return self._source.get(f"{file}:{line}", "")


def gather(
    run: Run,
    rows: Mapping[Build, CellRow],
    store: CellStore,
    comparison: Comparison,
    across: Sequence[Across],
    tools: Tools,
) -> Bundle:
    """The results of all cells as one, with what the comparison says."""
    found = {label: store.get(row.key) for label, row in rows.items() if row.state in ("checked", "failed")}
    kept: dict[Build, CellResult] = {label: result for label, result in found.items() if result is not None}
    kernels = tuple(record.outcome for result in kept.values() for record in result.kernels)
    failures = tuple(
        Failure(kind=row.state, what=row.what, where=str(label))
        for label, row in rows.items()
        if row.state != "checked"
    )
    usage = merge_usage([result.usage for result in kept.values()])
    quotes = {
        (record.outcome.name, record.outcome.arch, label.toolchain): result.quotes
        for label, result in kept.items()
        for record in result.kernels
    }
    return Bundle(
        run=run,
        results=Results(kernels, failures, tools, usage.notices()),
        comparison=comparison,
        across=tuple(across),
        exit_code=2 if comparison.unchecked else int(comparison.regressions > 0),
        cells=len(rows),
        checked=sum(row.state == "checked" for row in rows.values()),
        quotes=quotes,
    )


def summary_of(bundle: Bundle, out: Path) -> Summary:
    totals = bundle.results.totals
    return Summary(
        run=bundle.run.id,
        exit_code=bundle.exit_code,
        started=bundle.run.started,
        regressions=bundle.comparison.regressions,
        totals=Totals(
            cells=bundle.cells,
            checked=bundle.checked,
            kernels=totals.kernels,
            proved=totals.proved,
            violated=totals.violated,
            unknown=totals.unknown,
            errors=totals.errors,
            warnings=totals.warnings,
            notes=totals.notes,
            waived=totals.suppressed,
        ),
        comparison=bundle.comparison,
        page=str((out / page_name(bundle.run.id)).resolve()),
    )


def page_name(run: int) -> str:
    """The page of a run, in the output folder; index.html is the same as the newest."""
    return f"run-{run}.html"


def write_all(
    out: Path, bundle: Bundle, history: History, rules: Sequence[Rule], settings: Settings, facts: Mapping[str, str]
) -> Summary:
    """Write every file of a run, each at once. The page comes last, because it links to the others."""
    excerpts = StoredExcerpts(bundle.quotes)
    results, summary = bundle.results, summary_of(bundle, out)
    encoded = msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n"
    page = html.render(results, excerpts, rules, _page(out, bundle, history, facts))
    files = {
        "summary.json": encoded,
        "findings.sarif": sarif.render(results, excerpts, rules),
        "junit.xml": junit.render(results, rules, settings.bar),
        "report.txt": text.render(results, excerpts),
        "summary.md": job_summary(bundle.run.id, bundle.outcome, bundle.comparison, results),
        page_name(bundle.run.id): page,
        "index.html": page,
    }
    for leftover in out.glob(f".*{_PARTIAL}"):  # of a runner that was killed
        leftover.unlink(missing_ok=True)
    for name, content in files.items():
        _write(out / name, content)
    return summary


def _page(out: Path, bundle: Bundle, history: History, facts: Mapping[str, str]) -> html.Page:
    run = bundle.run
    links = {"SARIF": "findings.sarif", "JUnit": "junit.xml", "text": "report.txt"}
    older = [known.id for known in history.runs() if known.id < run.id and (out / page_name(known.id)).is_file()]
    links |= {f"run {number}": page_name(number) for number in older[:_SHOWN_RUNS]}
    return html.Page(
        title=f"Nightly run {run.id}",
        facts={"started": run.started, "verifier": run.verifier, **facts},
        outcome=bundle.outcome,
        good=bundle.exit_code == 0,
        comparison=bundle.comparison,
        across=bundle.across,
        links=links,
    )


def alert(command: str, summary: Summary) -> str:
    """Give the summary to a shell command on its standard input; what went wrong with that, or ""."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=msgspec.json.encode(summary),
            timeout=_ALERT_SECONDS,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except subprocess.TimeoutExpired:
        return f"the alert command took longer than {_ALERT_SECONDS} s"
    except OSError as error:
        return f"the alert command cannot be run: {error.strerror}"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"the alert command ended with {done.returncode}: {said[-1] if said else ''}" if done.returncode else ""


def _write(file: Path, content: str) -> None:
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}{_PARTIAL}")
    try:
        partial.write_bytes(content.encode("utf-8", "backslashreplace"))
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
