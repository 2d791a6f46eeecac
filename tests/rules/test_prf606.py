"""When a proxy fence needs to cover global memory."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Hazard, Severity, Verdict

STORE = (
    "bar.warp.sync -1;\nsetp.ne.u32 q, r0, 0; @q bra END;\ncp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;"
)
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf2], [data], 64, [bar];"
WRITE = "st.shared.b32 [buf], r1;"
GLOBAL = "st.global.b32 [data], r2;"


def verdicts(*lines: str) -> list[Verdict]:
    return judge("PRF606", "\n".join(("warp 0:", *lines)))[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((WRITE, "fence.proxy.async;"), [Verdict.VIOLATED]),
        ((GLOBAL, WRITE, "fence.proxy.async;"), [Verdict.VIOLATED]),
        ((WRITE, "fence.proxy.async.shared::cta;"), [Verdict.PROVED]),
        ((WRITE, "fence.proxy.async.shared::cta;", "fence.proxy.async;"), [Verdict.PROVED]),
        (("fence.proxy.async;", WRITE), []),  # publishes nothing
    ],
)
def test_the_state_space_is_named(lines: tuple[str, ...], expected: list[Verdict]) -> None:
    assert verdicts(*lines, STORE) == expected


def test_what_a_bulk_load_may_read_is_published() -> None:
    assert verdicts(GLOBAL, WRITE, "fence.proxy.async;", STORE, LOAD) == [Verdict.PROVED]
    assert verdicts(WRITE, "fence.proxy.async;", STORE, LOAD) == [Verdict.VIOLATED]


def test_it_is_a_note_about_cost() -> None:
    _, found = judge("PRF606", f"warp 0:\n{WRITE}\nfence.proxy.async;\n{STORE}")
    assert [(f.severity, f.hazard) for f in found] == [(Severity.NOTE, Hazard.PERFORMANCE)]
