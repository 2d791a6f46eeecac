"""Which invented inputs may turn a kernel red, and which only leave a question."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from verifier.findings import Judgement, Verdict

# Warp 0 announces BYTES and copies twice 16 bytes; warp 1 reads the last, and waits once more if `size` exceeds 100.
ONE_STAGE = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry stage(.param .u64 source, .param .u32 size, .param .u32 other)
.reqntid 64
{
    .reg .pred %p<8>;
    .reg .b32 %r<12>;
    .reg .b64 %d<2>;
    .shared .align 16 .b8 data[32];
    .shared .align 8 .b64 full;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    ld.param.u32 %r3, [size];
    ld.param.u32 %r9, [other];
    ld.param.u64 %d1, [source];
    setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %p2, %r2, 0;
    setp.gt.u32 %p3, %r3, 100;
    @!%p1 mbarrier.init.shared::cta.b64 [full], 1;
    bar.sync 0;
    @%p2 bra WAIT;
    @%p1 bra DONE;
    BYTES
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], %r4;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [data], [%d1], 16, [full];
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [data+16], [%d1], 16, [full];
    bra DONE;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [full], 0;
    @!%p4 bra WAIT;
    ld.shared.u32 %r6, [data+16];
    st.global.u32 [%d1], %r6;
    @!%p3 bra DONE;
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [full], 0;
    @!%p4 bra AGAIN;
DONE:
    ret;
}
"""
ALWAYS = "mov.u32 %r4, 32;"
NOT_AT_ZERO = "min.u32 %r5, %r3, 1; shl.b32 %r4, %r5, 5;"
NOT_ABOVE = "selp.u32 %r4, 0, 32, %p3;"


def judged(bytes_: str) -> list[Judgement]:
    kernel = facts(ONE_STAGE.replace("BYTES", bytes_))
    return [j for code in ("MBR202", "MBR203", "MBR205", "MEM401", "CTL703") for j in judge(kernel, code)]


@pytest.mark.parametrize(
    ("bytes_", "exception"),
    [(ALWAYS, ""), (NOT_AT_ZERO, "; except size+0 = 0: there a signal may land in another phase")],
)
def test_a_parameter_of_zero_makes_no_kernel_red(bytes_: str, exception: str) -> None:
    """With no work nothing is announced, and the copies come in the phase after: a host does not launch that."""
    found = judged(bytes_)
    assert {j.verdict for j in found} == {Verdict.PROVED}
    assert all(j.reason.endswith(f"grid of 1024 clusters{exception}") for j in found)


def test_a_parameter_raised_alone_leaves_a_question() -> None:
    """It may contradict the others, so it is no error; but it is not proved either."""
    found = judged(NOT_ABOVE)
    assert Verdict.VIOLATED not in {j.verdict for j in found}
    assert any(j.verdict is Verdict.UNKNOWN and "size+0 = " in j.reason for j in found)
