"""What the DSL emits for the kernels: each defect changes only its own synchronization, on the marked Python line."""

from __future__ import annotations

import difflib
import functools

import pytest

from kernels import registry
from verifier.compile.build import compile_case
from verifier.compile.store import default_store

pytestmark = pytest.mark.toolchain

SYNCHRONIZING = (
    "mbarrier.",
    "fence.",
    "tcgen05.",
    "barrier.",
    "bar.",
    "st.",
    "cp.async",
    "ld.shared",
    "stmatrix",
    "griddepcontrol.",
)
WAIT_RELAXED = "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64"
WAIT_CTA = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"
WAIT_CLUSTER = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
ACQUIRE = "fence.acquire.sync_restrict::shared::cluster.cluster"
RELEASE = "mbarrier.arrive.relaxed.cluster.shared.b64"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x32.b32"
MMA = "tcgen05.mma.cta_group::1.kind"
WAIT_LD = "tcgen05.wait::ld.sync.aligned"
BEFORE = "tcgen05.fence::before_thread_sync"
AFTER = "tcgen05.fence::after_thread_sync"
ARRIVE_PEER = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64"

# Synchronizing operations that each defect takes away (-) and adds (+), in program order, where a number of times.
BULK_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint"
BULK_LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
ACQUIRE_MAP = "fence.proxy.tensormap::generic.acquire.gpu"
PROXY_FENCE = "fence.proxy.async.shared::cta"
CHANGES = {
    "release-before-load": [f"-{LOAD}", f"+{LOAD}", f"+{WAIT_LD}"],  # the load moves behind the release
    "no-wait-ld": [f"-{WAIT_LD}"],
    "no-fence": [f"-{BEFORE}"],
    "cta-scope-wait": [f"-{WAIT_RELAXED}", f"-{ACQUIRE}", f"+{WAIT_CTA}"],
    "acquire-cluster-wait": [f"-{WAIT_RELAXED}", f"-{ACQUIRE}", f"+{WAIT_CLUSTER}"],
    "wait-not-retried": [],
    "time-limit-trusted": [],
    "missing-phase0-wait": [f"-{WAIT_CTA}"],
    "no-peer-handshake": [f"-{BEFORE}", f"-{ARRIVE_PEER}", f"-{WAIT_RELAXED}", f"-{AFTER}"],
    "early-weights": ["-griddepcontrol.wait"],
    "no-acquire": [f"-{ACQUIRE_MAP}"] * 2,
    "acquire-in-one-warp": [f"-{ACQUIRE_MAP}"],
    "acquire-wrong-slot": [],
    # The acquire moves into the loop over tiles, and the compiler places the waits of the drain before it.
    "acquire-every-tile": [f"+{WAIT_CTA}", f"-{WAIT_CTA}"] * 2,
    "no-scale-acquire": [f"-{ACQUIRE_MAP}"] * 2,
    "no-store-acquire": [f"-{ACQUIRE_MAP}"],
    "no-drain": ["-cp.async.bulk.wait_group.read 0"],
    "late-store-wait": ["-cp.async.bulk.wait_group.read 1", "+cp.async.bulk.wait_group.read 2"],
    "hopper_gemm_persistent/late-store-wait": ["-cp.async.bulk.wait_group.read 1", "+cp.async.bulk.wait_group.read 2"]
    * 4,
    "no-gather-fence": [f"-{PROXY_FENCE}"] * 2,
    "no-proxy-fence": [f"-{PROXY_FENCE}"],
    "hopper_gemm_persistent/no-proxy-fence": [f"-{PROXY_FENCE}"] * 4,
}
# The operation that the marked line must be the line of.
MARKED = {
    "release-before-load": RELEASE,
    "no-wait-ld": RELEASE,
    "no-fence": RELEASE,
    "cta-scope-wait": WAIT_CTA,
    "acquire-cluster-wait": WAIT_CLUSTER,
    "wait-not-retried": WAIT_RELAXED,
    "time-limit-trusted": WAIT_RELAXED,
    "missing-phase0-wait": WAIT_CTA,
    "no-peer-handshake": "tcgen05.dealloc.cta_group::2.sync.aligned.b32",
    "early-weights": BULK_LOAD,
    "no-acquire": BULK_LOAD,
    "acquire-in-one-warp": BULK_LOAD,
    "acquire-wrong-slot": BULK_LOAD,
    "acquire-every-tile": ACQUIRE_MAP,
    "no-scale-acquire": BULK_LOAD,
    "no-store-acquire": BULK_STORE,
    "no-drain": BULK_STORE,
    "late-store-wait": "st.shared.v4.b32",
    "hopper_gemm_persistent/late-store-wait": "stmatrix.sync.aligned.m8n8.x4.shared.b16",
    "no-gather-fence": f"{MMA}::f16.collector::a::discard",
    "moe_gg1_nvfp4/no-gather-fence": f"{MMA}::mxf4nvf4.block_scale.block16.collector::a::discard",
    "no-proxy-fence": BULK_STORE,
}
# Kernels share defects that stand in a common module: one kernel builds each of those here, `verify --defects` all.
DEFECTS = [
    (kernel, defect)
    for (_, defect), kernel in {
        (case.defect_source(defect.name), defect.name): case.name
        for case in reversed(registry.CASES)
        for defect in case.defects
    }.items()
]


