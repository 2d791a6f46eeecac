"""Stores to tensor memory: what completes them, and who reads them."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {r2}; tcgen05.wait::st.sync.aligned;"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {r3}, [t]; tcgen05.wait::ld.sync.aligned;"
ARRIVE = "tcgen05.fence::before_thread_sync; mbarrier.arrive.shared::cta.b64 _, [bar];"
WAIT = "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1; tcgen05.fence::after_thread_sync;"
MMA = "tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (STORE, Verdict.UNKNOWN),  # no MMA can have begun: nobody has been told of the store
        (f"{STORE} {ARRIVE}", Verdict.VIOLATED),
        ("", Verdict.VIOLATED),
    ],
)
def test_a_load_of_what_the_warp_stored_itself(first: str, expected: Verdict) -> None:
    assert judge("TCG106", "\n".join(("warp 0:", first, LOAD, "warp 1:", WAIT, MMA)))[0] == [expected]


@pytest.mark.parametrize(
    ("again", "expected"),
    [("", Verdict.PROVED), ("ld.global.b32 r4, [gp]; setp.gt.s32 q2, r4, 0;", Verdict.VIOLATED)],
)
def test_the_same_branch_guards_the_store_and_its_wait(again: str, expected: Verdict) -> None:
    lines = (
        "warp 0:",
        "ld.global.b32 r4, [gp]; setp.gt.s32 q2, r4, 0;",
        "@q2 bra ONE;",
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {r2};",
        "ONE:",
        again,
        "@q2 bra TWO;",
        "tcgen05.wait::st.sync.aligned;",
        "TWO:",
        ARRIVE,
        "warp 1:",
        WAIT,
        MMA,
    )
    assert judge("TCG105", "\n".join(lines))[0] == [expected]
