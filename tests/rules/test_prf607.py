"""When a release at cluster scope is good for something."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Hazard, Severity, Verdict

HEAD = "cluster 2\nwarp 0:\nmapa.shared::cluster.u32 r5, buf, 1; mapa.shared::cluster.u32 r6, bar, 1;\n"
ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];"
WAIT = "L1: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t]; tcgen05.wait::ld.sync.aligned;"


def verdicts(text: str) -> list[Verdict]:
    return judge("PRF607", HEAD + text)[0]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", Verdict.VIOLATED),
        ("ld.global.b32 r2, [gp];", Verdict.VIOLATED),
        ("st.global.b32 [gp], r1;", Verdict.PROVED),
        ("st.shared.b32 [buf], r1;", Verdict.PROVED),
        ("red.global.add.u32 [gp], r1;", Verdict.PROVED),
        (f"{LOAD} tcgen05.fence::before_thread_sync;", Verdict.VIOLATED),
        (LOAD, Verdict.PROVED),  # the release stands in for the tcgen05 fence
        ("ld.shared.b32 r2, [buf2];", Verdict.VIOLATED),
    ],
)
def test_what_a_release_is_good_for(before: str, expected: Verdict) -> None:
    assert verdicts(f"{before}\n{ARRIVE}\n{WAIT}") == [expected]


def test_a_slot_that_a_peer_refills_is_released() -> None:
    refill = "warp 1:\nmapa.shared::cluster.u32 r5, buf, 1;\nst.shared::cluster.u32 [r5], r1;"
    assert verdicts(f"ld.shared.b32 r2, [buf];\n{ARRIVE}\n{WAIT}\n{refill}") == [Verdict.PROVED]


def test_what_another_warp_has_handed_over_is_published_too() -> None:
    writer = "warp 1:\nst.shared.b32 [buf], r1;\nbar.sync 1, 64;"
    assert verdicts(f"bar.sync 1, 64;\n{ARRIVE}\n{WAIT}\n{writer}") == [Verdict.PROVED]
    assert verdicts(f"{ARRIVE}\n{WAIT}\nbar.sync 1, 64;\n{writer}") == [Verdict.VIOLATED]


def test_it_is_a_note_about_cost() -> None:
    _, found = judge("PRF607", f"{HEAD}{ARRIVE}\n{WAIT}")
    assert [(f.severity, f.hazard) for f in found] == [(Severity.NOTE, Hazard.PERFORMANCE)]


def test_the_cluster_barrier_counts_in_loops_only() -> None:
    cross = "barrier.cluster.arrive{}.aligned; barrier.cluster.wait.aligned;"
    loop = "mov.b32 r4, 0;\nAGAIN:\n{}\nadd.u32 r4, r4, 1; setp.lt.u32 p, r4, 9;\n@p bra AGAIN;"
    assert verdicts(cross.format("")) == []
    assert verdicts(loop.format(cross.format(""))) == [Verdict.VIOLATED]
    assert verdicts(loop.format(cross.format(".relaxed"))) == []
