"""`verifier check`: files that somebody else compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verifier.cli import runner
from verifier.cli.inputs import discover
from verifier.cli.options import ARCH, launch_options, report_options, run_options
from verifier.cli.parts import LoadOptions
from verifier.launch import Dim3


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
    """Check PTX (.ptx), cubins (.cubin), CUDA C++ (.cu), nvdisasm listings (.sass), artifact folders, fat binaries.

    A PATH may also be a library or an executable with device code, or a folder that holds any of these. PTX and cubin
    of one kernel are joined by its name. Exit codes: 0 no violation of --fail-on, 1 there is one, 2 could not check.
    """
    loading = LoadOptions(archs=arch, block=block, cluster=cluster, assemble=assemble)
    run = runner.Run(run_options(**shared, inputs=paths), loading)
    bundles, run.errors = discover(paths)
    run.check(bundles)
    return run.report()
