"""The documentation is fresh, short, and its commands and links are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from verifier.cli import cli
from verifier.rules import all_rules
from verifier.rules.reference import page

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHORT = ("getting_started.md", "nightly.md", "reading_a_finding.md", "verdicts.md", "writing_a_rule.md")
MAX_LINES = 120  # of what a person reads from top to bottom

by_paper = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)


def test_rules_are_fresh() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == page(all_rules()), "run `make docs`"


def test_every_rule_has_a_link_and_a_place() -> None:
    text = page(all_rules())
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("### ")
    }
    links = set(re.findall(r"\(#([^)]+)\)", text))
    assert len(links) == len(all_rules())
    assert links <= anchors


@by_paper
def test_links_lead_somewhere(paper: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", paper.read_text()) if "://" not in link]
    assert [link for link in links if not (paper.parent / link).exists()] == []


@pytest.mark.parametrize("name", SHORT)
def test_papers_are_short(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("name", [*SHORT, "diff.md", "rules.md"])
def test_the_readme_leads_to_every_paper(name: str) -> None:
    assert f"(docs/{name})" in (ROOT / "README.md").read_text()


def _commands(paper: Path, program: str) -> list[str]:
    """The lines that call `program` in indented and fenced blocks, without their comments."""
    found = re.findall(rf"(?m)^(?: {{4,}}|[ -]*run: )(?:\$ )?({program} .*)$", paper.read_text())
    return [line.split(" #")[0].strip() for line in found]


def test_make_has_every_target() -> None:
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    named = {line.split()[1] for paper in PAPERS for line in _commands(paper, "make")}
    named |= {word for paper in PAPERS for word in re.findall(r"`make ([a-z]+)", paper.read_text())}
    assert {"verify", "test", "diff", "nightly"} <= named <= targets


@pytest.mark.parametrize("line", sorted({line for paper in PAPERS for line in _commands(paper, "verifier")}))
def test_commands_parse(line: str) -> None:
    """Each example names a command and gives it arguments that it accepts; nothing is run."""
    context = click.Context(cli)
    name, *words = shlex.split(line)[1:]
    command = cli.get_command(context, name)
    if isinstance(command, click.Group):
        name = words.pop(0) if words[0] in command.commands else "run"
        command = command.get_command(context, name)
    assert command is not None
    command.make_context(name, words, resilient_parsing=False)
