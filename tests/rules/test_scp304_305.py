"""Relaxed waits and arrives inside one CTA: what passes through them needs a fence."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Profile, Severity, Verdict

READ = "ld.shared.b32 r2, [buf];"
WRITE = "st.shared.b32 [buf], r1;"
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [gp], 64, [bar];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;"


def wait(how: str, bar: str = "bar") -> str:
    return f"L1: mbarrier.try_wait.parity{how}.shared::cta.b64 q, [{bar}], 0; @!q bra L1;"


def arrive(how: str, bar: str = "bar") -> str:
    return f"mbarrier.arrive{how}.shared::cta.b64 _, [{bar}];"


def verdicts(code: str, *lines: str) -> list[Verdict]:
    return judge(code, "\n".join(lines))[0]


@pytest.mark.parametrize(
    ("how", "fence", "expected"),
    [
        ("", "", []),  # the default acquires: no obligation
        (".acquire.cta", "", []),
        (".relaxed.cta", "", [Verdict.VIOLATED]),
        (".relaxed.cluster", "", [Verdict.VIOLATED]),
        (".relaxed.cta", "fence.acq_rel.cta;", [Verdict.PROVED]),
        (".relaxed.cluster", "fence.acquire.cluster;", [Verdict.PROVED]),
        (".relaxed.cta", "fence.release.cta;", [Verdict.VIOLATED]),
    ],
)
@pytest.mark.parametrize("data", [(WRITE, arrive("")), (EXPECT, "setp.ne.u32 q, r0, 32; @q bra END;", LOAD)])
def test_what_a_wait_must_acquire(how: str, fence: str, expected: list[Verdict], data: tuple[str, ...]) -> None:
    assert verdicts("SCP304", "warp 0:", wait(how), fence, READ, "warp 1:", *data) == expected


def test_other_bytes_are_not_data_of_the_barrier() -> None:
    for other in ("ld.shared.b32 r2, [buf+4];", "ld.shared.b32 r2, [buf2];"):
        assert verdicts("SCP304", "warp 0:", wait(".relaxed.cta"), other, "warp 1:", WRITE, arrive("")) == [
            Verdict.PROVED
        ]


def test_tensor_memory_needs_no_acquire() -> None:
    load = "tcgen05.fence::after_thread_sync; tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];"
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];"
    assert verdicts("SCP304", "warp 0:", wait(".relaxed.cta"), load, "warp 1:", commit) == [Verdict.PROVED]


def test_a_refill_is_reported_mildly() -> None:
    fragment = "\n".join(("warp 0:", wait(".relaxed.cta"), WRITE, "warp 1:", READ, arrive("")))
    assert [f.severity for f in judge("SCP304", fragment)[1]] == [Severity.NOTE]
    assert [f.severity for f in judge("SCP304", fragment, profile=Profile.ISA)[1]] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("how", "fence", "expected"),
    [
        ("", "", []),
        (".release.cta", "", []),
        (".relaxed.cta", "", [Verdict.VIOLATED]),
        (".relaxed.cta", "fence.acq_rel.cta;", [Verdict.PROVED]),
        (".relaxed.cta", "fence.acquire.cta;", [Verdict.VIOLATED]),
        (".relaxed.cta", "fence.proxy.async.shared::cta;", [Verdict.VIOLATED]),
    ],
)
def test_what_an_arrive_must_release(how: str, fence: str, expected: list[Verdict]) -> None:
    assert verdicts("SCP305", "warp 0:", wait(""), READ, "warp 1:", WRITE, fence, arrive(how)) == expected


def test_the_slot_of_an_allocation_is_data() -> None:
    alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [buf], 64;"
    reader = ("warp 0:", wait(""), READ, "warp 1:")
    assert verdicts("SCP305", *reader, alloc, arrive(".relaxed.cta")) == [Verdict.VIOLATED]
    assert verdicts("SCP305", *reader, alloc, arrive(".relaxed.cta", "bar2")) == [Verdict.PROVED]


def test_freeing_a_stage_is_reported_mildly() -> None:
    fragment = "\n".join(("warp 0:", wait(""), WRITE, "warp 1:", READ, arrive(".relaxed.cta")))
    assert [f.severity for f in judge("SCP305", fragment)[1]] == [Severity.NOTE]
    assert [f.severity for f in judge("SCP305", fragment, profile=Profile.ISA)[1]] == [Severity.WARNING]
