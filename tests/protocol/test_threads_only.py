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


MEETING = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry meeting(.param .u32 n)
.reqntid 96
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    setp.eq.u32 %p1, %r2, 0;
    setp.eq.u32 %p2, %r2, 2;
    BODY
    ret;
}
"""


def deadlock(body: str) -> set[Verdict]:
    return {judged.verdict for judged in judge(facts(MEETING.replace("BODY", body)), "CTL703")}


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("bar.sync 0;", Verdict.PROVED),
        ("@%p1 bra OVER; bar.sync 0; OVER: bar.sync 1, 96;", Verdict.VIOLATED),  # warp 0 skips a barrier
        ("@%p1 ret; bar.sync 0;", Verdict.PROVED),  # threads that have ended are not waited for
        ("@%p1 ret; bar.sync 0, 96;", Verdict.VIOLATED),
        ("bar.sync 1, 64;", Verdict.VIOLATED),  # three warps, pairs
        ("@%p1 ret; bar.sync 1, 64;", Verdict.PROVED),
        ("@%p1 bar.sync 1, 32;", Verdict.PROVED),
        ("@%p2 bra C; @%p1 bra A; bar.sync 1, 96; bra C; A: bar.sync 1, 64; C:", Verdict.VIOLATED),
        ("@%p1 bra A; bar.arrive 1, 96; bra C; A: bar.sync 1, 96; C:", Verdict.PROVED),
        ("@%p1 bra A; bar.arrive 1, 64; bra C; A: bar.sync 1, 128; C:", Verdict.VIOLATED),
        ("mov.u32 %r3, 0; L: bar.sync 0; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 4; @%p3 bra L;", Verdict.PROVED),
        # one warp goes round once more than the others
        (
            """selp.u32 %r4, 5, 4, %p1; mov.u32 %r3, 0;
            L: bar.sync 0, 96; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r4; @%p3 bra L;""",
            Verdict.VIOLATED,
        ),
    ],
)
def test_thread_barriers_alone(body: str, verdict: Verdict) -> None:
    assert deadlock(body) == {verdict}


TMEM = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry columns()
.reqntid 64
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %d<2>;
    .reg .pred %q<2>;
    .shared .align 4 .b32 slot;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
ALLOCATED:
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r3, [slot];
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r3];
    BEFORE
    @%p1 bra DONE;
    FREE
DONE:
    AFTER
    ret;
}
"""
READ = "tcgen05.wait::ld.sync.aligned;"
SYNC = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 64;"
HIGHER = "add.u32 %r5, %r3, 32; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;"


@pytest.mark.parametrize(
    ("before", "free", "after", "verdict"),
    [
        (f"{READ}{SYNC}", FREE, "", Verdict.PROVED),
        (READ, FREE, "", Verdict.VIOLATED),  # nothing orders the read of warp 1 before the dealloc
        (SYNC, FREE, READ, Verdict.VIOLATED),  # the load may be in flight
        (f"{READ}{SYNC}", "", "", Verdict.VIOLATED),  # never freed
        (f"{READ}{SYNC}", FREE.replace("64", "32") + HIGHER, "", Verdict.PROVED),  # in two parts
    ],
)
def test_tensor_memory_without_an_mbarrier(before: str, free: str, after: str, verdict: Verdict) -> None:
    text = TMEM.replace("BEFORE", before).replace("FREE", free).replace("AFTER", after)
    assert {judged.verdict for judged in judge(facts(text), "TCG104")} == {verdict}


def test_columns_read_after_a_barrier_gave_them_away() -> None:
    """Warp 0 reads columns after the barrier behind which warp 1 lets an MMA write them."""
    write = "mov.b32 %r6, 135266304; mov.b64 %d0, 0; mov.b64 %d1, 0; elect.sync _|%q1, -1;"
    write += "@%q1 tcgen05.mma.cta_group::1.kind::f16 [%r3], %d0, %d1, %r6, %q0;"
    again = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r5}, [%r3]; tcgen05.wait::ld.sync.aligned;"
    after = f"@!%p1 bra S; {write} S:"
    late = TMEM.replace("BEFORE", f"{READ}{SYNC}").replace("FREE", again).replace("AFTER", after)
    early = TMEM.replace("BEFORE", f"{READ}{again}{SYNC}").replace("FREE", "").replace("AFTER", after)
    assert {judged.verdict for judged in judge(facts(late), "TCG103")} == {Verdict.VIOLATED}
    assert {judged.verdict for judged in judge(facts(early), "TCG103")} == {Verdict.PROVED}


def test_warps_that_meet_name_the_same_number_of_threads() -> None:
    """One schedule ends well by luck: which warp comes last decides how many are waited for."""
    body = "@%p1 bra A; bar.sync 1, 96; bra C; A: bar.sync 1, {}; C:"
    (found,) = judge(facts(MEETING.replace("BODY", body.format(64))), "CTL703")
    assert found.verdict is Verdict.VIOLATED
    assert "64" in found.message
    assert "96" in found.message
    assert deadlock(body.format(96)) == {Verdict.PROVED}


PAIR = TMEM.replace("cta_group::1", "cta_group::2").replace(
    ".reqntid 64", ".reqntid 64 .explicitcluster .reqnctapercluster 2, 1, 1"
)
CLUSTER = "tcgen05.fence::before_thread_sync; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize(("meet", "verdict"), [(SYNC, Verdict.VIOLATED), (CLUSTER, Verdict.PROVED)])
def test_a_pair_frees_after_the_reads_of_both(meet: str, verdict: Verdict) -> None:
    """Each CTA's own barrier says nothing of the peer's reads, and a dealloc of a pair takes its columns, too."""
    free = FREE.replace("cta_group::1", "cta_group::2")
    text = PAIR.replace("BEFORE", f"{READ}{meet}").replace("FREE", free).replace("AFTER", "")
    (found,) = judge(facts(text), "TCG104")
    assert found.verdict is verdict
    assert ("of the peer CTA" in found.message) == (verdict is Verdict.VIOLATED)


def test_half_of_the_columns_is_freed() -> None:
    half = TMEM.replace("BEFORE", f"{READ}{SYNC}").replace("FREE", FREE.replace("64", "32")).replace("AFTER", "")
    found = [judged for judged in judge(facts(half), "TCG104") if judged.verdict is Verdict.VIOLATED]
    assert [judged.message.partition("columns ")[2] for judged in found] == ["[32, 64) and never frees them"]
