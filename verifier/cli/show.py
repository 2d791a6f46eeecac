"""`verifier show`: what the verifier sees in a kernel, without a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from verifier.analyses.facts import KernelFacts
from verifier.cli import output
from verifier.cli.loading import load_kernels
from verifier.cli.options import ARCH, launch_options
from verifier.cli.parts import LoadOptions
from verifier.cli.protocol import has_protocol, protocol_lines
from verifier.cli.targets import bundles_of
from verifier.errors import ConfigError, VerifierError
from verifier.launch import Dim3
from verifier.report import handoffs, views
from verifier.report.text import short_name

VIEW_NAMES = ("streams", "cfg", "barriers", "skeleton", "protocol")


@click.command()
@click.argument("view", type=click.Choice(VIEW_NAMES))
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--arch", multiple=True, type=ARCH, help="Only kernels for ARCH; the target of CUDA C++. Repeatable.")
@click.option("--defect", metavar="NAME", help="With the name of a registered kernel: build it with this defect.")
@launch_options
@click.option("--assemble/--no-assemble", default=False, help="Make SASS from PTX that comes without.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the protocol of one kernel there.")
def show(
    view: str,
    paths: tuple[str, ...],
    arch: tuple[str, ...],
    defect: str | None,
    block: Dim3 | None,
    cluster: Dim3 | None,
    assemble: bool,
    svg: Path | None,
) -> int:
    """Print a VIEW of every kernel in PATH..., which are files and folders as for check, or registered kernels."""
    if svg is not None and view != "protocol":
        raise ConfigError(f"--svg draws a protocol, not {view}", do="verifier show protocol")
    loading = LoadOptions(archs=arch, block=block, cluster=cluster, assemble=assemble)
    bundles, errors = bundles_of(paths, arch, defect)
    kernels: list[KernelFacts] = []
    for item in load_kernels(bundles, loading):
        if isinstance(item, VerifierError):
            errors.append(item)
        else:
            kernels.append(item.kernel)
    if svg is not None and len(kernels) > 1:
        errors.append(ConfigError(f"--svg draws one kernel, and there are {len(kernels)}", where=output.display(svg)))
        svg = None
    lines: list[str] = []
    for kernel in kernels:
        lines += [*(protocol_lines(kernel, svg) if view == "protocol" else _kernel(kernel, view)), ""]
    if svg is not None and kernels and not has_protocol(kernels[0]):
        errors.append(ConfigError("nothing is drawn, because there is no protocol", where=output.display(svg)))
    for error in errors:
        output.show_error(error)
    if lines:
        output.emit(output.printable("\n".join(lines[:-1]) + "\n"))
    return 2 if errors else 0


def _kernel(kernel: KernelFacts, view: str) -> Iterator[str]:
    yield f"{short_name(kernel.name)} ({kernel.arch})  {kernel.source}"
    for model in (kernel.ptx, kernel.sass):
        if model is not None:
            yield f"  {views.heading(model)}"
            lines = handoffs.barriers(kernel, model) if view == "barriers" else views.VIEWS[view](model)
            yield from (f"    {line}" for line in lines)
            yield from (f"  note: {assumption}" for assumption in model.assumptions)
    if kernel.ptx is not None and kernel.sass is not None and view == "streams":
        yield f"  {views.agreement(kernel.ptx, kernel.sass)}"
