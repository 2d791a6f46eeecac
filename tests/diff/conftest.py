"""Running the command on edits of the split-K kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from verifier.cli import run
from verifier.rules import select_rules


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


Diff = Callable[..., Ran]


@pytest.fixture
def diff(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diff:
    """`diff(before, after, *options)` compares two texts of PTX, which are written to files first.

    Two cheap rules stand for all: what rules find is not what these tests are about.
    """
    monkeypatch.setattr("verifier.cli.diff.select_rules", lambda: select_rules(["MBR201", "TCG102"]))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("VERIFIER_CACHE_DIR", str(tmp_path / "store"))

    def call(before: str, after: str, *options: object, assemble: bool = False) -> Ran:
        files = [tmp_path / "before.ptx", tmp_path / "after.ptx"]
        for file, text in zip(files, (before, after), strict=True):
            file.write_text(text)
        capfd.readouterr()
        extra = [] if assemble else ["--no-assemble"]
        code = run(["diff", *map(str, files), *extra, *map(str, options)])
        return Ran(code, *capfd.readouterr())

    return call
