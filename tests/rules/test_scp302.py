"""How an arrive must release what a peer CTA reads."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Profile, Severity, Verdict

HEAD = """cluster 2
warp 0:
mapa.shared::cluster.u32 r5, buf, 1;
mapa.shared::cluster.u32 r6, bar, 1;
mapa.shared::cluster.u32 r7, buf, 0;
"""
WAIT = "L1: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], 0; @!q bra L1;"
REMOTE = "st.shared::cluster.u32 [r5], r1;"
LOCAL = "st.shared.u32 [buf], r1;"
RESTRICTED = "fence.release.sync_restrict::shared::cta.cluster;"


def arrive(how: str) -> str:
    return f"mbarrier.arrive{how}.shared::cluster.b64 _, [r6];"


def verdicts(*lines: str) -> list[Verdict]:
    return judge("SCP302", HEAD + "\n".join(lines))[0]


@pytest.mark.parametrize(
    ("how", "fence", "expected"),
    [
        ("", "", Verdict.VIOLATED),  # the default is release.cta
        (".release.cta", "", Verdict.VIOLATED),
        (".release.cluster", "", Verdict.PROVED),
        (".relaxed.cluster", "", Verdict.VIOLATED),
        (".relaxed.cluster", "fence.acq_rel.cluster;", Verdict.PROVED),
        (".relaxed.cluster", "fence.release.gpu;", Verdict.PROVED),
        (".relaxed.cluster", "fence.acq_rel.cta;", Verdict.VIOLATED),
        (".relaxed.cluster", "fence.acquire.cluster;", Verdict.VIOLATED),
        (".release.cta", "fence.acq_rel.cluster;", Verdict.VIOLATED),  # the arrive itself must reach the peer
    ],
)
def test_forms_of_release(how: str, fence: str, expected: Verdict) -> None:
    assert verdicts(REMOTE, fence, arrive(how), WAIT, "ld.shared.b32 r2, [buf];") == [expected]


@pytest.mark.parametrize(
    ("write", "read", "expected"),
    [
        (LOCAL, "ld.shared::cluster.b32 r2, [r7];", Verdict.PROVED),
        (REMOTE, "ld.shared.b32 r2, [buf];", Verdict.VIOLATED),  # not an object of its own CTA
    ],
)
def test_the_restricted_fence_covers_own_memory_only(write: str, read: str, expected: Verdict) -> None:
    assert verdicts(write, RESTRICTED, arrive(".relaxed.cluster"), WAIT, read) == [expected]


def test_a_fence_before_the_write_covers_nothing() -> None:
    lines = ("fence.acq_rel.cluster;", REMOTE, arrive(".relaxed.cluster"), WAIT, "ld.shared.b32 r2, [buf];")
    assert verdicts(*lines) == [Verdict.VIOLATED]


def test_a_mere_count_is_reported_mildly() -> None:
    fragment = HEAD + "\n".join((arrive(""), WAIT))
    assert [f.severity for f in judge("SCP302", fragment)[1]] == [Severity.NOTE]
    assert [f.severity for f in judge("SCP302", fragment, profile=Profile.ISA)[1]] == [Severity.WARNING]
    assert verdicts(arrive(".relaxed.cluster"), WAIT) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("how", "fence", "expected"),
    [
        ("", "", Verdict.PROVED),  # the default is release
        (".relaxed", "", Verdict.VIOLATED),
        (".relaxed", "fence.acq_rel.cluster;", Verdict.PROVED),
    ],
)
@pytest.mark.parametrize(
    ("write", "read"), [(REMOTE, "ld.shared.b32 r2, [buf];"), (LOCAL, "ld.shared::cluster.b32 r2, [r7];")]
)
def test_the_cluster_barrier(how: str, fence: str, expected: Verdict, write: str, read: str) -> None:
    cross = f"barrier.cluster.arrive{how}.aligned; barrier.cluster.wait.aligned;"
    assert verdicts(write, fence, cross, read) == [expected]


def test_a_cluster_barrier_that_hands_nothing_over_is_no_obligation() -> None:
    assert verdicts(LOCAL, "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;") == []


FAR = "st.global.u32 [gp], r1;"
SOMEWHERE = "mov.u32 r9, %ctaid.x; mul.wide.u32 rd1, r9, 4; add.u64 rd1, gp, rd1; st.global.u32 [rd1], r1;"
OWN = SOMEWHERE.replace("ctaid.x", "cluster_ctarank")
FULL = "fence.acq_rel.cluster;"


@pytest.mark.parametrize(
    ("write", "how", "fence", "read", "expected"),
    [
        (FAR, ".release.cluster", "", "gp", Verdict.PROVED),
        (FAR, "", "", "gp", Verdict.VIOLATED),
        (FAR, ".relaxed.cluster", FULL, "gp", Verdict.PROVED),
        (FAR, ".relaxed.cluster", "", "gp", Verdict.VIOLATED),
        (FAR, ".relaxed.cluster", RESTRICTED, "gp", Verdict.VIOLATED),  # shared memory only
        (FAR, ".relaxed.cluster", RESTRICTED, "gp+4", Verdict.PROVED),
        (FAR, ".relaxed.cluster", RESTRICTED, "data", Verdict.PROVED),  # another pointer
        (SOMEWHERE, ".relaxed.cluster", RESTRICTED, "gp", Verdict.UNKNOWN),
        (SOMEWHERE, "", "", "gp", Verdict.UNKNOWN),
        (OWN, ".relaxed.cluster", RESTRICTED, "rd1", Verdict.UNKNOWN),  # each CTA has a word of its own
        (SOMEWHERE, ".relaxed.cluster", FULL, "gp", Verdict.PROVED),
        (FAR.replace(".global", ""), ".relaxed.cluster", RESTRICTED, "gp", Verdict.VIOLATED),
    ],
)
def test_global_memory_is_published_too(write: str, how: str, fence: str, read: str, expected: Verdict) -> None:
    assert verdicts(write, fence, arrive(how), WAIT, f"ld.global.b32 r2, [{read}];") == [expected]


def test_what_is_stored_after_the_arrive_is_not_published_by_it() -> None:
    assert verdicts(arrive(".relaxed.cluster"), FAR, WAIT, "ld.global.b32 r2, [gp];") == [Verdict.PROVED]
