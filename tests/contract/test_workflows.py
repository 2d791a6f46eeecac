"""Workflow files and hooks: linted by tools that are not ours, and their commands are ones that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from verifier.cli import cli

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent


def lint(*files: Path) -> tuple[int, int]:
    """Exit codes of the schema check and of zizmor, as `make check` calls them."""
    schema = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files]
    audit = [BIN / "zizmor", "--offline", "--quiet", "--persona=pedantic", *files]
    first, second = (subprocess.run([str(word) for word in c], capture_output=True).returncode for c in (schema, audit))
    return first, second


def test_the_linters_find_nothing() -> None:
    assert len(WORKFLOWS) >= 2
    assert lint(*WORKFLOWS) == (0, 0)


def test_the_linters_would_find_something(tmp_path: Path) -> None:
    good = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    wrong_key, risky = tmp_path / "wrong.yml", tmp_path / "risky.yml"
    wrong_key.write_text(good.replace("runs-on:", "run-on:"))
    risky.write_text(good.replace("permissions: {}", "permissions: write-all"))
    assert lint(wrong_key)[0] != 0
    assert lint(risky)[1] != 0


def read(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text())


def commands() -> list[str]:
    scripts = [
        step["run"]
        for file in WORKFLOWS
        for job in read(file)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    scripts += [hook["entry"] for hook in read(ROOT / ".pre-commit-hooks.yaml")]
    found = [line for script in scripts for line in script.splitlines() if "verifier " in line]
    return [re.split(r" >> | \|\| ", line.strip())[0] for line in found]


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line: str) -> None:
    program, name, *words = shlex.split(line)
    assert program.endswith("verifier")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, [*words, *(["x.ptx"] if name == "check" else [])])


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {target for file in WORKFLOWS for target in re.findall(r"\bmake ([a-z]+)", file.read_text())}
    assert used
    assert used <= targets


def test_hooks_say_what_pre_commit_needs() -> None:
    hooks = read(ROOT / ".pre-commit-hooks.yaml")
    assert {hook["id"] for hook in hooks} == {"verifier", "verifier-check"}
    for hook in hooks:
        assert {"id", "name", "entry", "language", "files"} <= set(hook)
        re.compile(hook["files"])
    assert re.search(hooks[0]["files"], "kernels/gemm.py")
    assert not re.search(hooks[0]["files"], "tests/kernels/test_gemm.py")
