"""README and friends say what is true: commands exist, options exist, the schema is fresh."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from verifier.cli import COMMANDS, cli
from verifier.report import schema

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
PAPERS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def _indented(text: str, program: str) -> list[str]:
    return [line.split("#")[0].strip() for line in text.splitlines() if line.startswith(f"    {program} ")]


@pytest.mark.parametrize("paper", PAPERS)
def test_make_targets_exist(paper: str) -> None:
    named = {line.split()[1] for line in _indented((ROOT / paper).read_text(), "make")}
    assert named <= TARGETS


def test_readme_names_the_two_commands() -> None:
    assert _indented(README, "make") == ["make verify", "make test"]


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in done.stdout.splitlines()} == TARGETS
    assert {"help", "check", "test", "verify"} <= TARGETS


@pytest.mark.parametrize("line", _indented(README, "verifier"))
def test_readme_commands_parse(line: str) -> None:
    """Each example names a command and gives it arguments that it accepts; nothing is run."""
    name, *args = shlex.split(line)[1:]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, args, resilient_parsing=False)


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z-]+)", README))))
def test_readme_options_exist(option: str) -> None:
    context = click.Context(cli)
    options = {
        name
        for command in (cli.get_command(context, name) for name in COMMANDS)
        if command is not None
        for parameter in command.params
        for name in parameter.opts
    } | {"--help"}
    assert option in options


@pytest.mark.parametrize("paper", PAPERS)
def test_links_lead_somewhere(paper: str) -> None:
    text = (ROOT / paper).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_schema_is_fresh() -> None:
    assert schema.STORED.read_text() == schema.generate(), "run `make schema` and note the change in CHANGELOG.md"


def test_summaries_of_the_group_match_the_commands() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize("module", ["rich", "lark", "rustworkx", "elftools", "verifier.rules"])
def test_help_loads_nothing_heavy(module: str) -> None:
    code = f"import sys; from verifier.cli import run; run(['--help']); sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
