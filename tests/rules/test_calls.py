"""Rules across calls: what stands in a device function counts, and nothing is decided across one that is not seen."""

from __future__ import annotations

import pytest

from tests.rules.example_kernel import complete
from tests.rules.fragments import kernel_of
from verifier.config import Policy
from verifier.findings import Verdict
from verifier.rules import find_rule, run_rules

MMA = """
warp 1:
L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
tcgen05.fence::after_thread_sync;
tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
"""
HANDOVER = """
warp 0:
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r2}}, [t];
{between}
tcgen05.fence::before_thread_sync;
mbarrier.arrive.shared::cta.b64 _, [bar];
"""
WAIT = ".func wait() { tcgen05.wait::ld.sync.aligned; ret; }"
NOTHING = ".func wait() { ret; }"
LOAD = """.func load(.param .b32 t) {
.reg .b32 a, v; ld.param.b32 a, [t]; tcgen05.ld.sync.aligned.32x32b.x1.b32 {v}, [a]; ret;
}"""
ARRIVE = """.func arrive(.param .b32 b) {
.reg .b32 a; .reg .pred p; ld.param.b32 a, [b]; tcgen05.fence::before_thread_sync; elect.sync _|p, -1;
@p mbarrier.arrive.shared::cta.b64 _, [a];
ret;
}"""
OUTSIDE = ".extern .func wait();"


def verdicts(code: str, functions: str, fragment: str) -> list[Verdict]:
    text, _ = complete(fragment, "sm_100a")
    text = text.replace(".visible .entry", f"{functions}\n.visible .entry", 1)
    return [o.verdict for o in run_rules(kernel_of(text), [find_rule(code)], Policy()).obligations]


@pytest.mark.parametrize(
    ("function", "verdict"), [(WAIT, Verdict.PROVED), (NOTHING, Verdict.VIOLATED), (OUTSIDE, Verdict.UNKNOWN)]
)
def test_the_wait_in_a_function(function: str, verdict: Verdict) -> None:
    fragment = HANDOVER.format(between="call wait;") + MMA
    assert verdicts("TCG101", function, fragment) == [verdict]


def test_a_load_in_a_function_is_not_missed() -> None:
    body = HANDOVER.format(between="").replace("tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];", "{CALL}")
    call = "{ .param .b32 x; st.param.b32 [x], t; call load, (x); }"
    assert verdicts("TCG101", LOAD, body.replace("{CALL}", call) + MMA) == [Verdict.VIOLATED]


@pytest.mark.parametrize(
    ("before", "verdict"), [("", Verdict.VIOLATED), ("tcgen05.wait::ld.sync.aligned;", Verdict.PROVED)]
)
def test_an_arrive_in_a_function_is_not_missed(before: str, verdict: Verdict) -> None:
    release = "mov.b32 r9, bar; { .param .b32 x; st.param.b32 [x], r9; call arrive, (x); }"
    body = f"warp 0:\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{r2}}, [t];\n{before}\n{release}\n"
    assert verdicts("TCG101", ARRIVE, body + MMA) == [verdict]
    assert verdicts("CTL703", ARRIVE, body + MMA) == [Verdict.PROVED]


def test_a_deadlock_in_a_function_is_not_missed() -> None:
    skipped = ARRIVE.replace("@p mbarrier.arrive.shared::cta.b64 _, [a];", "")
    release = "mov.b32 r9, bar; { .param .b32 x; st.param.b32 [x], r9; call arrive, (x); }"
    assert verdicts("CTL703", skipped, f"warp 0:\n{release}\n{MMA}") == [Verdict.VIOLATED]


@pytest.mark.parametrize("code", ["MBR201", "MBR203", "MBR204", "CTL703", "TCG103", "TCG104"])
def test_nothing_is_proved_across_a_function_that_is_not_seen(code: str) -> None:
    found = verdicts(code, OUTSIDE, HANDOVER.format(between="call wait;") + MMA)
    assert found
    assert set(found) == {Verdict.UNKNOWN}
