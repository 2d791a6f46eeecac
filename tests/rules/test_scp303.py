"""What may be read after a spin on a flag that does not acquire."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

SPIN = "L1: ld.relaxed.gpu.global.u32 r4, [flag]; setp.eq.u32 q, r4, 0; @q bra L1;"


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("ld.global.u32 r5, [data];", Verdict.VIOLATED),
        ("ld.global.nc.u32 r5, [data];", Verdict.UNKNOWN),
        ("ld.volatile.global.u32 r5, [data];", Verdict.UNKNOWN),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [data], 64, [bar];", Verdict.VIOLATED),
        ("fence.acq_rel.gpu; ld.global.u32 r5, [data];", Verdict.PROVED),
        ("ld.volatile.global.u32 r5, [data]; ld.global.u32 r6, [data+8];", Verdict.VIOLATED),
    ],
)
def test_a_read_after_a_spin(read: str, expected: Verdict) -> None:
    assert judge("SCP303", f"warp 0:\n{SPIN}\n{read}")[0] == [expected]


def test_words_polled_together_are_flags_not_data() -> None:
    both = "L1: ld.volatile.global.u32 r4, [flag]; ld.volatile.global.u32 r5, [flag+8];"
    test = "setp.eq.u32 q, r4, 0; setp.eq.u32 q2, r5, 0; or.pred q, q, q2; @q bra L1;"
    assert judge("SCP303", f"warp 0:\n{both}\n{test}")[0] == []
    assert Verdict.VIOLATED in judge("SCP303", f"warp 0:\n{both}\n{test}\nld.global.u32 r6, [data];")[0]


VOLATILE = "L1: ld.volatile.global.u32 r4, [flag]; setp.eq.u32 q, r4, 0; @q bra L1;"
SYSTEM = "L1: ld.relaxed.sys.global.u32 r4, [flag]; setp.eq.u32 q, r4, 0; @q bra L1;"
RAISED = "red.release.sys.global.add.u32 [flag], 1;"


@pytest.mark.parametrize(
    ("spin", "fence", "expected"),
    [
        (VOLATILE, "fence.acq_rel.gpu;", Verdict.PROVED),
        (VOLATILE, "membar.gl;", Verdict.PROVED),
        (VOLATILE, "fence.acq_rel.sys;", Verdict.PROVED),
        (VOLATILE, "fence.acq_rel.cluster;", Verdict.VIOLATED),
        (VOLATILE, "membar.cta;", Verdict.VIOLATED),
        (RAISED + VOLATILE, "fence.acq_rel.gpu;", Verdict.UNKNOWN),
        (RAISED + VOLATILE, "fence.acq_rel.sys;", Verdict.PROVED),
        (RAISED.replace("flag", "data") + VOLATILE, "fence.acq_rel.gpu;", Verdict.PROVED),
        (SYSTEM, "fence.acq_rel.gpu;", Verdict.UNKNOWN),
        (SYSTEM, "fence.acq_rel.sys;", Verdict.PROVED),
        (SYSTEM, "fence.acq_rel.cta;", Verdict.VIOLATED),
        (SYSTEM, "", Verdict.VIOLATED),
    ],
)
def test_a_fence_has_to_reach_the_writer(spin: str, fence: str, expected: Verdict) -> None:
    """How far the poll reaches is no measure: `.volatile` is `.sys` by itself, and most flags are of one device."""
    assert judge("SCP303", f"warp 0:\n{spin}\n{fence}\nld.global.u32 r5, [data];")[0] == [expected]


def test_a_grid_barrier_with_a_volatile_poll_is_right() -> None:
    """One thread counts the CTA in, polls until all are, and fences; the others wait for it at `bar.sync`."""
    count = "fence.acq_rel.gpu; atom.add.global.u32 r3, [flag], 1;"
    spin = "L1: ld.volatile.global.u32 r4, [flag]; xor.b32 r4, r4, r3; setp.ge.s32 q, r4, 0; @q bra L1;"
    for fence, expected in (("fence.acq_rel.gpu;", Verdict.PROVED), ("", Verdict.VIOLATED)):
        body = f"warp 0:\n{count}\n{spin}\n{fence}\nbar.sync 0;\nld.global.u32 r5, [data];"
        assert judge("SCP303", body)[0] == [expected]


@pytest.mark.parametrize(
    ("fence", "expected"),
    [
        ("fence.acquire.cluster;", Verdict.PROVED),
        ("fence.acquire.sync_restrict::shared::cluster.cluster;", Verdict.VIOLATED),  # does not order global memory
    ],
)
def test_a_fence_of_shared_memory_orders_no_global_data(fence: str, expected: Verdict) -> None:
    spin = SPIN.replace(".gpu", ".cluster")
    assert judge("SCP303", f"cluster 2\nwarp 0:\n{spin}\n{fence}\nld.global.u32 r5, [data];")[0] == [expected]
