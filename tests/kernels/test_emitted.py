"""What the DSL emits for the kernels: each defect changes only its own synchronization, on the marked Python line."""

from __future__ import annotations

import difflib
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernels import registry

pytestmark = pytest.mark.toolchain
ROOT = Path(__file__).resolve().parents[2]

COMPILE = """
import importlib, sys
from cutlass import cute
from kernels import registry
case = registry.case(sys.argv[1])
kernel, arguments = importlib.import_module(case.module).build(case.config, sys.argv[2] or None)
cute.compile(kernel, *arguments)
"""

SYNCHRONIZING = ("mbarrier.", "fence.", "tcgen05.", "barrier.", "bar.", "st.", "cp.async", "ld.shared")
WAIT_RELAXED = "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64"
WAIT_CTA = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"
WAIT_CLUSTER = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
ACQUIRE = "fence.acquire.sync_restrict::shared::cluster.cluster"
RELEASE = "mbarrier.arrive.relaxed.cluster.shared.b64"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x32.b32"
WAIT_LD = "tcgen05.wait::ld.sync.aligned"
BEFORE = "tcgen05.fence::before_thread_sync"

# Synchronizing operations that each defect takes away (-) and adds (+), in program order.
CHANGES = {
    "release-before-load": [f"-{LOAD}", f"+{LOAD}", f"+{WAIT_LD}"],  # the load moves behind the release
    "no-wait-ld": [f"-{WAIT_LD}"],
    "no-fence": [f"-{BEFORE}"],
    "cta-scope-wait": [f"-{WAIT_RELAXED}", f"-{ACQUIRE}", f"+{WAIT_CTA}"],
    "acquire-cluster-wait": [f"-{WAIT_RELAXED}", f"-{ACQUIRE}", f"+{WAIT_CLUSTER}"],
    "wait-not-retried": [],
    "missing-phase0-wait": [f"-{WAIT_CTA}"],
}
# The operation that the marked line must be the line of.
MARKED = {
    "release-before-load": RELEASE,
    "no-wait-ld": RELEASE,
    "no-fence": RELEASE,
    "cta-scope-wait": WAIT_CTA,
    "acquire-cluster-wait": WAIT_CLUSTER,
    "wait-not-retried": WAIT_RELAXED,
    "missing-phase0-wait": WAIT_CTA,
}
DEFECTS = [(case.name, defect.name) for case in registry.CASES for defect in case.defects]


@functools.cache
def ptx(kernel: str, defect: str, arch: str = "sm_100a") -> list[str]:
    """Lines of the PTX of one build."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CUTE_DSL_ARCH": arch,
            "CUTE_DSL_KEEP": "ptx",
            "CUTE_DSL_DUMP_DIR": folder,
            "CUTE_DSL_LINEINFO": "1",
        }
        command = [sys.executable, "-c", COMPILE, kernel, defect]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        (file,) = Path(folder).glob("*.ptx")
        return [line.strip() for line in file.read_text().rstrip("\0").splitlines()]


def located(lines: list[str]) -> list[tuple[str, str]]:
    """(operation, "file line") of every synchronizing instruction."""
    found, place = [], ""
    for line in lines:
        words = line.split()
        if words[:1] == [".loc"]:
            place = f"{words[1]} {words[2]}"
        elif words and words[0].startswith(SYNCHRONIZING):
            found.append((words[0].rstrip(";"), place))
    return found


@pytest.mark.parametrize(("kernel", "defect"), DEFECTS)
def test_defect_changes_nothing_but_its_own_synchronization(kernel: str, defect: str) -> None:
    good = [operation for operation, _ in located(ptx(kernel, ""))]
    bad = [operation for operation, _ in located(ptx(kernel, defect))]
    changes = []
    for kind, start, end, other_start, other_end in difflib.SequenceMatcher(None, good, bad, False).get_opcodes():
        if kind != "equal":
            changes += [f"-{line}" for line in good[start:end]] + [f"+{line}" for line in bad[other_start:other_end]]
    assert changes == CHANGES[defect]


@pytest.mark.parametrize(("kernel", "defect"), DEFECTS)
def test_marked_line_is_the_line_of_the_operation(kernel: str, defect: str) -> None:
    (number,) = registry.case(kernel).defect_lines(defect)
    assert (MARKED[defect], f"1 {number}") in located(ptx(kernel, defect))


def test_attempt_that_is_not_retried_has_no_loop() -> None:
    def after_mailbox_wait(defect: str) -> str:
        lines = [line for line in ptx("gemm_splitk_mailbox", defect) if line and not line.startswith(".loc")]
        sent = next(i for i, line in enumerate(lines) if line.startswith("st.async"))
        wait = next(i for i in range(sent, len(lines)) if lines[i].startswith(WAIT_RELAXED))
        return lines[wait + 1]

    assert after_mailbox_wait("").startswith("not.pred")
    assert after_mailbox_wait("wait-not-retried") == f"{ACQUIRE};"


@pytest.mark.parametrize("case", registry.CASES, ids=lambda case: case.name)
def test_kernel_compiles_alike_for_both_architectures(case: registry.KernelCase) -> None:
    first, second = ([line for line, _ in located(ptx(case.name, "", arch))] for arch in case.archs)
    assert first == second
    assert len(first) > 20


def test_accumulator_is_released_by_the_canonical_chain() -> None:
    operations = [operation for operation, _ in located(ptx("gemm_persistent", ""))]
    at = operations.index(RELEASE)
    assert operations[at - 3 : at + 1] == [LOAD, WAIT_LD, BEFORE, RELEASE]


def test_mailbox_is_acquired_before_it_is_read() -> None:
    operations = [operation for operation, _ in located(ptx("gemm_splitk_mailbox", ""))]
    at = operations.index(ACQUIRE)
    assert operations[at - 1] == WAIT_RELAXED
    assert operations[at + 1] == "ld.shared.v4.b32"
