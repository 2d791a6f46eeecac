"""`verifier nightly`: the matrix, compiled, checked, recorded, and compared with the last good run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from verifier.cli import output, registry
from verifier.cli.inputs import Bundle, discover
from verifier.cli.options import ARCH
from verifier.cli.runner import tools
from verifier.compile.store import default_store
from verifier.config import load_ignores
from verifier.errors import ConfigError
from verifier.nightly.cells import CellStore, FileSubject
from verifier.nightly.compare import across, compare
from verifier.nightly.history import History
from verifier.nightly.lock import exclusive
from verifier.nightly.outputs import Bundle as Outputs
from verifier.nightly.outputs import alert, gather, write_all
from verifier.nightly.plan import Cell, Column, Wish, plan
from verifier.nightly.rows import cells_of
from verifier.nightly.run import Progress, run_matrix
from verifier.nightly.settings import DEFAULT_FILE, Settings, load_settings
from verifier.nightly.text import detail_text, is_of, run_text, runs_text, trend_text
from verifier.nightly.toolchains import prepare
from verifier.rules import select_rules

HISTORY = "history.sqlite"
CELLS = "cells"
OUT = Path("nightly")
_FOLDER = click.Path(file_okay=False, path_type=Path)


class NightlyGroup(click.Group):
    """Without the name of a subcommand it runs the matrix."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["run"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=NightlyGroup)
def nightly() -> None:
    """Compile and check the whole matrix of nightly.toml and compare it with the last good run.

    `verifier nightly [OPTIONS]` is short for `verifier nightly run [OPTIONS]`. Exit codes: 0 no regression, 1 a
    regression, 2 something could not be checked.
    """


_CONFIG = click.option(
    "--config", "config", type=click.Path(dir_okay=False, path_type=Path), help=f"Settings, else {DEFAULT_FILE}."
)
_OUT = click.option("--out", type=_FOLDER, default=OUT, show_default=True, help="Folder of history, page and cells.")


