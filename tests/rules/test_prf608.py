"""Where an acquire of a tensor map may stand in a loop."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Hazard, Severity, Verdict

ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [{}], 128;"
USE = "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [{}, {{r1}}], [buf];"
LOOP = "mov.b32 r4, 0;\nAGAIN:\n{}\nadd.u32 r4, r4, 1; setp.lt.u32 q, r4, 9;\n@q bra AGAIN;"
INNER = "mov.b32 r{0}, 0;\nINNER{0}:\n{1}\nadd.u32 r{0}, r{0}, 1; setp.lt.u32 q2, r{0}, 9;\n@q2 bra INNER{0};"
LOADED = "ld.global.b32 r6, [data]; mul.wide.s32 rd1, r6, 128; add.s64 rd1, rd1, gmap;"
COUNTED = "mul.wide.s32 rd1, r4, 128; add.s64 rd1, rd1, gmap;"


def verdicts(text: str) -> list[Verdict]:
    return judge("PRF608", f"warp 0:\n{text}")[0]


def test_before_the_loop_is_no_obligation() -> None:
    assert verdicts(ACQUIRE.format("gmap") + LOOP.format(USE.format("gmap"))) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ACQUIRE.format("gmap") + USE.format("gmap"), Verdict.VIOLATED),  # always the same map
        (COUNTED + ACQUIRE.format("rd1") + USE.format("rd1"), Verdict.PROVED),  # always another map
        (LOADED + ACQUIRE.format("rd1") + USE.format("rd1"), Verdict.VIOLATED),
        (LOADED + ACQUIRE.format("rd1") + INNER.format(5, USE.format("rd1")), Verdict.VIOLATED),  # one tile
        (LOADED + ACQUIRE.format("rd1") + INNER.format(5, INNER.format(7, USE.format("rd1"))), Verdict.PROVED),
        (INNER.format(5, ACQUIRE.format("gmap") + INNER.format(7, USE.format("gmap"))), Verdict.VIOLATED),
        (
            "tensormap.replace.tile.global_address.global.b1024.b64 [gmap], gp;\n"
            + ACQUIRE.format("gmap")
            + USE.format("gmap"),
            Verdict.PROVED,
        ),
    ],
)
def test_in_a_loop(body: str, expected: Verdict) -> None:
    assert verdicts(LOOP.format(body)) == [expected]


@pytest.mark.parametrize(
    ("test", "expected"), [("setp.eq.s32 p, r6, r5;", Verdict.PROVED), ("setp.lt.s32 p, r6, 0;", Verdict.VIOLATED)]
)
def test_a_skip_tests_for_equality(test: str, expected: Verdict) -> None:
    body = f"{LOADED}\n{test} @p bra SAME;\n{ACQUIRE.format('rd1')}\nSAME:\nmov.b32 r5, r6;\n{USE.format('rd1')}"
    assert verdicts("mov.b32 r5, -1;\n" + LOOP.format(body)) == [expected]


def test_it_is_a_note_about_cost() -> None:
    _, found = judge("PRF608", "warp 0:\n" + LOOP.format(ACQUIRE.format("gmap") + USE.format("gmap")))
    assert [(f.severity, f.hazard) for f in found] == [(Severity.NOTE, Hazard.PERFORMANCE)]
