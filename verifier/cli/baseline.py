"""`verifier baseline`: adopt the verifier on code that has findings already."""

from __future__ import annotations

from pathlib import Path

import click

from verifier.cli import output, runner
from verifier.cli.options import ARCH, FILE, check_options, launch_options, run_options
from verifier.cli.parts import LoadOptions
from verifier.cli.targets import bundles_of
from verifier.launch import Dim3
from verifier.report.baseline import baseline_of
from verifier.report.baseline import render as render_baseline

DEFAULT = Path("verifier-baseline.json")


@click.command()
@click.argument("targets", nargs=-1, metavar="[KERNEL|PATH]...")
@click.option("--arch", multiple=True, type=ARCH, help="Only kernels for ARCH; the target of CUDA C++. Repeatable.")
@launch_options
@click.option("--assemble/--no-assemble", default=True, help="Make SASS from PTX that comes without, for evidence.")
@click.option("--timeout", type=click.FloatRange(min=1), default=180, show_default=True, help="Seconds for a compile.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, envvar="VERIFIER_JOBS", help="Compiles at a time.")
@check_options
@click.option("--output-file", type=FILE, default=DEFAULT, show_default=True, help="Write the baseline there.")
def baseline(
    targets: tuple[str, ...],
    arch: tuple[str, ...],
    block: Dim3 | None,
    cluster: Dim3 | None,
    assemble: bool,
    timeout: float,
    jobs: int,
    output_file: Path,
    **shared: object,
) -> int:
    """Write down today's findings, so that `--baseline FILE` fails only on what is new.

    Checks registered kernels (all, or those named) or files and folders, as verify and check do. Exit 2 and no file
    when something could not be checked.
    """
    bundles, errors = bundles_of(targets, arch, None, jobs=jobs, timeout=timeout, all_when_empty=True)
    loading = LoadOptions(archs=arch, block=block, cluster=cluster, assemble=assemble)
    run = runner.Run(run_options(**shared), loading)
    run.errors = errors
    run.check(bundles)
    for error in run.errors:
        output.show_error(error)
    if run.errors or not run.outcomes:
        return runner.COULD_NOT_CHECK
    found = baseline_of(run.outcomes)
    output.emit(render_baseline(found), output_file)
    number = len(found.findings)
    output.note(f"{number} finding{'' if number == 1 else 's'} in {output.display(output_file)}")
    return 0
