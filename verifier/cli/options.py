"""Options that several commands share, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from verifier.cli.formats import FORMATS
from verifier.cli.shapes import block_problem, cluster_problem
from verifier.config import Bar, Ignore, Policy, arch_family, load_ignores
from verifier.errors import ConfigError
from verifier.findings import Profile, Severity
from verifier.launch import Dim3

F = TypeVar("F", bound=Callable[..., object])
Decorator = Callable[[F], F]

ENV = "VERIFIER_"


class DimType(click.ParamType[Dim3]):
    """`192`, `16,12` or `16x12x1`: a size in up to three dimensions, the rest 1."""

    name = "X[,Y[,Z]]"

    def __init__(self, problem: Callable[[Dim3], str]) -> None:
        self._problem = problem

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Dim3:
        if isinstance(value, tuple):
            return cast(Dim3, value)
        parts = str(value).lower().replace("x", ",").split(",")
        if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a size like 192 or 16,12,1", param, ctx)
        x, y, z = (int(part) for part in [*parts, "1", "1"][:3])
        if problem := self._problem((x, y, z)):
            self.fail(f"{value!r} is no launch: {problem}", param, ctx)
        return (x, y, z)


class ArchType(click.ParamType[str]):
    """The name of an architecture, `sm_100a`."""

    name = "ARCH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        arch_family(str(value))
        return str(value)


class ListType(click.ParamType[tuple[str, ...]]):
    """Names separated by commas."""

    name = "CODES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        items = value if isinstance(value, (list, tuple)) else str(value).split(",")
        return tuple(item.strip() for item in items if item.strip())


class ReportType(click.ParamType[tuple[str, Path]]):
    """A format and the file that gets the report in it."""

    name = "FORMAT=FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        if isinstance(value, tuple):
            return cast(tuple[str, Path], value)
        format, _, file = str(value).partition("=")
        if format not in FORMATS or not file:
            self.fail(f"{value!r} is not like sarif=findings.sarif; formats: {', '.join(FORMATS)}", param, ctx)
        return format, Path(file)


BLOCK = DimType(block_problem)
CLUSTER = DimType(cluster_problem)
ARCH = ArchType()
REPORT = ReportType()
FILE = click.Path(dir_okay=False, path_type=Path)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How kernels are checked and reported, whatever command gathered them."""

    policy: Policy
    bar: Bar
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    format: str
    output_file: Path | None
    exit_zero: bool
    reports: tuple[tuple[str, Path], ...] = ()
    baseline: Path | None = None
    ignores: tuple[Ignore, ...] = ()


def run_options(**values: Any) -> RunOptions:
    """The shared options of a command as one value; waivers come from the settings file of this command line."""
    config_file = click.get_current_context().find_object(Path)
    _one_writer_each(values)
    return RunOptions(
        policy=Policy(profile=Profile(values["profile"])),
        bar=Bar(fail_on=Severity(values.get("fail_on", "error")), strict=values.get("strict", False)),
        select=_flat(values["select"]),
        ignore=_flat(values["ignore"]),
        format=values.get("format", "text"),
        output_file=values.get("output_file"),
        exit_zero=values.get("exit_zero", False),
        reports=values.get("reports", ()),
        baseline=values.get("baseline"),
        ignores=load_ignores(config_file) if config_file else (),
    )


def _one_writer_each(values: Mapping[str, Any]) -> None:
    """Refuse two reports in one file, and a report in the place of an input or of the baseline."""
    options = [("--output-file", values.get("output_file")), ("--baseline", values.get("baseline"))]
    options += [(f"--report {format}", file) for format, file in values.get("reports", ())]
    users = {Path(path).resolve(): "the input" for path in values.get("inputs", ())}
    for option, given in options:
        file = Path(given).resolve() if given is not None else None
        if file is None or (file.exists() and not file.is_file()):
            continue  # what is written to a device is gone anyway
        if file in users:
            raise ConfigError(
                f"{users[file]} and {option} name the same file", where=str(given), do="give each its own"
            )
        users[file] = option


def settings_options(settings: Mapping[str, Any], ignores: tuple[Ignore, ...]) -> RunOptions:
    """Options that come from a settings file or a caller, not from a command line. Raises `ConfigError`."""
    try:
        profile = Profile(settings.get("profile", "default"))
        fail_on = Severity(settings.get("fail_on", "error"))
    except ValueError as error:
        raise ConfigError(str(error), do="`verifier check --help` lists the choices") from error
    baseline = settings.get("baseline")
    return RunOptions(
        policy=Policy(profile=profile),
        bar=Bar(fail_on=fail_on, strict=bool(settings.get("strict", False))),
        select=tuple(settings.get("select", ())),
        ignore=tuple(settings.get("ignore", ())),
        format="text",
        output_file=None,
        exit_zero=False,
        baseline=Path(baseline) if baseline else None,
        ignores=ignores,
    )


def _flat(groups: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(item for group in groups for item in group)


def launch_options(function: F) -> F:
    """`--block` and `--cluster`: what a file does not say about its launch."""
    return _apply(
        function,
        click.option("--block", type=BLOCK, help="Threads of a CTA, where the file does not say."),
        click.option("--cluster", type=CLUSTER, help="CTAs of a cluster, where the file does not say."),
    )


def check_options(function: F) -> F:
    """Which rules run, by which policy."""
    profiles = click.Choice([profile.value for profile in Profile])
    codes = ListType()
    return _apply(
        function,
        click.option(
            "--profile", type=profiles, default="default", show_default=True, envvar=ENV + "PROFILE",
            help="Severity policy; isa asks for the canonical chains to the letter.",
        ),
        click.option("--select", type=codes, multiple=True, help="Rules to run: codes, prefixes, names."),
        click.option("--ignore", type=codes, multiple=True, help="Rules not to run."),
    )  # fmt: skip


def report_options(function: F) -> F:
    """Everything that `RunOptions` holds."""
    severities = click.Choice([severity.value for severity in Severity])
    return _apply(
        function,
        check_options,
        click.option("--strict", is_flag=True, envvar=ENV + "STRICT", help="Exit 1 also when anything is unknown."),
        click.option(
            "--fail-on", type=severities, default="error", show_default=True, envvar=ENV + "FAIL_ON",
            help="The least severity of a violation that makes the exit code 1.",
        ),
        click.option(
            "--baseline", type=FILE, envvar=ENV + "BASELINE",
            help="Findings in this file do not fail the run; `verifier baseline` writes it.",
        ),
        click.option("--format", type=click.Choice(FORMATS), default="text", show_default=True),
        click.option("--output-file", type=FILE, help="Write the report there."),
        click.option(
            "--report", "reports", type=REPORT, multiple=True,
            help="Write one more report: sarif=findings.sarif, for example. Repeatable.",
        ),
        click.option("--exit-zero", is_flag=True, help="Exit 0 whatever is found; 2 still means could not check."),
    )  # fmt: skip


def _apply(function: F, *decorators: Decorator[F]) -> F:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
