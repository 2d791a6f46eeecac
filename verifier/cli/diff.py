"""`verifier diff`: what changed in the generated code, in one true sentence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
import msgspec

from verifier.cli import output
from verifier.cli.options import ARCH, ENV, launch_options
from verifier.cli.parts import LoadOptions
from verifier.cli.revisions import compile_revisions, parse_range
from verifier.cli.sides import load_sides
from verifier.config import Policy, load_config
from verifier.diff.expect import Verdict, check_expectation, load_expectation
from verifier.diff.kernels import Options, compare_kernel
from verifier.diff.results import DiffResults
from verifier.diff.sides import Pairing, Side, pair
from verifier.errors import ConfigError, VerifierError
from verifier.findings import Profile
from verifier.launch import Dim3
from verifier.rules import select_rules

RANGE = ".."


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    loading: LoadOptions
    options: Options
    allow_toolchain_change: bool
    assemble: bool


@click.command()
@click.argument("subjects", nargs=-1, required=True, metavar="BEFORE AFTER | BASE..[HEAD] [KERNEL...]")
@click.option("--arch", multiple=True, type=ARCH, help="Only kernels for ARCH. Repeatable.")
@launch_options
@click.option("--assemble/--no-assemble", default=True, help="Make SASS from PTX that differs, to tell the cost.")
@click.option("--level", type=click.Choice(["ir"]), help="Compare the compiler's IR, too.")
@click.option("--full", is_flag=True, help="List every hunk and every rescheduled instruction.")
@click.option("--format", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report there.")
@click.option("--expect", type=click.Path(dir_okay=False, path_type=Path), help="Check the claim in this file.")
@click.option(
    "--write-expect", is_flag=False, flag_value="-", metavar="[FILE]", help="Draft a claim (- is standard output)."
)
@click.option("--allow-toolchain-change", is_flag=True, help="Compare builds of different tools or architectures.")
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    envvar=ENV + "PROFILE",
    help="Severity policy of the verdicts; else that of [tool.verifier].",
)
@click.option("--timeout", type=click.FloatRange(min=1), default=180, show_default=True, help="Seconds for a compile.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=2, show_default=True, help="Compiles at a time.")
@click.pass_obj
def diff(
    config_file: Path | None,
    subjects: tuple[str, ...],
    arch: tuple[str, ...],
    block: Dim3 | None,
    cluster: Dim3 | None,
    assemble: bool,
    level: str | None,
    full: bool,
    format: str,
    output_file: Path | None,
    expect: Path | None,
    write_expect: str | None,
    allow_toolchain_change: bool,
    profile: str | None,
    timeout: float,
    jobs: int,
) -> int:
    """Say in one sentence what changed in the generated code, prove that nothing else did, and tell the cost.

    BEFORE and AFTER are files or folders as for check. BASE..HEAD are two revisions of this repository, compiled
    with one toolchain; BASE.. compares with the files as they are now. Exit codes: 0 no difference (or the claim
    of --expect holds), 1 there is one, 2 not comparable.
    """
    settings = Settings(
        loading=LoadOptions(archs=arch, block=block, cluster=cluster, assemble=False),
        options=Options(
            rules=select_rules(), policy=_policy(profile, config_file), ir=level == "ir", instructions=full
        ),
        allow_toolchain_change=allow_toolchain_change,
        assemble=assemble,
    )
    with _refusals(subjects, output_file) if format == "json" and write_expect is None else nullcontext():
        claim = load_expectation(expect) if expect else None
        results = _compared(subjects, settings, timeout, jobs)
    if write_expect is not None:
        from verifier.diff.draft import draft_expectation

        output.emit(draft_expectation(results), None if write_expect == "-" else Path(write_expect))
        return 0
    verdict = check_expectation(claim, results, output.display(expect or "")) if claim else None
    output.emit(_render(results, verdict, format, full, output_file is not None), output_file)
    return int(not verdict.holds) if verdict else int(results.differs)


@contextmanager
def _refusals(subjects: Sequence[str], output_file: Path | None) -> Iterator[None]:
    """Leave a JSON object that says why, too, when there is nothing to report."""
    try:
        yield
    except VerifierError as error:
        from verifier.diff import json_v1

        shown = [output.display(subject) for subject in subjects]
        output.emit(json_v1.render_refusal(error, shown), output_file)
        raise


def _compared(subjects: Sequence[str], settings: Settings, timeout: float, jobs: int) -> DiffResults:
    if _is_range(subjects[0]):
        return _revisions(subjects[0], subjects[1:], settings, timeout, jobs)
    return _paths(subjects, settings)


def _is_range(subject: str) -> bool:
    """Whether it names two revisions; a path may hold `..` as well, but then as the whole name of a folder."""
    return RANGE in subject and not Path(subject).exists() and RANGE not in Path(subject).parts


def _policy(profile: str | None, config_file: Path | None) -> Policy:
    """The profile of the command line, else of the configuration file, else the default."""
    settings = load_config(config_file) if config_file and profile is None else {}
    return Policy(profile=Profile(profile or str(settings.get("profile", Profile.DEFAULT.value))))


def _paths(subjects: Sequence[str], settings: Settings) -> DiffResults:
    if len(subjects) != 2:
        raise ConfigError(
            f"two things are compared, not {len(subjects)}", do="give BEFORE and AFTER, or a range of revisions BASE.."
        )
    paths = [Path(subject) for subject in subjects]
    return _compare([load_sides(path, settings.loading) for path in paths], subjects, settings, paths)


def _revisions(subject: str, kernels: Sequence[str], settings: Settings, timeout: float, jobs: int) -> DiffResults:
    base, head = parse_range(subject)
    sides = compile_revisions((base, head), kernels, settings.loading, timeout=timeout, jobs=jobs)
    return _compare(sides, (base, head or "working tree"), settings, ())


def _compare(
    sides: Sequence[Sequence[Side]], names: Sequence[str], settings: Settings, paths: Sequence[Path]
) -> DiffResults:
    pairing = pair(*sides)
    if not pairing.pairs:
        raise ConfigError("the two have no kernel in common", where=f"{names[0]}, {names[1]}")
    if not (settings.assemble and paths and all(_is_ptx(side) for both in pairing.pairs for side in both)):
        return _results(pairing, names, settings)
    # PTX alone: its cost and its verdicts are worth an assembler run only where the code differs.
    quick = msgspec.structs.replace(settings, options=msgspec.structs.replace(settings.options, rules=()))
    results = _results(pairing, names, quick)
    if not results.hunks and not results.toolchain:
        return results
    loading = msgspec.structs.replace(settings.loading, assemble=True)
    return _results(pair(*(load_sides(path, loading) for path in paths)), names, settings)


def _is_ptx(side: Side) -> bool:
    return side.ptx is not None and side.sass is None


def _results(pairing: Pairing, names: Sequence[str], settings: Settings) -> DiffResults:
    results = DiffResults(
        before=names[0],
        after=names[1],
        kernels=tuple(compare_kernel(before, after, settings.options) for before, after in pairing.pairs),
        removed=pairing.removed,
        added=pairing.added,
    )
    if results.toolchain and not settings.allow_toolchain_change:
        raise ConfigError(
            f"not comparable, because the tools differ: {'; '.join(results.toolchain)}",
            where=f"{names[0]}, {names[1]}",
            do="compile both with one toolchain, or say --allow-toolchain-change",
        )
    return results


def _render(results: DiffResults, verdict: Verdict | None, format: str, full: bool, to_file: bool) -> str:
    if format == "json":
        from verifier.diff import json_v1

        return json_v1.render(results, verdict)
    if format == "github":
        from verifier.diff import github

        return output.printable(github.render(results, verdict))
    from verifier.diff import text

    colour = output.wants_colour(to_file)
    width = shutil.get_terminal_size((100, 24)).columns if not to_file else 100
    shown = text.render(results, verdict, width=width, full=full, paint=output.paint if colour else text.plain)
    return shown if colour else output.printable(shown)
