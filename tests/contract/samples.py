"""What README and docs show of a command: `python -m tests.contract.samples` runs each and writes its output again.

A sample is an indented block whose first line is `$ verifier ...`. Where its last line is `...`, it ends with the first
paragraph of the output; else it is the whole output.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAPERS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
INDENT = "    "
ELLIPSIS = "..."
_BLOCK = re.compile(rf"(?m)^{INDENT}\$ (verifier .*)\n((?:{INDENT}.*\n|\n(?={INDENT}))*)")

# `verifier diff main..` shows this edit of kernels/common.py, which docs/diff.md names.
EDITED = Path("kernels/common.py")
BEFORE = "    _retry(bar, parity, ACQUIRE, CTA, 0, loc, ip)\n"
AFTER = "    _retry(bar, parity, RELAXED, CLUSTER, 0, loc, ip)\n    nvvm.fence_sync_restrict(ACQUIRE, loc=loc, ip=ip)\n"


class Sample(NamedTuple):
    """A command, and what a paper says that it prints."""

    paper: Path
    command: str
    lines: tuple[str, ...]

    @property
    def is_cut(self) -> bool:
        return self.lines[-1:] == (ELLIPSIS,)


def samples() -> Iterator[Sample]:
    """Every sample of every paper."""
    for paper in PAPERS:
        for command, body in _BLOCK.findall(paper.read_text()):
            yield Sample(paper, command, tuple(line.removeprefix(INDENT) for line in body.splitlines()))


def printed(sample: Sample, tree: Path) -> tuple[str, ...]:
    """What the command prints, as far as the sample goes; `tree` is where there is something to compare."""
    program = [sys.executable, "-m", *shlex.split(sample.command)]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program,
        cwd=tree if " diff " in sample.command else ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{sample.command}: exit {done.returncode}\n{done.stderr}")
    lines = tuple(done.stdout.rstrip("\n").split("\n"))
    return (*lines[: lines.index("")], ELLIPSIS) if sample.is_cut else lines


def edited_tree(folder: Path) -> Path:
    """A repository with these files as its branch main, and the edit in its working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not one that is about to be deleted
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "Base"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    text = (folder / EDITED).read_text()
    if text.count(BEFORE) != 1:
        raise RuntimeError(f"{EDITED} has changed: name the lines of `wait` in this file")
    (folder / EDITED).write_text(text.replace(BEFORE, AFTER))
    return folder


def written_again(paper: Path, tree: Path) -> str:
    """The paper with its samples as they are today."""

    def replace(block: re.Match[str]) -> str:
        sample = Sample(paper, block[1], tuple(line.removeprefix(INDENT) for line in block[2].splitlines()))
        return "".join(f"{INDENT}{line}".rstrip() + "\n" for line in (f"$ {sample.command}", *printed(sample, tree)))

    return _BLOCK.sub(replace, paper.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        repository = edited_tree(Path(scratch))
        for page in PAPERS:
            page.write_text(written_again(page, repository))
