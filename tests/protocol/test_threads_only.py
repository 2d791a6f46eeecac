"""Shared memory of a kernel that has no mbarrier."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from verifier.findings import Verdict

REVERSED = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry reversed(.param .u64 out)
.reqntid 64
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .shared .align 16 .b8 smem[256];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 48;
    mov.u32 %r2, smem;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    @%p1 bra JOIN;
    st.shared.u32 [%r4], %r1;
JOIN:
    SYNC
    @%p1 bra DONE;
    sub.u32 %r5, 47, %r1;
    shl.b32 %r5, %r5, 2;
    add.u32 %r5, %r2, %r5;
    ld.shared.u32 %r6, [%r5];
    ld.param.u64 %d1, [out];
    st.global.u32 [%d1], %r6;
DONE:
    ret;
}
"""


def verdict(sync: str) -> set[Verdict]:
    return {judged.verdict for judged in judge(facts(REVERSED.replace("SYNC", sync)), "MEM401")}


def test_barrier_between_store_and_load() -> None:
    assert verdict("bar.sync 0;") == {Verdict.PROVED}


def test_no_barrier_between_store_and_load() -> None:
    assert Verdict.VIOLATED in verdict("")


def test_warp_barrier_orders_no_other_warp() -> None:
    assert Verdict.VIOLATED in verdict("bar.warp.sync -1;")


def test_nothing_runs_without_a_shared_store() -> None:
    text = REVERSED.replace("SYNC", "").replace("st.shared.u32 [%r4], %r1;", "")
    kernel = facts(text)
    assert judge(kernel, "MEM401") == []
    assert "protocol" not in vars(kernel)


WGMMA = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry staged(.param .u64 source, .param .u32 trips)
.reqntid 128
{
    .reg .pred %p<3>;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>;
    .reg .f32 %f<4>;
    .shared .align 1024 .b8 a[2048];
    .shared .align 1024 .b8 b[256];
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r2, [trips];
    ld.param.u64 %d1, [source];
    mov.u32 %r3, a;
    mov.u32 %r4, b;
    shl.b32 %r5, %r1, 4;
    add.u32 %r5, %r3, %r5;
    shr.u32 %r6, %r3, 4;
    cvt.u64.u32 %d2, %r6;
    or.b64 %d2, %d2, 0x8000002000010000;
    shr.u32 %r6, %r4, 4;
    cvt.u64.u32 %d3, %r6;
    or.b64 %d3, %d3, 0x8000002000010000;
    setp.eq.u32 %p2, 0, 0;
    mov.u32 %r7, 0;
AGAIN:
    setp.ge.u32 %p1, %r7, %r2;
    @%p1 bra DONE;
    ld.global.u32 %r8, [%d1];
    st.shared.u32 [%r5], %r8;
    fence.proxy.async.shared::cta;
    FILLED
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d3, %p2, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    EMPTY
    add.u32 %r7, %r7, 1;
    bra AGAIN;
DONE:
    ret;
}
"""


@pytest.mark.parametrize(
    ("filled", "empty", "expected"),
    [
        ("bar.sync 0;", "bar.sync 0;", {Verdict.PROVED}),
        ("", "bar.sync 0;", {Verdict.PROVED, Verdict.VIOLATED}),
        ("bar.sync 0;", "", {Verdict.PROVED, Verdict.VIOLATED}),
    ],
)
def test_operands_of_wgmma(filled: str, empty: str, expected: set[Verdict]) -> None:
    """The warps of a group read what the others have stored, also where no copy says how long a stage is."""
    text = WGMMA.replace("FILLED", filled).replace("EMPTY", empty)
    assert {judged.verdict for judged in judge(facts(text), "MEM401")} == expected
