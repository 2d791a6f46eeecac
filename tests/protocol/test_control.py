"""Lanes that part and meet again, and branches that no script decides."""

from __future__ import annotations

from tests.protocol.support import fragment, judge, violated
from verifier.findings import Verdict


def test_lanes_that_both_have_work_make_progress() -> None:
    """One lane waits for what another lane of the same warp signals."""
    kernel = fragment(
        """
        warp 0:
        mov.u32 r4, %laneid;
        setp.eq.u32 q2, r4, 3;
        @q2 bra GIVE;
        W0: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W0;
        bra MET;
        GIVE: mbarrier.arrive.shared::cta.b64 _, [bar];
        MET: bar.warp.sync -1;
        bar.sync 1, 64;
        warp 1:
        bar.sync 1, 64;
        """
    )
    assert [j.verdict for j in judge(kernel, "CTL703")] == [Verdict.PROVED]


def test_values_that_lanes_computed_apart_are_merged() -> None:
    """Lanes 0-15 and 16-31 store to different halves; a reader of one half races with that half's writers only."""
    kernel = fragment(
        """
        warp 0:
        mov.u32 r4, %laneid;
        setp.lt.u32 q2, r4, 16;
        mov.b32 r5, buf;
        @q2 bra MET;
        add.u32 r5, r5, 2048;
        MET: mad.lo.u32 r5, r4, 4, r5;
        st.shared.b32 [r5], r1;
        elect.sync _|q, -1;
        @q mbarrier.arrive.shared::cta.b64 _, [bar];
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        ld.shared.b32 r6, [buf];
        warp 2:
        ld.shared.b32 r6, [buf2];
        """
    )
    assert violated(kernel) == set()


def test_a_data_branch_without_synchronization_is_run_both_ways() -> None:
    source = """
        warp 0:
        ld.global.f32 f1, [data];
        setp.gt.f32 q2, f1, 0f00000000;
        @q2 bra SKIP;
        st.shared.b32 [buf], r1;
        SKIP: elect.sync _|q, -1;
        {order}
        warp 1:
        {wait}
        ld.shared.b32 r6, [buf];
        """
    arrive = "@q mbarrier.arrive.shared::cta.b64 _, [bar];"
    wait = "W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;"
    assert violated(fragment(source.format(order=arrive, wait=wait))) == set()
    assert violated(fragment(source.format(order="", wait=""))) == {"MEM401"}


def test_a_data_branch_around_a_barrier_leaves_all_open() -> None:
    kernel = fragment(
        """
        warp 0:
        ld.global.f32 f1, [data];
        setp.gt.f32 q2, f1, 0f00000000;
        @q2 bra SKIP;
        elect.sync _|q, -1;
        @q mbarrier.arrive.shared::cta.b64 _, [bar];
        SKIP: mov.b32 r4, 0;
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        """
    )
    (judgement,) = judge(kernel, "CTL703")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "setp.gt.f32" in judgement.reason


def test_a_guarded_trap_decides_nothing() -> None:
    kernel = fragment(
        """
        warp 0:
        ld.global.f32 f1, [data];
        setp.gt.f32 q2, f1, 0f00000000;
        @!q2 bra FINE;
        trap;
        FINE: elect.sync _|q, -1;
        @q mbarrier.arrive.shared::cta.b64 _, [bar];
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        """
    )
    assert [j.verdict for j in judge(kernel, "CTL703")] == [Verdict.PROVED]


def test_the_two_ways_of_a_data_branch_do_not_both_happen() -> None:
    source = """
        warp 0:
        ld.global.f32 f1, [data];
        setp.gt.f32 q2, f1, 0f00000000;
        @q2 bra OTHER;
        {first}
        ld.shared.b32 r6, [buf];
        bra.uni DONE;
        OTHER: cp.async.ca.shared.global [buf], [data], 4;
        cp.async.commit_group;
        DONE: cp.async.wait_group 0;
        """
    copy = "cp.async.ca.shared.global [buf], [data], 4;"
    assert violated(fragment(source.format(first=""))) == set()
    assert violated(fragment(source.format(first=copy))) == {"MEM401"}


def test_a_group_that_one_way_of_a_data_branch_commits_is_not_counted() -> None:
    source = """
        warp 0:
        ld.global.f32 f1, [data];
        setp.gt.f32 q2, f1, 0f00000000;
        cp.async.ca.shared.global [buf], [data], 4;
        cp.async.commit_group;
        @q2 bra SKIP;
        cp.async.commit_group;
        SKIP: cp.async.wait_group {pending};
        ld.shared.b32 r6, [buf];
        """
    assert violated(fragment(source.format(pending=0))) == set()
    assert violated(fragment(source.format(pending=1))) == {"MEM401"}
