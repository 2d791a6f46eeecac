"""Shared memory of a kernel that has no mbarrier."""

from __future__ import annotations

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
