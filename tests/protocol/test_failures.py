"""Runs that go wrong although shorter ones end."""

from __future__ import annotations

import pytest

from tests.protocol.rings import NEVER, released_while, ring
from tests.protocol.support import facts, judge, swapped, verdicts
from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.failures import is_multiple
from verifier.analyses.protocol.scripts import Script
from verifier.findings import Verdict

STEERED = ("parameter", "shared memory", "global memory")


def protocol_of(text: str) -> Protocol:
    protocol = facts(text).protocol
    assert protocol is not None
    return protocol


def proved(kernel: KernelFacts) -> set[str]:
    return {code for code, seen in verdicts(kernel).items() if Verdict.PROVED in seen}


def deadlock(kernel: KernelFacts) -> Verdict:
    (judgement,) = judge(kernel, "CTL703")
    return judgement.verdict


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", STEERED)
def test_a_ring_that_gives_stages_back_is_proved(stages: int, count: str) -> None:
    assert deadlock(facts(ring(stages, count))) is Verdict.PROVED


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", STEERED)
def test_a_ring_that_gives_no_stage_back_hangs_though_short_runs_end(stages: int, count: str) -> None:
    kernel = facts(ring(stages, count, NEVER))
    assert deadlock(kernel) is Verdict.VIOLATED
    assert not proved(kernel)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("count", STEERED)
def test_a_hang_in_the_third_turn_of_the_ring_is_found(stages: int, count: str) -> None:
    kernel = facts(ring(stages, count, released_while(f"lt.u32 i, {2 * stages}")))
    assert deadlock(kernel) is Verdict.VIOLATED
    assert not proved(kernel)


def test_a_hang_in_one_late_round_is_found() -> None:
    assert deadlock(facts(ring(2, release=released_while("ne.u32 i, 13")))) is Verdict.VIOLATED


def test_stages_that_nobody_waits_for_again_need_not_be_given_back() -> None:
    release = "add.u32 r8, i, 2; setp.lt.u32 t, r8, m; and.pred q, q, t;"
    assert deadlock(facts(ring(2, release=release))) is Verdict.PROVED
    too_early = release.replace("i, 2", "i, 3")
    assert deadlock(facts(ring(2, release=too_early))) is Verdict.VIOLATED


def test_roles_that_count_by_different_inputs_leave_the_hang_open() -> None:
    """The giver stops after 4 rounds: whether `others` may be more is not in the code."""
    text = swapped(ring(2, "two parameters"), "setp.ge.u32 p, i, n;", "min.u32 n, n, 4;\nsetp.ge.u32 p, i, n;")
    kernel = facts(text)
    (judgement,) = judge(kernel, "CTL703")
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.reason.startswith("the run with parameters = ")
    assert judgement.reason.endswith(" hangs")
    assert not proved(kernel)


@pytest.mark.parametrize("mixed", ["", "add.u32 n, n, m; sub.u32 n, n, m; add.u32 m, m, n; sub.u32 m, m, n;"])
def test_one_of_two_inputs_that_belong_together_may_not_be_raised_alone(mixed: str) -> None:
    text = swapped(ring(4, "two parameters"), "mov.b32 i, 0;", f"{mixed} mov.b32 i, 0;")
    (judgement,) = judge(facts(text), "CTL703")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "= 640" in judgement.reason


def test_a_proof_names_the_corner_cases_that_it_leaves_out() -> None:
    (judgement,) = judge(facts(ring(2, "two parameters")), "CTL703")
    assert judgement.verdict is Verdict.PROVED
    assert judgement.reason.endswith("; except others+0 = 0, rounds+0 = 0: there it hangs")
    assert "inputs invented: parameters = 8" in judgement.reason


def test_a_proof_names_words_of_global_memory_that_were_invented() -> None:
    assert "words of global memory = 256, 512, ..." in protocol_of(ring(count="global memory")).claim
    assert "global memory" not in protocol_of(ring(count="shared memory")).claim


@pytest.mark.parametrize("name", ["full", "empty"])
def test_nothing_is_proved_when_longer_runs_use_a_stage_that_nobody_initializes(name: str) -> None:
    kernel = facts(ring(2, uninitialized=name))
    assert not proved(kernel)
    assert f"{name}+8, which is no initialised barrier" in judge(kernel, "CTL703")[0].reason


