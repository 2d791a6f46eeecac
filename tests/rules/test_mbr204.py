"""Inits that are published by something no table knows."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from tests.rules.example_kernel import complete
from verifier.findings import Verdict

BETWEEN = """
warp 0:
mbarrier.init.shared::cta.b64 [bar], 1;
{}
warp 1:
{}
mbarrier.arrive.shared::cta.b64 _, [bar];
"""


@pytest.mark.parametrize(
    ("between", "verdict"),
    [
        ("bar.sync 1, 64;", Verdict.PROVED),
        ("", Verdict.VIOLATED),
        ("barrier.of.tomorrow r1;", Verdict.UNKNOWN),  # it may be what publishes the init
    ],
)
def test_what_stands_between_init_and_use(between: str, verdict: Verdict) -> None:
    text, _ = complete(BETWEEN.format(between, between), "sm_100a", init=False)
    assert {judged.verdict for judged in judge(facts(text), "MBR204")} == {verdict}
