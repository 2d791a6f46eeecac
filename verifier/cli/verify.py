"""`verifier verify`: compile the registered kernels, on this machine and without a GPU, and check what comes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

from verifier.cli import output, registry, runner
from verifier.cli.defects import check_defects
from verifier.cli.inputs import Bundle
from verifier.cli.options import ARCH, report_options, run_options
from verifier.cli.parts import LoadOptions
from verifier.errors import ConfigError, VerifierError
from verifier.findings import Severity


@click.command()
@click.argument("kernels", nargs=-1, metavar="[KERNEL...]")
@click.option("--arch", multiple=True, type=ARCH, help="Compile for ARCH. Repeatable; else for all of the kernel.")
@click.option("--defect", metavar="NAME", help="Build the kernels with this seeded defect; only those that have it.")
@click.option("--defects", "all_defects", is_flag=True, help="Build every seeded defect: each must be found, alone.")
@click.option("--list", "list_only", is_flag=True, help="List kernels, architectures and defects, and stop.")
@click.option("--cache/--no-cache", default=True, help="Take unchanged kernels from the artifact store.")
@click.option("--timeout", type=click.FloatRange(min=1), default=180, show_default=True, help="Seconds for a compile.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, envvar="VERIFIER_JOBS", help="Compiles at a time.")
@report_options
@click.pass_context
def verify(
    context: click.Context,
    /,
    kernels: tuple[str, ...],
    arch: tuple[str, ...],
    defect: str | None,
    all_defects: bool,
    list_only: bool,
    cache: bool,
    timeout: float,
    jobs: int,
    **shared: Any,
) -> int:
    """Compile kernels of kernels/registry.py (all, or each KERNEL named) and check them.

    KERNEL may also be a Python file: every kernel that is made of it.

    Exit codes: 0 no violation of --fail-on, 1 there is one, 2 could not check. With --defect a warning is enough for
    1, unless --fail-on says otherwise: the defect was put there.
    """
    if list_only or all_defects:
        _refuse_reports(context, "--list" if list_only else "--defects")
    known = registry.load_registry()
    if list_only:
        output.emit(registry.describe(known))
        return 0
    if all_defects:
        chosen = registry.choose(known, kernels, None)
        return check_defects(chosen, arch, jobs=jobs, timeout=timeout, cached=cache)
    if defect is not None and context.get_parameter_source("fail_on") is ParameterSource.DEFAULT:
        shared["fail_on"] = Severity.WARNING.value
    chosen = registry.choose(known, kernels, defect)
    if not chosen:
        output.note("no kernel is made of these files")
        return 0
    wanted = registry.requests(chosen, arch, defect)
    run = runner.Run(run_options(**shared), LoadOptions())
    _check(run, registry.compile_all(wanted, jobs=jobs, timeout=timeout, cached=cache), cache)
    whole = not (kernels or arch or defect or run.options.select or run.options.ignore)
    return run.report(complete=whole)


def _refuse_reports(context: click.Context, option: str) -> None:
    """What `option` prints is no report: there is no other form of it, and no file for it."""
    for name, wish in (("format", "--format"), ("output_file", "--output-file"), ("reports", "--report")):
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and context.params[name] != "text":
            raise ConfigError(f"{option} prints text and makes no report", do=f"leave out {wish}, or {option}")


def _check(run: runner.Run, builds: Iterable[Bundle | VerifierError], cache: bool) -> None:
    """Check what was compiled; with `cache` only what was not checked before."""
    from verifier.cli.verdicts import Verdicts
    from verifier.compile.store import default_store

    verdicts = Verdicts(default_store().root, run.rules, run.options.policy) if cache else None
    for build in builds:
        if isinstance(build, VerifierError):
            run.errors.append(build)
        elif verdicts is None:
            run.check([build])
        else:
            run.check_build(build, verdicts)
    if verdicts is not None:
        verdicts.prune()
