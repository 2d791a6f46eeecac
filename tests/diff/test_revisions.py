"""`verifier diff BASE..HEAD` in a scratch repository with one kernel, as a newcomer would use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verifier.cli.revisions import parse_range

ROOT = Path(__file__).resolve().parents[2]

KERNEL = '''\
"""Reverses each block of 128 floats through shared memory and scales it."""

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    staged = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    staged[thread] = x[block * 128 + thread]
    cute.arch.barrier()
    y[block * 128 + thread] = staged[127 - thread] * factor


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream):
    scale_kernel(x, y, factor).launch(grid=(cute.size(x) // 128, 1, 1), block=(128, 1, 1), stream=stream)


def build(config, defect):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return scale, (x, y, cutlass.Float32(2.0), make_fake_stream())
'''
REGISTRY = """\
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class KernelCase:
    name: str
    module: str
    config: dict = field(default_factory=dict)
    archs: tuple = ("sm_90a",)
    defects: tuple = ()
    source: Path = Path(__file__)

    def check_defect(self, name):
        pass


CASES = (KernelCase("scale", "kernels.scale"),)


def case(name):
    return next(known for known in CASES if known.name == name)
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "__init__.py").touch()
    (folder / "kernels" / "registry.py").write_text(REGISTRY)
    (folder / "kernels" / "scale.py").write_text(KERNEL)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one kernel")
    return folder


def edit(repository: Path, old: str, new: str) -> None:
    file = repository / "kernels" / "scale.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def diff(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VERIFIER_CACHE_DIR": str(repository.parent / "store"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "verifier", "diff", *arguments]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.toolchain
def test_an_edit_is_found_and_an_untouched_kernel_is_not(repository: Path) -> None:
    edit(repository, "    cute.arch.barrier()\n", "    cute.arch.barrier()\n    cute.arch.barrier()\n")
    edited = diff(repository, "main..", "--format", "json")
    assert edited.returncode == 1, edited.stderr
    report = json.loads(edited.stdout)
    assert report["summary"]["sentence"] == "the generated code differs only by `bar.sync` added"
    (claim,) = (claim for claim in report["kernels"][0]["claims"] if claim["level"] == "ptx")
    assert [place["where"] for place in claim["places"]] == ["kernels/scale.py:15"]
    git(repository, "commit", "--quiet", "--all", "--message", "another barrier")
    again = diff(repository, "main~1..main", "scale")
    assert again.returncode == 1, again.stderr
    assert "scale sm_90a: from the store" in again.stderr
    assert "PTX skeleton 1 -> 2 ops (+1 bar.sync)" in again.stdout
    unchanged = diff(repository, "HEAD..")
    assert unchanged.returncode == 0, unchanged.stderr
    assert unchanged.stdout.endswith("the generated code is the same\n")


@pytest.mark.toolchain
def test_the_worktree_goes_away_also_when_a_kernel_does_not_compile(repository: Path) -> None:
    edit(repository, "staged[127 - thread]", "staged[127 - thread].no_such_thing()")
    git(repository, "commit", "--quiet", "--all", "--message", "broken")
    ran = diff(repository, "main..")
    assert ran.returncode == 2
    assert "no_such_thing" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_three_dots_mean_the_merge_base(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "feature")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "feature")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "main goes on")
    monkeypatch.chdir(repository)
    assert parse_range("main...feature") == (fork, "feature")
    assert parse_range("main..feature") == ("main", "feature")
    assert parse_range("main..") == ("main", "")
    assert parse_range("..") == ("HEAD", "")


def test_an_unknown_revision_is_refused(repository: Path) -> None:
    ran = diff(repository, "nowhere..main")
    assert ran.returncode == 2
    assert "no such revision: nowhere" in ran.stderr


def test_outside_a_repository_files_are_asked_for(tmp_path: Path) -> None:
    ran = diff(tmp_path, "main..HEAD")
    assert ran.returncode == 2
    assert "not a git repository" in ran.stderr
    assert "BEFORE and AFTER" in ran.stderr
