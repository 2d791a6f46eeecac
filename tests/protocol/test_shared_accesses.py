"""What orders accesses of shared memory by two warps, and what is said where it is not followed."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from verifier.findings import Verdict

HEAD = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry two(.param .u64 out, .param .u64 source, .param .u32 mode)
.reqntid 64
{
    .reg .pred %p<8>;
    .reg .b32 %r<20>;
    .reg .b64 %d<8>;
    .reg .f32 %f<4>;
    .shared .align 16 .b8 data[1024];
    .shared .align 8 .b64 full;
    .shared .align 4 .b32 flag;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [source];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, data;
    add.u32 %r5, %r4, %r3;
    mov.u32 %r6, flag;
    mov.u32 %r7, full;
    setp.ge.u32 %p1, %r1, 32;
    setp.eq.u32 %p2, %r2, 0;
"""


def verdicts(first: str, second: str, before: str = "", after: str = "", code: str = "MEM401") -> set[Verdict]:
    """Warp 0 runs `first`, warp 1 `second`, both `before` and `after`."""
    return {judged.verdict for judged in judge(facts(kernel(first, second, before, after)), code)}


def kernel(first: str, second: str, before: str = "", after: str = "") -> str:
    parts = ("@%p1 bra SECOND;", first, "bra.uni JOIN;", "SECOND:", second, "JOIN:")
    return "\n".join((HEAD, before, *parts, after, "st.global.u32 [%d1], %r8;", "ret;", "}"))


STORE = "st.shared.u32 [%r5], %r1;"
LOAD = "ld.shared.u32 %r8, [%r5];"


@pytest.mark.parametrize(
    "barrier",
    [
        "barrier.cta.red.popc.aligned.u32 %r9, 0, %p2;",
        "bar.red.or.pred %p3, 0, %p2;",
        "bar.red.and.pred %p3, 0, !%p2;",
        "barrier.cta.red.or.pred %p3, 0, 64, %p2;",
    ],
)
def test_bar_red_is_a_barrier_of_all_threads_unless_it_names_a_count(barrier: str) -> None:
    assert verdicts(STORE, "", after=f"{barrier} {LOAD}") == {Verdict.PROVED}
    assert verdicts(STORE, "", after=f"{barrier} {LOAD}", code="CTL703") == {Verdict.PROVED}


def test_result_of_bar_red_is_not_what_the_register_held_before() -> None:
    after = f"setp.ne.u32 %p3, %r4, %r4; bar.red.or.pred %p3, 0, %p2; @%p3 bra OUT; bar.sync 1, 32; OUT: {LOAD}"
    found = judge(facts(kernel(STORE, "", after=after)), "CTL703")
    assert {judged.verdict for judged in found} == {Verdict.UNKNOWN}
    assert "bar.red.or.pred" in found[0].reason
