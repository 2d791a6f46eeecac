"""Check bundles, gather results, write the report, choose the exit code: the same for `check` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from verifier import __version__
from verifier.cli import output
from verifier.cli.inputs import Bundle
from verifier.cli.loading import LoadOptions, load_kernels
from verifier.cli.options import RunOptions
from verifier.errors import VerifierError
from verifier.report.results import Failure, Results, Tools
from verifier.rules import KernelOutcome, Rule, run_rules

COULD_NOT_CHECK = 2


class FileExcerpts:
    """Lines quoted from the files on disk; an empty text where a file is gone."""

    def ptx_line(self, kernel: KernelOutcome, line: int) -> str:
        return _line(kernel.ptx_file, line)

    def python_line(self, file: str, line: int) -> str:
        return _line(file, line)


def check_bundles(
    bundles: Sequence[Bundle], rules: Sequence[Rule], options: RunOptions, loading: LoadOptions
) -> tuple[list[KernelOutcome], list[VerifierError]]:
    """Check every kernel of every bundle. An input that fails becomes an error, the others go on."""
    outcomes: list[KernelOutcome] = []
    errors: list[VerifierError] = []
    for item in load_kernels(bundles, loading):
        if isinstance(item, VerifierError):
            errors.append(item)
            continue
        try:
            outcome = run_rules(item.kernel, rules, options.policy)
        except VerifierError as error:
            errors.append(error)
        else:
            outcomes.append(msgspec.structs.replace(outcome, ptx_file=item.ptx_file, toolchain=item.toolchain))
    return outcomes, errors


def report(outcomes: Sequence[KernelOutcome], errors: Sequence[VerifierError], options: RunOptions) -> int:
    """Say every error on stderr and write the report, if there is anything to report; returns the exit code."""
    for error in errors:
        output.show_error(error)
    if not outcomes:
        return COULD_NOT_CHECK
    results = Results(tuple(outcomes), tuple(Failure.of(error) for error in errors), tools())
    output.emit(_render(results, options), options.output_file)
    code = results.exit_code(options.bar)
    return 0 if code == 1 and options.exit_zero else code


def tools() -> Tools:
    """Versions of the verifier and of the tools installed here."""
    from verifier.compile.toolchain import current_fingerprint

    here = current_fingerprint()
    return Tools(version=__version__, ptxas=here.ptxas or "", nvdisasm=here.nvdisasm or "", dsl=here.dsl or "")


def _render(results: Results, options: RunOptions) -> str:
    if options.format == "json":
        from verifier.report import json_v1

        return json_v1.render(results)
    from verifier.report import text

    colour = output.wants_colour(options.output_file is not None)
    return text.render(results, FileExcerpts(), output.paint if colour else text.plain)


def _line(file: str, line: int) -> str:
    lines = _lines(file)
    return output.printable(lines[line - 1]) if 1 <= line <= len(lines) else ""


@lru_cache(maxsize=8)
def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").split("\n") if file else []
    except OSError:
        return []
