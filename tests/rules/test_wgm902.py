"""Stages that a consumer gives back while the newest wgmma are in flight on purpose."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from verifier.findings import Verdict

# Warps 0 to 3 multiply a stage, leave PENDING groups in flight, and give back a stage; warp 4 fills the stages.
PIPELINE = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry pipeline(.param .u64 source, .param .u32 rounds)
.reqntid 160
{
    .reg .pred %p<8>;
    .reg .b32 %r<24>;
    .reg .b64 %d<8>;
    .reg .f32 %f<4>;
    .shared .align 1024 .b8 stage[8192];
    .shared .align 8 .b64 full[2];
    .shared .align 8 .b64 empty[2];
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r2, [rounds];
    ld.param.u64 %d1, [source];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [empty], 128;
    mbarrier.init.shared::cta.b64 [empty+8], 128;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
    mov.u32 %r5, 0;
    mov.u32 %r10, stage;
    mov.u32 %r11, full;
    mov.u32 %r12, empty;
    setp.lt.u32 %p2, %r1, 128;
    @!%p2 bra FILL;
MULTIPLY:
    setp.ge.u32 %p3, %r3, %r2;
    @%p3 bra DRAIN;
    shl.b32 %r6, %r4, 3;
    add.u32 %r7, %r11, %r6;
WAIT_FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r7], %r5;
    @!%p4 bra WAIT_FULL;
    shl.b32 %r8, %r4, 12;
    add.u32 %r8, %r8, %r10;
    shr.u32 %r8, %r8, 4;
    cvt.u64.u32 %d2, %r8;
    or.b64 %d2, %d2, 0x8000002000010000;
    setp.eq.u32 %p5, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d2, %p5, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned PENDING;
    add.u32 %r9, %r12, %r6;
    GIVE
    add.u32 %r3, %r3, 1;
    xor.b32 %r4, %r4, 1;
    setp.eq.u32 %p6, %r4, 0;
    @%p6 xor.b32 %r5, %r5, 1;
    bra MULTIPLY;
DRAIN:
    wgmma.wait_group.sync.aligned 0;
    bra DONE;
FILL:
    setp.ne.u32 %p1, %r1, 128;
    @%p1 bra DONE;
    mov.u32 %r5, 1;
AGAIN:
    setp.ge.u32 %p3, %r3, %r2;
    @%p3 bra DONE;
    shl.b32 %r6, %r4, 3;
    add.u32 %r7, %r12, %r6;
WAIT_EMPTY:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r7], %r5;
    @!%p4 bra WAIT_EMPTY;
    add.u32 %r7, %r11, %r6;
    shl.b32 %r8, %r4, 12;
    add.u32 %r8, %r8, %r10;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 4096;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r8], [%d1], 4096, [%r7];
    add.u32 %r3, %r3, 1;
    xor.b32 %r4, %r4, 1;
    setp.eq.u32 %p6, %r4, 0;
    @%p6 xor.b32 %r5, %r5, 1;
    bra AGAIN;
DONE:
    ret;
}
"""
THIS = "mbarrier.arrive.shared::cta.b64 _, [%r9];"
PRECEDING = "xor.b32 %r13, %r4, 1; shl.b32 %r13, %r13, 3; add.u32 %r9, %r12, %r13;"
PRECEDING += f"setp.eq.u32 %p7, %r3, 0; @%p7 bra FIRST; {THIS} FIRST:"


@pytest.mark.parametrize(
    ("pending", "give", "verdict"),
    [
        ("0", THIS, Verdict.PROVED),
        ("1", PRECEDING, Verdict.PROVED),
        ("1", THIS, Verdict.UNKNOWN),  # of the group just issued; MEM401 reports it
        ("2", PRECEDING, Verdict.UNKNOWN),
    ],
)
def test_groups_that_may_stay_in_flight(pending: str, give: str, verdict: Verdict) -> None:
    kernel = facts(PIPELINE.replace("PENDING", pending).replace("GIVE", give))
    assert {judged.verdict for judged in judge(kernel, "WGM902")} == {verdict}
    races = {judged.verdict for judged in judge(kernel, "MEM401")}
    assert (Verdict.VIOLATED in races) == (verdict is Verdict.UNKNOWN)


def test_a_signal_to_an_unknown_barrier() -> None:
    """Whoever waits for it may refill what is being read."""
    somewhere = f"ld.global.u32 %r9, [%d1]; {THIS}"
    kernel = facts(PIPELINE.replace("PENDING", "1").replace("GIVE", somewhere))
    assert {judged.verdict for judged in judge(kernel, "WGM902")} == {Verdict.UNKNOWN}
