"""Check bundles, gather results, write the report, choose the exit code: the same for `check` and `verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from verifier import __version__
from verifier.cli import output
from verifier.cli.formats import FOR_PEOPLE, render
from verifier.cli.inputs import Bundle
from verifier.cli.loading import load_kernels
from verifier.cli.options import RunOptions
from verifier.cli.parts import LoadOptions
from verifier.config import Ignore
from verifier.errors import ConfigError, VerifierError
from verifier.parse.source import Source
from verifier.report.baseline import load as load_baseline
from verifier.report.results import Failure, Results, Tools
from verifier.report.waivers import Waivers
from verifier.rules import KernelOutcome, run_rules, select_rules

if TYPE_CHECKING:
    from verifier.cli.verdicts import Verdicts

COULD_NOT_CHECK = 2


class FileExcerpts:
    """Lines that a report quotes: of the PTX from memory, of Python files from disk, where they still are."""

    def __init__(self) -> None:
        self._ptx: dict[tuple[str, str, str], Source] = {}

    def add(self, outcome: KernelOutcome, ptx: Source | None) -> None:
        """Remember the PTX of a kernel that has something to quote."""
        if ptx is not None and (outcome.findings or outcome.suppressed):
            self._ptx[outcome.source, outcome.name, outcome.arch] = ptx

    def ptx_line(self, kernel: KernelOutcome, line: int) -> str:
        source = self._ptx.get((kernel.source, kernel.name, kernel.arch))
        return output.printable(source.line_text(line)) if source else ""

    def python_line(self, file: str, line: int) -> str:
        lines = _lines(file)
        return output.printable(lines[line - 1]) if 1 <= line <= len(lines) else ""


def _demand_rules(waivers: Sequence[Ignore]) -> None:
    """Raises `ConfigError` for a waiver of no rule: it would wait for its findings for ever."""
    for waiver in waivers:
        try:
            select_rules((waiver.code,))
        except ConfigError as error:
            raise ConfigError(error.what, where=waiver.origin, do=error.do) from error


class Run:
    """One run of the verifier: gathers outcomes and errors, then reports them."""

    def __init__(self, options: RunOptions, loading: LoadOptions) -> None:
        self.options = options
        self.loading = loading
        self.rules = select_rules(options.select, options.ignore)
        _demand_rules(options.ignores)
        self.outcomes: list[KernelOutcome] = []
        self.errors: list[VerifierError] = []
        self.excerpts = FileExcerpts()
        self.waivers = Waivers(
            read_source,
            ignores=options.ignores,
            baseline=load_baseline(options.baseline) if options.baseline else None,
            rules=self.rules,
            display=near,
        )

    def check(self, bundles: Sequence[Bundle]) -> None:
        """Check every kernel of every bundle. An input that fails becomes an error, the others go on."""
        for outcome, ptx in self._judged(bundles):
            self._add(outcome, ptx)

    def check_build(self, bundle: Bundle, verdicts: Verdicts) -> None:
        """The same for one build, or what was found when it was checked before."""
        known = verdicts.get(bundle)
        text = bundle.compiled.ptx if bundle.compiled else None
        if known is None:
            errors = len(self.errors)
            judged = list(self._judged([bundle]))
            known = tuple(outcome for outcome, _ in judged)
            if len(self.errors) == errors:
                verdicts.put(bundle, known)
        for outcome in known:
            self._add(outcome, Source(bundle.source, text) if text is not None else None)

    def _judged(self, bundles: Sequence[Bundle]) -> Iterator[tuple[KernelOutcome, Source | None]]:
        """What the rules say of every kernel, and its PTX."""
        for item in load_kernels(bundles, self.loading):
            try:
                if isinstance(item, VerifierError):
                    raise item
                outcome = run_rules(item.kernel, self.rules, self.options.policy)
            except VerifierError as error:
                self.errors.append(error)
            else:
                yield (
                    msgspec.structs.replace(
                        outcome,
                        toolchain=item.toolchain,
                        assumptions=item.assumptions,
                        unknown_opcodes=item.unknown_opcodes,
                    ),
                    item.ptx,
                )

    def _add(self, outcome: KernelOutcome, ptx: Source | None) -> None:
        outcome = self.waivers.apply(outcome)
        self.outcomes.append(outcome)
        self.excerpts.add(outcome, ptx)

    def report(self, *, complete: bool = False) -> int:
        """Say every error on stderr, write the reports, return the exit code.

        Where nothing at all could be checked, what a program may read is written all the same, and stdout is left
        empty for a person, who has the errors.
        `complete`: everything that the project has was checked, so that a waiver that waived nothing is idle.
        """
        for error in self.errors:
            output.show_error(error)
        results = self.results(complete=complete)
        for format, file in self.options.reports:
            output.emit(self._render(results, format, to_file=True), file)
        to_file = self.options.output_file is not None
        if self.outcomes or to_file or self.options.format not in FOR_PEOPLE:
            output.emit(self._render(results, self.options.format, to_file=to_file), self.options.output_file)
        code = results.exit_code(self.options.bar)
        return 0 if code == 1 and self.options.exit_zero else code

    def results(self, *, complete: bool = False) -> Results:
        """Everything so far, as reports take it."""
        failures = tuple(Failure.of(error) for error in self.errors)
        notices = self.waivers.usage(complete=complete and not failures).notices()
        return Results(tuple(self.outcomes), failures, tools(), notices)

    def _render(self, results: Results, format: str, *, to_file: bool) -> str:
        return render(
            format,
            results,
            self.excerpts,
            self.rules,
            self.options.bar,
            baseline=self.options.baseline is not None,
            colour=output.wants_colour(to_file),
        )


def tools() -> Tools:
    """Versions of the verifier and of the tools installed here."""
    from verifier.compile.toolchain import current_fingerprint

    here = current_fingerprint()
    return Tools(version=__version__, ptxas=here.ptxas or "", nvdisasm=here.nvdisasm or "", dsl=here.dsl or "")


def read_source(file: str) -> str:
    """The text of a source file, "" where it cannot be read."""
    return "\n".join(_lines(file))


def near(file: str) -> str:
    """A path as seen from here, where it lies below."""
    relative = os.path.relpath(file)
    return output.display(file if relative.startswith("..") else relative)


@lru_cache(maxsize=32)
def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").split("\n") if file else []
    except OSError:
        return []
