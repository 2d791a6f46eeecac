"""Waits whose result nobody looks at, and which data they were meant to guard."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict


def trusted(start: int, limit: str = "") -> Verdict:
    """The verdict on one attempt, of which a loop that reads `buf` from `start` on takes no notice."""
    fragment = f"""
    warp 0:
    mov.b32 r5, {start};
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0{limit};
    mov.b32 r6, buf; add.u32 r6, r6, r5;
    ld.shared.b32 r2, [r6];
    add.u32 r5, r5, 64; setp.lt.u32 p, r5, 3072; @p bra L1;
    warp 1:
    st.shared.b32 [buf+2048], r2;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    """
    (verdict,), _ = judge("MBR201", fragment)
    return verdict


@pytest.mark.parametrize("limit", ["", ", 1000000", ", r3"])
def test_a_loop_reads_from_where_its_counter_starts(limit: str) -> None:
    assert trusted(2048, limit) is Verdict.VIOLATED


def test_a_loop_over_what_lies_behind_the_data_is_no_use_of_it() -> None:
    assert trusted(2304) is Verdict.PROVED


def test_whether_a_loop_that_starts_before_the_data_comes_to_it_is_left_open() -> None:
    assert trusted(1024) is Verdict.UNKNOWN
