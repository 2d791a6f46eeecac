"""Waits and signals that may mean another phase, one check at a time."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, judge, violated
from verifier.findings import Verdict

WAIT = "mbarrier.try_wait.parity.shared::cta.b64 p"
ELECT = "elect.sync _|q, -1;\n@q mbarrier.arrive.shared::cta.b64 _, "


def test_a_producer_may_start_with_the_parity_of_the_phase_before_the_first() -> None:
    kernel = fragment(
        f"""
        warp 0:
        W0: {WAIT}, [bar2], 1; @!p bra W0;
        {ELECT}[bar];
        warp 1:
        W1: {WAIT}, [bar], 0; @!p bra W1;
        {ELECT}[bar2];
        """
    )
    assert violated(kernel) == set()
    assert {j.verdict for j in judge(kernel, "MBR202")} == {Verdict.PROVED}


def test_a_start_parity_that_nothing_holds_back_is_reported() -> None:
    """Phase 0 of bar2 can complete before the wait has returned: then its parity means phase 1."""
    kernel = fragment(
        f"""
        warp 0:
        W0: {WAIT}, [bar2], 1; @!p bra W0;
        warp 1:
        {ELECT}[bar2];
        """
    )
    assert violated(kernel) == {"MBR202"}


def test_a_signal_into_a_phase_that_its_thread_has_not_seen_begin() -> None:
    kernel = fragment(
        f"""
        warp 0:
        {ELECT}[bar];
        warp 1:
        W1: {WAIT}, [bar], 0; @!p bra W1;
        warp 2:
        bar.sync 1, 64;
        {ELECT}[bar];
        warp 3:
        bar.sync 1, 64;
        """
    )
    assert "MBR203" in violated(kernel)


@pytest.mark.parametrize(("threads", "stuck"), [(64, False), (96, True)])
def test_named_barriers_wait_for_their_threads(threads: int, stuck: bool) -> None:
    kernel = fragment(
        f"""
        warp 0:
        bar.sync 1, {threads};
        {ELECT}[bar];
        warp 1:
        bar.sync 1, {threads};
        W1: {WAIT}, [bar], 0; @!p bra W1;
        """
    )
    (judgement,) = judge(kernel, "CTL703")
    assert (judgement.verdict is Verdict.VIOLATED) == stuck
    assert not stuck or "64 of 96 threads" in judgement.message


def test_an_arrival_without_waiting_orders_what_came_before_it() -> None:
    kernel = fragment(
        f"""
        warp 0:
        st.shared.b32 [buf], r1;
        bar.arrive 1, 64;
        {ELECT}[bar];
        warp 1:
        bar.sync 1, 64;
        ld.shared.b32 r4, [buf];
        W1: {WAIT}, [bar], 0; @!p bra W1;
        """
    )
    assert violated(kernel) == set()


def test_a_single_attempt_is_taken_to_fail() -> None:
    source = f"""
        warp 0:
        st.shared.b32 [buf], r1;
        {ELECT}[bar];
        warp 1:
        {WAIT}, [bar], 0;
        {{again}}
        ld.shared.b32 r4, [buf];
        """
    assert violated(fragment(source.format(again=f"@p bra GO; W1: {WAIT}, [bar], 0; @!p bra W1; GO:"))) == set()
    assert violated(fragment(source.format(again=""))) == {"MEM401"}


def test_copies_complete_their_bytes_before_the_phase_does() -> None:
    """The bulk load's write is ordered before a read behind the wait, and races with one ahead of it."""
    source = f"""
        warp 0:
        elect.sync _|q, -1;
        @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
        @q cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [gp], 2048, [bar];
        warp 1:
        {{early}}
        W1: {WAIT}, [bar], 0; @!p bra W1;
        ld.shared.b32 r4, [buf+2044];
        """
    assert violated(fragment(source.format(early=""))) == set()
    assert violated(fragment(source.format(early="ld.shared.b32 r4, [buf+2044];"))) == {"MEM401"}
    assert violated(fragment(source.format(early="ld.shared.b32 r4, [buf+2048];"))) == set()


@pytest.mark.parametrize(("drop", "stuck"), [("mbarrier.arrive_drop", False), ("mbarrier.arrive", True)])
def test_a_dropped_arrival_is_not_expected_again(drop: str, stuck: bool) -> None:
    kernel = fragment(
        f"""
        mov.u32 r4, %tid.x; setp.ne.u32 q2, r4, 0;
        @q2 bra READY;
        mbarrier.init.shared::cta.b64 [bar], 2;
        READY: bar.sync 0;
        warp 0:
        elect.sync _|q, -1;
        @q {drop}.shared::cta.b64 _, [bar];
        warp 1:
        elect.sync _|q, -1;
        @q mbarrier.arrive.shared::cta.b64 _, [bar];
        W0: {WAIT}, [bar], 0; @!p bra W0;
        @q mbarrier.arrive.shared::cta.b64 _, [bar];
        W1: {WAIT}, [bar], 1; @!p bra W1;
        """,
        init=False,
    )
    assert ("CTL703" in violated(kernel)) == stuck


def test_what_is_not_followed_leaves_all_open() -> None:
    source = f"""
        warp 0:
        {ELECT}[bar];
        {{more}}
        warp 1:
        W1: {WAIT}, [bar], 0; @!p bra W1;
        """
    assert {j.verdict for j in judge(fragment(source.format(more="")), "CTL703")} == {Verdict.PROVED}
    (judgement,) = judge(fragment(source.format(more="fabric.submit.commit_group;")), "CTL703")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "fabric.submit" in judgement.reason


def test_a_copy_to_a_peer_reads_its_source_until_the_peer_knows_it_complete() -> None:
    source = f"""
        cluster 2
        warp 0:
        mov.u32 r4, %cluster_ctarank;
        xor.b32 r5, r4, 1;
        mov.b32 r6, bar; mapa.shared::cluster.u32 r6, r6, r5;
        mov.b32 r7, buf2; mapa.shared::cluster.u32 r7, r7, r5;
        mov.b32 r8, buf;
        elect.sync _|q, -1;
        @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
        @q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r7], [r8], 2048, [r6];
        W0: {WAIT}, [bar], 0; @!p bra W0;
        {{sync}}
        st.shared.b32 [buf], r1;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        """
    both = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    assert violated(fragment(source.format(sync=both))) == set()
    assert violated(fragment(source.format(sync=""))) == {"MEM401"}
