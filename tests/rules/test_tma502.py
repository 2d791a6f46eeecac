"""When shared memory may be written again after a bulk store from it."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

STORE = "cp.async.bulk.global.shared::cta.bulk_group [gp], [{}], 64;"
COMMIT = "cp.async.bulk.commit_group;"
ONE = "setp.ne.u32 q, r0, 0; @q bra END;"
WRITE = "st.shared.b32 [buf], r1;"

# A ring of `stages` stages of 64 bytes, filled and stored in a loop of unknown length; r4 is the stage.
RING = """warp 0:
setp.ne.u32 q, r0, 0; @q bra END;
ld.global.b32 r6, [gp];
mov.b32 r4, 0; mov.b32 r5, 0;
AGAIN:
mov.u32 r7, buf; mad.lo.u32 r7, r4, 64, r7;
st.shared.b32 [r7], r1;
cp.async.bulk.global.shared::cta.bulk_group [gp], [r7], 64;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read NEWEST;
add.u32 r8, r4, 1; setp.eq.u32 p, r8, STAGES; selp.b32 r4, 0, r8, p;
add.u32 r5, r5, 1; setp.lt.u32 p, r5, r6;
@p bra AGAIN;
"""


def wait(number: int) -> str:
    return f"cp.async.bulk.wait_group.read {number};"


def verdicts(*lines: str) -> list[Verdict]:
    return judge("TMA502", "\n".join(lines))[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((COMMIT, wait(0), WRITE), Verdict.PROVED),
        ((COMMIT, wait(1), WRITE), Verdict.VIOLATED),
        ((wait(0), WRITE), Verdict.VIOLATED),
        ((COMMIT, WRITE, wait(0)), Verdict.VIOLATED),
        ((COMMIT, "st.shared.b32 [buf+64], r1;"), Verdict.PROVED),  # past the 64 bytes of the copy
        ((COMMIT, "st.shared.b32 [buf+60], r1;"), Verdict.VIOLATED),
        ((COMMIT, STORE.format("buf2"), COMMIT, wait(1), WRITE), Verdict.PROVED),
        ((COMMIT, "cp.async.ca.shared.global [buf], [gp], 4;"), Verdict.VIOLATED),
    ],
)
def test_a_straight_line(lines: tuple[str, ...], expected: Verdict) -> None:
    assert verdicts("warp 0:", ONE, STORE.format("buf"), *lines)[0] is expected


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_ring_takes_one_group_less_than_it_has_stages(stages: int, newest: int) -> None:
    expected = Verdict.PROVED if newest < stages else Verdict.VIOLATED
    assert verdicts(RING.replace("STAGES", str(stages)).replace("NEWEST", str(newest))) == [expected]


def test_a_bulk_load_into_the_stage_is_a_write() -> None:
    load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [gp], 64, [bar];"
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, wait(1), load) == [Verdict.VIOLATED]
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, wait(0), load) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(wait(0), "", Verdict.PROVED), ("", wait(0), Verdict.VIOLATED), (wait(1), "", Verdict.VIOLATED)],
)
@pytest.mark.parametrize(
    ("signal", "receive"),
    [
        ("bar.sync 1, 64;", "bar.sync 1, 64;"),
        ("bar.arrive 1, 64;", "bar.sync 1, 64;"),
        (
            "mbarrier.arrive.shared::cta.b64 _, [bar];",
            "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;",
        ),
    ],
)
def test_another_warp_is_let_go_after_the_wait(
    before: str, after: str, expected: Verdict, signal: str, receive: str
) -> None:
    issuer = f"setp.ne.u32 q, r0, 0; @q bra PAST;\n{STORE.format('buf')}\n{COMMIT}\n{before}\nPAST:\n{signal}\n{after}"
    assert verdicts("warp 0:", issuer, "warp 1:", receive, WRITE) == [expected]


def test_the_wait_of_another_lane_does_not_count() -> None:
    split = "setp.ne.u32 q, r0, 0; @q bra OTHER;\n{}\nbra MEET;\nOTHER:\n{}\nMEET:\nbar.warp.sync -1;\n" + WRITE
    assert verdicts("warp 0:", split.format(STORE.format("buf") + COMMIT, wait(0))) == [Verdict.VIOLATED]
    assert verdicts("warp 0:", split.format(STORE.format("buf") + COMMIT + wait(0), "")) == [Verdict.PROVED]


def test_an_address_without_a_number_is_unknown() -> None:
    loaded = "ld.global.b32 r4, [gp]; st.shared.b32 [r4], r1;"
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, loaded) == [Verdict.UNKNOWN]
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, wait(0), loaded) == [Verdict.PROVED]


@pytest.mark.parametrize(("gate", "expected"), [("bar.sync 1, 64;", False), ("", True)])
def test_a_wait_that_lies_behind_the_other_warp_hears_no_later_signal(gate: str, expected: bool) -> None:
    lines = (
        "threads 64",
        "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 1; @!q bra L1;",
        WRITE,
        "fence.proxy.async.shared::cta;",
        gate,
        "setp.ne.u32 q, r0, 0; @q bra PAST;",
        STORE.format("buf"),
        COMMIT,
        "mbarrier.arrive.shared::cta.b64 _, [bar];",
        wait(0),
        "PAST: bar.sync 2, 64;",
    )
    assert (Verdict.VIOLATED in verdicts(*lines)) is expected


@pytest.mark.parametrize(
    ("first", "least", "expected"),
    [
        ("mov.b32 r5, 0;", 2, Verdict.PROVED),  # two stages are free at first
        ("mov.b32 r5, 0;", 3, Verdict.VIOLATED),
        ("ld.global.b32 r5, [gp+4];", 2, Verdict.UNKNOWN),
    ],
)
def test_a_wait_that_the_first_rounds_skip(first: str, least: int, expected: Verdict) -> None:
    lines = (
        "warp 0:",
        ONE,
        "ld.global.b32 r6, [gp]; mov.b32 r4, 0;",
        first,
        f"AGAIN: setp.lt.s32 p, r5, {least}; @p bra FREE;",
        wait(1),
        "FREE: mov.u32 r7, buf; mad.lo.u32 r7, r4, 64, r7;",
        "st.shared.b32 [r7], r1;",
        STORE.format("r7"),
        COMMIT,
        "xor.b32 r4, r4, 1; add.s32 r5, r5, 1; setp.lt.s32 p, r5, r6; @p bra AGAIN;",
    )
    assert verdicts(*lines) == [expected]


def test_an_unresolved_barrier_may_let_the_writer_go() -> None:
    issue = ("warp 0:", ONE, STORE.format("buf"), COMMIT, "mov.u32 r9, bar;")
    unknown = "ld.param.u32 r8, [p_gp]; add.u32 r9, r9, r8;"
    arrive = "mbarrier.arrive.shared::cta.b64 _, [r9];"
    wait_ = "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;"
    rest = (wait(0), "warp 1:", wait_, WRITE)
    assert verdicts(*issue, arrive, *rest) == [Verdict.VIOLATED]
    assert verdicts(*issue, unknown, arrive, *rest) == [Verdict.UNKNOWN]
    assert verdicts(*issue, unknown, wait(0), arrive, *rest) == [Verdict.PROVED]


def test_a_generic_store_to_shared_memory_is_a_write() -> None:
    generic = "mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1; st.b32 [rd1], r1;"
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, generic, wait(0)) == [Verdict.VIOLATED]
    assert verdicts("warp 0:", ONE, STORE.format("buf"), COMMIT, wait(0), generic) == [Verdict.PROVED]