@pytest.mark.parametrize("name", ["full", "empty"])
def test_an_array_that_a_mask_bounds_may_be_longer_than_its_inits(name: str) -> None:
    """No comparison tells how far the stages go, so the array ends where its inits do; the runs go on."""
    wrap = "setp.eq.u32 q, stage, 4; @q mov.b32 stage, 0; @q xor.b32 parity, parity, 1;"
    mask = "and.b32 stage, stage, 3; setp.eq.u32 q, stage, 0; @q xor.b32 parity, parity, 1;"
    whole, short = (swapped(ring(4, uninitialized=left_out), wrap, mask) for left_out in ("", name))
    assert {judged.verdict for judged in judge(facts(whole), "MBR207")} == {Verdict.PROVED}
    assert {judged.verdict for judged in judge(facts(short), "MBR207")} == {Verdict.UNKNOWN}


def test_multiples_of_inputs_that_a_host_allows_are_allowed() -> None:
    script = Script(scalar=2, step=256, tiles=8, named=((("k", 0), 128),))
    assert is_multiple(Script(scalar=8, step=256, tiles=8, named=((("k", 0), 640),)), script)
    assert not is_multiple(Script(scalar=8, step=256, tiles=8), script)  # k = 8
    assert not is_multiple(Script(scalar=3, step=256, tiles=8, named=script.named), script)


@pytest.mark.parametrize(
    ("release", "any_number"),
    [
        ("", True),
        (released_while("lt.u32 i, 26"), False),
        (released_while("lt.u32 i, 1000"), False),
        (released_while("ne.u32 i, 100"), False),
        ("add.u32 r8, i, 2; setp.lt.u32 t, r8, m; and.pred q, q, t;", True),  # the same distance from the end
        ("shr.u32 r8, i, 5; setp.eq.u32 t, r8, 0; and.pred q, q, t;", False),
        ("setp.lt.u32 t, i, 40; @!t bra SKIP;\nSKIP:", True),  # decides nothing
    ],
)
def test_any_number_of_rounds_is_claimed_only_when_rounds_decide_alike(release: str, any_number: bool) -> None:
    protocol = protocol_of(ring(2, release=release))
    assert protocol.doubt == ""
    assert (protocol.recurrence is not None) == any_number
    assert ("up to" in protocol.claim) != any_number


def test_a_bound_is_the_number_of_rounds_that_were_run() -> None:
    assert "up to 8 rounds" in protocol_of(ring(count="constant")).claim


ENDLESS = {
    "bare": "L: bra L;",
    "counting": "L: add.u32 r7, r7, 1; bra L;",
    "writing global memory": "L: st.global.u32 [g], r7; bra L;",
    "nested": "L: setp.eq.u32 p, r7, 77; @p bra L; bra L;",
}


@pytest.mark.parametrize("loop", ENDLESS)
@pytest.mark.parametrize("lanes", ["setp.ne.u32 p, warp, 0;", "setp.eq.u32 p, r0, 33;"])
@pytest.mark.parametrize("before", ["", "bar.warp.sync -1;"])
def test_a_warp_in_a_loop_without_a_way_out_never_ends(loop: str, lanes: str, before: str) -> None:
    text = f"""
.version 9.4
.target sm_100a
.address_size 64
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 out)
.reqntid 64, 1, 1
{{
.reg .pred p, q; .reg .b32 r<8>, warp; .reg .b64 g;
ld.param.u64 g, [out]; mov.u32 r0, %tid.x; shr.u32 warp, r0, 5; mov.b32 r7, 0;
setp.ne.u32 p, r0, 0;
@p bra READY;
mov.b32 r1, bar; mbarrier.init.shared::cta.b64 [r1], 1;
READY: bar.sync 0;
{lanes}
@p bra IN;
ret;
IN: {before}
{ENDLESS[loop]}
}}
"""
    (judgement,) = judge(facts(text), "CTL703")
    assert judgement.verdict is Verdict.VIOLATED
    assert "never leaves an endless loop" in judgement.message


def test_a_warp_that_serves_for_ever_is_not_called_proved() -> None:
    text = ring().replace("NEXT:\nsetp.ge.u32 p, i, m;\n@p bra END;", "NEXT:")
    assert deadlock(facts(text)) is not Verdict.PROVED
