"""`verifier check`: files that somebody else compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verifier.cli import runner
from verifier.cli.inputs import discover
from verifier.cli.loading import LoadOptions
from verifier.cli.options import ARCH, launch_options, report_options, run_options
from verifier.launch import Dim3
from verifier.rules import select_rules


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--arch", multiple=True, type=ARCH, help="Only kernels for ARCH; the target of CUDA C++. Repeatable.")
@launch_options
@click.option("--assemble/--no-assemble", default=True, help="Make SASS from PTX that comes without, for evidence.")
@report_options
def check(
    paths: tuple[Path, ...],
    arch: tuple[str, ...],
    block: Dim3 | None,
    cluster: Dim3 | None,
    assemble: bool,
    **shared: Any,
) -> int:
    """Check PTX (.ptx), cubins (.cubin), CUDA C++ (.cu), nvdisasm listings (.sass), artifact folders.

    A PATH may also be a folder that holds any of these. PTX and cubin of one kernel are joined by its name.
    """
    options = run_options(**shared)
    rules = select_rules(options.select, options.ignore)
    bundles, errors = discover(paths)
    loading = LoadOptions(archs=arch, block=block, cluster=cluster, assemble=assemble)
    outcomes, more = runner.check_bundles(bundles, rules, options, loading)
    return runner.report(outcomes, [*errors, *more], options)
