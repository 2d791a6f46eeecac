"""Options that several commands share, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from verifier.config import Bar, Policy, arch_family
from verifier.findings import Profile, Severity
from verifier.launch import Dim3

F = TypeVar("F", bound=Callable[..., object])
Decorator = Callable[[F], F]

ENV = "VERIFIER_"


class DimType(click.ParamType[Dim3]):
    """`192`, `16,12` or `16x12x1`: a size in up to three dimensions, the rest 1."""

    name = "X[,Y[,Z]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Dim3:
        if isinstance(value, tuple):
            return cast(Dim3, value)
        parts = str(value).lower().replace("x", ",").split(",")
        if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a size like 192 or 16,12,1", param, ctx)
        x, y, z = (int(part) for part in [*parts, "1", "1"][:3])
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


DIM = DimType()
ARCH = ArchType()


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How kernels are checked and reported, whatever command gathered them."""

    policy: Policy
    bar: Bar
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    format: str
    output_file: Path | None
    exit_zero: bool


def run_options(**values: Any) -> RunOptions:
    """The shared options of a command as one value."""
    return RunOptions(
        policy=Policy(profile=Profile(values["profile"])),
        bar=Bar(fail_on=Severity(values["fail_on"]), strict=values["strict"]),
        select=_flat(values["select"]),
        ignore=_flat(values["ignore"]),
        format=values["format"],
        output_file=values["output_file"],
        exit_zero=values["exit_zero"],
    )


def _flat(groups: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(item for group in groups for item in group)


def launch_options(function: F) -> F:
    """`--block` and `--cluster`: what a file does not say about its launch."""
    return _apply(
        function,
        click.option("--block", type=DIM, help="Threads of a CTA, where the file does not say."),
        click.option("--cluster", type=DIM, help="CTAs of a cluster, where the file does not say."),
    )


def report_options(function: F) -> F:
    """Everything that `RunOptions` holds."""
    profiles = click.Choice([profile.value for profile in Profile])
    severities = click.Choice([severity.value for severity in Severity])
    codes = ListType()
    return _apply(
        function,
        click.option(
            "--profile", type=profiles, default="default", show_default=True, envvar=ENV + "PROFILE",
            help="Severity policy; isa asks for the canonical chains to the letter.",
        ),
        click.option("--strict", is_flag=True, envvar=ENV + "STRICT", help="Exit 1 also when anything is unknown."),
        click.option("--select", type=codes, multiple=True, help="Rules to run: codes, prefixes, names."),
        click.option("--ignore", type=codes, multiple=True, help="Rules not to run."),
        click.option(
            "--fail-on", type=severities, default="error", show_default=True, envvar=ENV + "FAIL_ON",
            help="The least severity of a violation that makes the exit code 1.",
        ),
        click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True),
        click.option(
            "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report there."
        ),
        click.option("--exit-zero", is_flag=True, help="Exit 0 whatever is found; 2 still means could not check."),
    )  # fmt: skip


def _apply(function: F, *decorators: Decorator[F]) -> F:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