@nightly.command(name="run")
@_CONFIG
@_OUT
@click.option("--kernel", multiple=True, metavar="NAME", help="Only this kernel, with its configurations. Repeatable.")
@click.option("--arch", multiple=True, type=ARCH, help="Only ARCH. Repeatable.")
@click.option("--toolchain", multiple=True, metavar="NAME", help="Only this column of the matrix. Repeatable.")
@click.option(
    "--defect", metavar="NAME", help="Build kernels that have this seeded defect with it: a test of the alarm."
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Cells at a time, else what the settings say.")
@click.option("--alert-command", metavar="CMD", help="Shell command that reads a JSON summary when the exit is not 0.")
@click.pass_obj
def run(
    config_file: Path | None,
    config: Path | None,
    out: Path,
    kernel: tuple[str, ...],
    arch: tuple[str, ...],
    toolchain: tuple[str, ...],
    defect: str | None,
    jobs: int | None,
    alert_command: str | None,
) -> int:
    """Run the matrix. Exit codes: 0 no regression, 1 a regression, 2 something could not be checked.

    A run that was cut off goes on where it stopped. Writes history.sqlite, index.html, findings.sarif, junit.xml,
    report.txt, summary.md and summary.json into --out.
    """
    settings = _settings(config, config_file, jobs)
    with exclusive(out), History(out / HISTORY) as history:
        columns = _columns(settings, toolchain)
        cells = _cells(columns, settings, Wish(kernels=kernel, archs=arch, defect=defect), out)
        store = CellStore(out / CELLS)
        described = {column.ready.name: column.ready.description for column in columns}
        described |= {c.label.toolchain: {"ptxas": c.spec.ptxas.version} for c in cells if c.loose and c.spec.ptxas}
        started, resumed = run_matrix(history, store, cells, described, settings, _tell)
        if resumed:
            output.note(f"run {started.id} was cut off and is taken up")
        outputs = _finish(history, started.id, store, settings)
        rules = select_rules(settings.select, settings.ignore)
        facts = {name: _facts(description) for name, description in described.items()}
        summary = write_all(out, outputs, history, rules, settings, facts)
        if outputs.exit_code and alert_command and (problem := alert(alert_command, summary)):
            output.note(f"note: {problem}")
        history.finish(started.id, outputs.exit_code)
        store.prune(history.keys(settings.keep))
    pages = (output.display(out / "index.html"), output.display(out / "findings.sarif"))
    output.emit(output.printable(run_text(summary, outputs.outcome, pages)))
    return outputs.exit_code


@nightly.command(name="show")
@_CONFIG
@_OUT
@click.argument("number", required=False, type=int, metavar="[RUN]")
@click.option("--kernel", multiple=True, metavar="NAME", help="Toolchains side by side only for this kernel.")
@click.pass_obj
def show(config_file: Path | None, config: Path | None, out: Path, number: int | None, kernel: tuple[str, ...]) -> None:
    """List all runs, or tell what one RUN found and changed."""
    settings = _settings(config, config_file, None)
    with History(out / HISTORY, create=False) as history:
        if number is None:
            output.emit(runs_text(history))
            return
        found = history.run(number)
        rows = cells_of(history, number)
        for name in kernel:
            if not any(is_of(build.kernel, name) for cell in rows.values() for build in (cell.label, *cell.kernels)):
                raise ConfigError(f"run {number} has nothing of kernel {name!r}", where=output.display(out / HISTORY))
        columns = [row for row in across(rows) if not kernel or any(is_of(row.kernel, name) for name in kernel)]
        comparison = compare(history, number, settings, CellStore(out / CELLS))
        output.emit(output.printable(detail_text(found, rows, comparison, columns)))


@nightly.command(name="trend")
@_OUT
@click.argument("kernel")
@click.option("--arch", multiple=True, type=ARCH, help="Only ARCH. Repeatable.")
@click.option("--toolchain", multiple=True, metavar="NAME", help="Only this column of the matrix. Repeatable.")
def trend(out: Path, kernel: str, arch: tuple[str, ...], toolchain: tuple[str, ...]) -> None:
    """Print verdicts, code identity and metrics of KERNEL over time."""
    with History(out / HISTORY, create=False) as history:
        text = trend_text(history, kernel, arch, toolchain)
    if not text:
        raise ConfigError(f"the history has nothing of kernel {kernel!r}", where=output.display(out / HISTORY))
    output.emit(output.printable(text))


@nightly.command(name="accept", short_help="Compare later runs with RUN although it was not good.")
@_OUT
@click.argument("number", type=int, metavar="RUN")
@click.argument("reason")
def accept(out: Path, number: int, reason: str) -> None:
    """Compare later runs with RUN although it was not good, for a REASON that the history keeps."""
    with History(out / HISTORY, create=False) as history:
        history.accept(number, reason)


def _settings(config: Path | None, config_file: Path | None, jobs: int | None) -> Settings:
    import msgspec

    default = Path(DEFAULT_FILE)
    settings = load_settings(config or default) if config or default.is_file() else Settings()
    ignores = (*settings.ignores, *(load_ignores(config_file) if config_file else ()))
    return msgspec.structs.replace(settings, ignores=ignores, jobs=jobs or settings.jobs)


def _columns(settings: Settings, names: Sequence[str]) -> list[Column]:
    unknown = [name for name in names if name not in settings.toolchains]
    if unknown:
        raise ConfigError(f"unknown toolchain {unknown[0]!r}", do=f"known: {', '.join(settings.toolchains)}")
    root = default_store().root
    return [
        Column(wanted=wanted, ready=prepare(name, wanted, root, output.note))
        for name, wanted in settings.toolchains.items()
        if not names or name in names
    ]


def _cells(columns: Sequence[Column], settings: Settings, wish: Wish, out: Path) -> list[Cell]:
    bundles, errors = discover([Path(path) for path in settings.artifacts])
    if errors:
        raise errors[0]
    files = [_subject(bundle) for bundle in bundles]
    try:
        cases = registry.load_registry().CASES
    except ConfigError:
        if not files:
            raise
        cases = ()  # a project that has nothing but compiled files
    return plan(cases, files, columns, settings, wish, (out / CELLS).resolve())


def _subject(bundle: Bundle) -> FileSubject:
    kinds = {
        "ptx": bundle.ptx,
        "cubin": bundle.cubin,
        "listing": bundle.listing,
        "cuda": bundle.cuda,
        "meta": bundle.meta,
    }
    files = {kind: str(path.resolve()) for kind, path in kinds.items() if path is not None}
    return FileSubject(source=bundle.source, files=files)


def _finish(history: History, number: int, store: CellStore, settings: Settings) -> Outputs:
    rows = cells_of(history, number)
    comparison = compare(history, number, settings, store)
    return gather(history.run(number), rows, store, comparison, across(rows), tools())


def _facts(description: Mapping[str, str]) -> str:
    """A toolchain in a few words, for the page."""
    return f"DSL {description.get('dsl', 'none')}, ptxas {description.get('ptxas', '')}"


def _tell(progress: Progress) -> None:
    left = "" if progress.left_seconds is None else f", about {_duration(progress.left_seconds)} left"
    rest = progress.total - progress.done
    state = f"{progress.running} running, {rest - progress.running} waiting{left}" if rest else "all done"
    output.note(f"[{progress.done}/{progress.total}] {progress.what}; {state}")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
