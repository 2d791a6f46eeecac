"""Two revisions of this repository -> the builds of their registered kernels, made by the tools installed here.

A revision is checked out in a git worktree whose path depends on nothing but its commit, so that the artifact store
knows its kernels again. Each side is compiled by a child process, because the registries of both are modules of one
name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import verifier
from verifier.cli.inputs import Bundle, discover
from verifier.cli.output import display, note
from verifier.cli.parts import LoadOptions
from verifier.cli.sides import sides_of
from verifier.compile.store import default_store
from verifier.diff.sides import Side
from verifier.errors import CompileError, ConfigError


def parse_range(text: str) -> tuple[str, str]:
    """(base, head) of `BASE..HEAD`; of `BASE...HEAD` the base is where the two branched, as in git. Head "" is the
    working tree."""
    base, dots, head = text.partition("...")
    if not dots:
        base, _, head = text.partition("..")
        return base or "HEAD", head
    return _git(Path.cwd(), "merge-base", "--end-of-options", base or "HEAD", head or "HEAD"), head


def compile_revisions(
    revisions: tuple[str, str], kernels: Sequence[str], options: LoadOptions, *, timeout: float, jobs: int
) -> list[list[Side]]:
    """Kernels of both revisions; "" is the working tree as it is."""
    repository = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel"))
    sides = []
    for revision in revisions:
        with _tree(repository, revision) as root:
            note(f"compiling {revision or 'the working tree'} in {display(root)}")
            bundles = _compile(root, kernels, options.archs, timeout, jobs)
            sides.append(sides_of(bundles, options, root=str(root)))
    return sides


@contextlib.contextmanager
def _tree(repository: Path, revision: str) -> Iterator[Path]:
    """A folder with the files of a revision, for as long as the context lasts."""
    if not revision:
        yield repository
        return
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    folder = default_store().root / "worktrees" / commit
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one user of a path at a time
        _remove(repository, folder)  # what a run that was killed left behind
        _git(repository, "worktree", "add", "--detach", "--force", str(folder), commit)
        try:
            yield folder
        finally:
            _remove(repository, folder)


def _remove(repository: Path, folder: Path) -> None:
    command = ["git", "-C", str(repository), "worktree", "remove", "--force", str(folder)]
    subprocess.run(command, capture_output=True, check=False)


def _git(folder: Path, *arguments: str) -> str:
    """Output of a git command. Raises ConfigError with what git says."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError("git cannot be run", where=str(folder), do="revisions need git; files do not") from error
    if done.returncode != 0:
        said = done.stderr.strip().partition("\n")[0] or f"no such revision: {arguments[-1]}"
        raise ConfigError(
            f"git: {said}",
            where=str(folder),
            do="give a range of revisions, such as main..HEAD, or files as BEFORE and AFTER",
        )
    return done.stdout.strip()


def _compile(root: Path, kernels: Sequence[str], archs: Sequence[str], timeout: float, jobs: int) -> list[Bundle]:
    """Bundles of the kernels below `root`, in the order of its registry."""
    source = Path(verifier.__file__).resolve().parents[1]
    inherited = [path for path in [os.environ.get("PYTHONPATH")] if path]
    job = {"root": str(root), "kernels": list(kernels), "archs": list(archs), "timeout": timeout, "jobs": jobs}
    done = subprocess.run(
        [sys.executable, "-m", "verifier.cli.tree"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=root.anchor,  # a place without Python files, because it comes first on the import path
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *inherited])},
    )
    if done.returncode != 0:
        raise CompileError("the kernels of this revision cannot be compared", where=display(root), do="see above")
    bundles, errors = discover([Path(folder) for folder in json.loads(done.stdout)])
    if errors:
        raise errors[0]
    return bundles
