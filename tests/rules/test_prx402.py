"""Whose fence counts between a write to shared memory and a read of the async proxy."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

STORE = "cp.async.bulk.global.shared::cta.bulk_group [gp], [{}], 64;"
ISSUE = "setp.ne.u32 q, r0, 0; @q bra END;"
FENCE = "fence.proxy.async.shared::cta;"
WRITE = "st.shared.b32 [buf], r1;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar];"
WAIT = "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;"
MMA = "tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;"
DESCRIPTOR = "mov.u32 r9, {}; shr.u32 r9, r9, 4; cvt.u64.u32 ad, r9; mov.u64 bd, ad;"


def verdicts(*lines: str, arch: str = "sm_100a") -> list[Verdict]:
    return judge("PRX402", "\n".join(lines), arch)[0]


@pytest.mark.parametrize(
    ("fence", "expected"),
    [
        ("fence.proxy.async;", Verdict.PROVED),
        ("fence.proxy.async.shared::cta;", Verdict.PROVED),
        ("fence.proxy.async.global;", Verdict.VIOLATED),
        ("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;", Verdict.PROVED),
        ("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;", Verdict.VIOLATED),
        ("fence.proxy.alias;", Verdict.VIOLATED),
        ("fence.acq_rel.cta;", Verdict.VIOLATED),
        ("setp.eq.u32 q2, r0, 0; @q2 fence.proxy.async.shared::cta;", Verdict.VIOLATED),  # all lanes wrote
    ],
)
def test_which_fence_counts(fence: str, expected: Verdict) -> None:
    assert verdicts("warp 0:", WRITE, fence, "bar.warp.sync -1;", ISSUE, STORE.format("buf")) == [expected]


def test_a_write_after_the_fence_is_not_covered() -> None:
    assert verdicts("warp 0:", FENCE, WRITE, "bar.warp.sync -1;", ISSUE, STORE.format("buf")) == [Verdict.VIOLATED]


def test_a_path_around_the_fence_is_seen() -> None:
    skip = "ld.global.b32 r4, [gp]; setp.eq.u32 q2, r4, 0; @q2 bra PAST;"
    assert verdicts("warp 0:", WRITE, skip, FENCE, "PAST:", ISSUE, STORE.format("buf")) == [Verdict.VIOLATED]


def test_the_lane_that_wrote_alone_may_fence_alone() -> None:
    lines = ("warp 0:", ISSUE, WRITE, FENCE, STORE.format("buf"))
    assert verdicts(*lines) == [Verdict.PROVED]


def test_other_memory_is_no_obligation() -> None:
    assert verdicts("warp 0:", WRITE, "bar.warp.sync -1;", ISSUE, STORE.format("buf2")) == []
    assert verdicts("warp 0:", WRITE, "bar.warp.sync -1;", ISSUE, STORE.format("buf+64")) == []
    assert verdicts("warp 0:", "st.shared.b32 [buf+60], r1;", ISSUE, STORE.format("buf")) == [Verdict.VIOLATED]
    assert verdicts("warp 0:", "st.shared.b32 [buf+64], r1;", ISSUE, STORE.format("buf")) == []


@pytest.mark.parametrize(
    ("by_writer", "by_reader", "expected"),
    [(FENCE, "", Verdict.PROVED), ("", FENCE, Verdict.VIOLATED), ("", "", Verdict.VIOLATED)],
)
@pytest.mark.parametrize("read", [MMA, STORE.format("buf")])
def test_between_warps_the_writer_fences(by_writer: str, by_reader: str, expected: Verdict, read: str) -> None:
    writer = ("warp 1:", WRITE, by_writer, ARRIVE)
    reader = ("warp 0:", DESCRIPTOR.format("buf"), WAIT, by_reader, read)
    assert verdicts(*reader, *writer) == [expected]


def test_a_later_signal_that_is_fenced_justifies_the_read() -> None:
    second = "mbarrier.arrive.shared::cta.b64 _, [bar2];"
    again = "L2: mbarrier.try_wait.parity.shared::cta.b64 q, [bar2], 0; @!q bra L2;"
    writer = ("warp 1:", WRITE, ARRIVE, FENCE, second)
    assert verdicts("warp 0:", WAIT, again, STORE.format("buf"), *writer) == [Verdict.PROVED]
    assert verdicts("warp 0:", again, WAIT, STORE.format("buf"), *writer) == [Verdict.PROVED]
    assert verdicts("warp 0:", WAIT, STORE.format("buf"), *writer) == [Verdict.VIOLATED]


def test_what_cp_async_wrote_the_reader_may_fence() -> None:
    copy = "cp.async.ca.shared.global [buf], [gp], 4;\ncp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];"
    assert verdicts("warp 0:", WAIT, FENCE, STORE.format("buf"), "warp 1:", copy) == [Verdict.PROVED]
    assert verdicts("warp 0:", WAIT, STORE.format("buf"), "warp 1:", copy) == [Verdict.VIOLATED]


def test_swizzled_writes_are_compared_as_numbers() -> None:
    swizzled = "and.b32 r4, r0, 31; shl.b32 r4, r4, 4; mov.u32 r5, buf; add.u32 r4, r4, r5; shr.u32 r6, r4, 3;"
    store = "and.b32 r6, r6, 48; xor.b32 r4, r4, r6; st.shared.v4.b32 [r4], {r1, r1, r1, r1};"
    for target, expected in (
        ("buf", [Verdict.VIOLATED]),
        ("buf+448", [Verdict.VIOLATED]),
        ("buf+512", []),
        ("buf2", []),
    ):
        assert verdicts("warp 0:", swizzled, store, ISSUE, STORE.format(target)) == expected, target


def test_an_address_that_cannot_be_computed_is_unknown_only_without_a_fence() -> None:
    loaded = "ld.global.b32 r4, [gp]; st.shared.b32 [r4], r1;"
    assert verdicts("warp 0:", loaded, ISSUE, STORE.format("buf")) == [Verdict.UNKNOWN]
    assert verdicts("warp 0:", loaded, FENCE, ISSUE, STORE.format("buf")) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("signal", "wait", "expected"),
    [
        ("bar.sync 1, 64;", "bar.sync 1, 64;", Verdict.PROVED),
        (ARRIVE, WAIT, Verdict.PROVED),
        ("", "", Verdict.VIOLATED),
        (ARRIVE, "", Verdict.VIOLATED),
        ("", WAIT, Verdict.VIOLATED),
    ],
)
def test_the_issuer_waits_for_the_other_writers(signal: str, wait: str, expected: Verdict) -> None:
    assert verdicts("warp 0:", wait, STORE.format("buf"), "warp 1:", WRITE, FENCE, signal) == [expected]


def test_what_another_role_replaces_with_a_fence_is_left_open() -> None:
    reader = ("warp 0:", WAIT, DESCRIPTOR.format("buf"), MMA)
    stale = ("warp 1:", WRITE, "bar.sync 1, 64;", ARRIVE)
    fresh = ("warp 2:", "tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];", "bar.sync 1, 64;", WRITE)
    assert verdicts(*reader, *stale, *fresh, FENCE, ARRIVE) == [Verdict.UNKNOWN]
    assert verdicts(*reader, *stale, *fresh, ARRIVE) == [Verdict.VIOLATED]
    assert verdicts(*reader, *stale, *fresh[:-1], "st.shared.b32 [buf+64], r1;", FENCE, ARRIVE) == [Verdict.VIOLATED]


@pytest.mark.parametrize(("target", "expected"), [("buf", Verdict.UNKNOWN), ("buf2", Verdict.VIOLATED)])
def test_what_a_copy_replaces_is_left_open(target: str, expected: Verdict) -> None:
    copy = f"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{target}], [gp], 64, [bar2];"
    reader = ("warp 0:", WAIT, DESCRIPTOR.format("buf"), MMA)
    assert verdicts(*reader, "warp 1:", WRITE, ARRIVE, "warp 2:", ISSUE.replace("0;", "64;", 1), copy) == [expected]


@pytest.mark.parametrize(
    ("barrier", "fence", "expected"),
    [
        ("add.u32 r9, r9, 0;", "", Verdict.VIOLATED),
        ("ld.param.u32 r8, [p_gp]; add.u32 r9, r9, r8;", "", Verdict.UNKNOWN),
        ("ld.param.u32 r8, [p_gp]; add.u32 r9, r9, r8;", FENCE, Verdict.PROVED),
    ],
)
def test_a_signal_to_an_unknown_barrier_may_be_the_one(barrier: str, fence: str, expected: Verdict) -> None:
    writer = ("warp 0:", WRITE, fence, "bar.warp.sync -1;", "mov.u32 r9, bar;", barrier)
    arrive = "mbarrier.arrive.shared::cta.b64 _, [r9];"
    assert verdicts(*writer, arrive, "warp 1:", WAIT, STORE.format("buf")) == [expected]


@pytest.mark.parametrize(("fence", "expected"), [("", Verdict.VIOLATED), (FENCE, Verdict.PROVED)])
def test_a_generic_address_of_shared_memory_counts(fence: str, expected: Verdict) -> None:
    write = "mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1; st.b32 [rd1], r1;"
    assert verdicts("warp 0:", write, fence, "bar.warp.sync -1;", ISSUE, STORE.format("buf")) == [expected]