@functools.cache
def ptx(kernel: str, defect: str, arch: str = "") -> list[str]:
    """Lines of the PTX of one build; without `arch`, for the first architecture of the kernel."""
    case = registry.case(kernel)
    text = compile_case(case, arch or case.archs[0], defect or None, store=default_store()).ptx
    assert text is not None
    return [line.strip() for line in text.splitlines()]


def located(lines: list[str]) -> list[tuple[str, str]]:
    """(operation, "file:line") of every synchronizing instruction, with its operand where that is one number."""
    files = {line.split()[1]: line.split('"')[1].rpartition("/")[2] for line in lines if line.startswith(".file")}
    found, place = [], ""
    for line in lines:
        words = line.rstrip(";").split()
        if words[:1] == [".loc"]:
            place = f"{files[words[1]]}:{words[2]}"
        elif words and words[0].startswith(SYNCHRONIZING):
            found.append((" ".join(words) if len(words) == 2 and words[1].isdigit() else words[0], place))
    return found


@pytest.mark.parametrize(("kernel", "defect"), DEFECTS)
def test_defect_changes_nothing_but_its_own_synchronization(kernel: str, defect: str) -> None:
    good = [operation for operation, _ in located(ptx(kernel, ""))]
    bad = [operation for operation, _ in located(ptx(kernel, defect))]
    changes = []
    for kind, start, end, other_start, other_end in difflib.SequenceMatcher(None, good, bad, False).get_opcodes():
        if kind != "equal":
            changes += [f"-{line}" for line in good[start:end]] + [f"+{line}" for line in bad[other_start:other_end]]
    assert changes == CHANGES.get(f"{kernel}/{defect}", CHANGES.get(defect))


@pytest.mark.parametrize(("kernel", "defect"), DEFECTS)
def test_marked_line_is_the_line_of_the_operation(kernel: str, defect: str) -> None:
    case = registry.case(kernel)
    (number,) = case.defect_lines(defect)
    place = f"{case.defect_source(defect).name}:{number}"
    operation = MARKED.get(f"{kernel}/{defect}", MARKED.get(defect))
    assert (operation, place) in located(ptx(kernel, defect))


def test_attempt_that_is_not_retried_has_no_loop() -> None:
    def after_mailbox_wait(defect: str) -> str:
        lines = [line for line in ptx("gemm_splitk_mailbox", defect) if line and not line.startswith(".loc")]
        sent = next(i for i, line in enumerate(lines) if line.startswith("st.async"))
        wait = next(i for i in range(sent, len(lines)) if lines[i].startswith(WAIT_RELAXED))
        return lines[wait + 1]

    assert after_mailbox_wait("").startswith("not.pred")
    assert after_mailbox_wait("wait-not-retried") == f"{ACQUIRE};"


@pytest.mark.parametrize("case", registry.CASES, ids=lambda case: case.name)
def test_kernel_compiles_alike_for_all_its_architectures(case: registry.KernelCase) -> None:
    first, *others = ([operation for operation, _ in located(ptx(case.name, "", arch))] for arch in case.archs)
    assert all(other == first for other in others)
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
