"""Which waits cover a bulk store before the exit of its thread."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Profile, Severity, Verdict

STORE = "cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;"
COMMIT = "cp.async.bulk.commit_group;"
ONE = "setp.ne.u32 q, r0, 0; @q bra END;"


def wait(number: int) -> str:
    return f"cp.async.bulk.wait_group.read {number};"


def verdicts(*lines: str) -> list[Verdict]:
    return judge("TMA501", "\n".join(("warp 0:", *lines)))[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((STORE, COMMIT, wait(0)), Verdict.PROVED),
        ((STORE, COMMIT, "cp.async.bulk.wait_group 0;"), Verdict.PROVED),
        ((STORE, COMMIT, wait(1)), Verdict.VIOLATED),
        ((STORE, COMMIT), Verdict.VIOLATED),
        ((STORE, wait(0)), Verdict.VIOLATED),  # its group is still open
        ((STORE, wait(0), COMMIT), Verdict.VIOLATED),
        ((STORE, COMMIT, COMMIT, wait(1)), Verdict.PROVED),  # an empty group is newer
        ((STORE, COMMIT, "setp.eq.u32 p, r0, 0; @!p bra END;", wait(0)), Verdict.PROVED),
        ((STORE, COMMIT, "ld.global.b32 r4, [gp]; setp.eq.u32 p, r4, 0; @p bra END;", wait(0)), Verdict.VIOLATED),
    ],
)
def test_groups_are_counted(lines: tuple[str, ...], expected: Verdict) -> None:
    assert verdicts(ONE, *lines) == [expected]


def test_the_wait_of_another_lane_does_not_count() -> None:
    split = "setp.ne.u32 q, r0, 0; @q bra OTHER;\n{}\nbra MEET;\nOTHER:\n{}\nMEET:\nbar.warp.sync -1;"
    assert verdicts(split.format(STORE + COMMIT, wait(0))) == [Verdict.VIOLATED]
    assert verdicts(split.format(STORE + COMMIT + wait(0), "")) == [Verdict.PROVED]


def test_the_wait_of_another_warp_does_not_count() -> None:
    text = f"warp 0:\n{ONE}\n{STORE}\n{COMMIT}\nbar.sync 1, 64;\nwarp 1:\nbar.sync 1, 64;\n{wait(0)}"
    assert judge("TMA501", text)[0] == [Verdict.VIOLATED]


def test_elected_lanes_are_the_same_lane() -> None:
    elect = "elect.sync _|q, -1;\n@q {}\n@q {}\nelect.sync _|q2, -1;\n@{} {}"
    assert verdicts(elect.format(STORE, COMMIT, "q2", wait(0))) == [Verdict.PROVED]
    assert verdicts(elect.format(STORE, COMMIT, "!q2", wait(0))) == [Verdict.VIOLATED]


def test_a_loop_may_leave_groups_pending_until_its_end() -> None:
    loop = "mov.b32 r4, 0;\nAGAIN:\n{}\n{}\n{}\nadd.u32 r4, r4, 1; setp.lt.u32 p, r4, r5;\n@p bra AGAIN;\n{}"
    assert verdicts("ld.global.b32 r5, [gp];", ONE, loop.format(STORE, COMMIT, wait(1), wait(0))) == [Verdict.PROVED]
    assert verdicts("ld.global.b32 r5, [gp];", ONE, loop.format(STORE, COMMIT, wait(1), "")) == [Verdict.VIOLATED]


def test_the_same_test_twice_has_one_answer() -> None:
    both = "ld.global.b32 r4, [gp]; setp.ne.u32 p, r4, 0; @p bra PAST;\n{}\nPAST:\n@p bra END;\n{}"
    assert verdicts(ONE, both.format(STORE + COMMIT, wait(0))) == [Verdict.PROVED]


def test_severity_follows_the_profile() -> None:
    fragment = f"warp 0:\n{ONE}\n{STORE}\n{COMMIT}"
    assert judge("TMA501", fragment)[1][0].severity is Severity.WARNING
    assert judge("TMA501", fragment, profile=Profile.ISA)[1][0].severity is Severity.ERROR
