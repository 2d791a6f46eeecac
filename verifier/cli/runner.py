"""Check bundles, gather results, write the report, choose the exit code: the same for `check` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from verifier import __version__
from verifier.cli import output
from verifier.cli.inputs import Bundle
from verifier.cli.loading import load_kernels
from verifier.cli.options import RunOptions
from verifier.cli.parts import LoadOptions
from verifier.errors import VerifierError
from verifier.parse.source import Source
from verifier.report.results import Failure, Results, Tools
from verifier.rules import KernelOutcome, run_rules, select_rules

COULD_NOT_CHECK = 2


class FileExcerpts:
    """Lines that a report quotes: of the PTX from memory, of Python files from disk, where they still are."""

    def __init__(self) -> None:
        self._ptx: dict[tuple[str, str, str], Source] = {}

    def add(self, outcome: KernelOutcome, ptx: Source | None) -> None:
        """Remember the PTX of a kernel that has something to quote."""
        if ptx is not None and outcome.findings:
            self._ptx[outcome.source, outcome.name, outcome.arch] = ptx

    def ptx_line(self, kernel: KernelOutcome, line: int) -> str:
        source = self._ptx.get((kernel.source, kernel.name, kernel.arch))
        return output.printable(source.line_text(line)) if source else ""

    def python_line(self, file: str, line: int) -> str:
        lines = _lines(file)
        return output.printable(lines[line - 1]) if 1 <= line <= len(lines) else ""


class Run:
    """One run of the verifier: gathers outcomes and errors, then reports them."""

    def __init__(self, options: RunOptions, loading: LoadOptions) -> None:
        self.options = options
        self.loading = loading
        self.rules = select_rules(options.select, options.ignore)
        self.outcomes: list[KernelOutcome] = []
        self.errors: list[VerifierError] = []
        self.excerpts = FileExcerpts()

    def check(self, bundles: Sequence[Bundle]) -> None:
        """Check every kernel of every bundle. An input that fails becomes an error, the others go on."""
        for item in load_kernels(bundles, self.loading):
            try:
                if isinstance(item, VerifierError):
                    raise item
                outcome = run_rules(item.kernel, self.rules, self.options.policy)
            except VerifierError as error:
                self.errors.append(error)
            else:
                self.outcomes.append(
                    msgspec.structs.replace(
                        outcome,
                        toolchain=item.toolchain,
                        assumptions=item.assumptions,
                        unknown_opcodes=item.unknown_opcodes,
                    )
                )
                self.excerpts.add(outcome, item.ptx)

    def report(self) -> int:
        """Say every error on stderr and write the report, if there is anything to report; returns the exit code."""
        for error in self.errors:
            output.show_error(error)
        if not self.outcomes:
            return COULD_NOT_CHECK
        results = Results(tuple(self.outcomes), tuple(Failure.of(error) for error in self.errors), tools())
        output.emit(self._render(results), self.options.output_file)
        code = results.exit_code(self.options.bar)
        return 0 if code == 1 and self.options.exit_zero else code

    def _render(self, results: Results) -> str:
        if self.options.format == "json":
            from verifier.report import json_v1

            return json_v1.render(results)
        from verifier.report import text

        colour = output.wants_colour(self.options.output_file is not None)
        return text.render(results, self.excerpts, output.paint if colour else text.plain)


def tools() -> Tools:
    """Versions of the verifier and of the tools installed here."""
    from verifier.compile.toolchain import current_fingerprint

    here = current_fingerprint()
    return Tools(version=__version__, ptxas=here.ptxas or "", nvdisasm=here.nvdisasm or "", dsl=here.dsl or "")


@lru_cache(maxsize=8)
def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").split("\n") if file else []
    except OSError:
        return []
