"""Boxes of tensor copies from stage gaps and expected bytes."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, fragment, judge, stored, swapped
from verifier.analyses.protocol.traffic import Boxes
from verifier.analyses.protocol.transactions import Bytes, Equation, Sum, _solve
from verifier.analyses.protocol.transactions import judge as judge_sum
from verifier.findings import Verdict

A, B, C = 1, 2, 3


def known(bounds: dict[int, int], *equations: Equation, tight: tuple[int, ...] = (A, B, C)) -> Bytes:
    lined = frozenset(tight)
    return Bytes(Boxes(_solve(set(equations), bounds, lined)), bounds, lined, ())


@pytest.mark.parametrize(
    ("bounds", "equation", "boxes"),
    [
        ({A: 16384, B: 32768}, Equation(49152, 0, ((A, 1), (B, 1))), {A: 16384, B: 32768}),
        ({A: 16384, B: 512}, Equation(2 * 16384 + 4 * 512, 0, ((A, 2), (B, 4))), {A: 16384, B: 512}),
        ({A: 16384, B: 1024}, Equation(16384 + 512, 0, ((A, 1), (B, 1))), {A: 16384, B: 512}),  # padded stage
        ({A: 16384}, Equation(16384 + 2048, 0, ((A, 1), (B, 1))), {A: 16384, B: 2048}),  # B has a single stage
        ({}, Equation(4096 + 100, 100, ((A, 2),)), {A: 2048}),
    ],
)
def test_boxes_that_balance(bounds: dict[int, int], equation: Equation, boxes: dict[int, int]) -> None:
    found = known(bounds, equation)
    assert found.boxes.loads == boxes
    assert judge_sum(equation, found) is Sum.EVEN


@pytest.mark.parametrize(
    ("expected", "tight", "verdict"),
    [
        (49152 + 16, (A, B), Sum.SHORT),
        (49152 - 16, (A, B), Sum.OVER_IF_DENSE),
        (49152 - 16, (A,), Sum.EVEN),  # nothing says that B's box fills its stage: it has what is left
    ],
)
def test_sums_that_do_not_balance(expected: int, tight: tuple[int, ...], verdict: Sum) -> None:
    equation = Equation(expected, 0, ((A, 1), (B, 1)))
    assert judge_sum(equation, known({A: 16384, B: 32768}, equation, tight=tight)) is verdict


@pytest.mark.parametrize("expected", [49152 + 16, 49152 - 16])
def test_copies_through_unknown_maps_are_not_called_wrong(expected: int) -> None:
    equation = Equation(expected, 0, ((A, 1), (-2, 1)))
    found = Bytes(Boxes(), {A: 16384, -2: 32768}, frozenset({A}), ())
    assert judge_sum(equation, found) is Sum.OPEN


def test_each_copy_through_an_unknown_map_has_a_box_of_its_own() -> None:
    kernel = fragment(
        """
        warp 0:
        ld.global.f32 f1, [data];
        cvt.rzi.u64.f32 rd4, f1;
        elect.sync _|q, -1;
        @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
        @q cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [buf], [rd4, {r1}], [bar];
        @q cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [buf+3072], [rd4+128, {r1}], [bar];
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        """
    )
    assert {j.verdict for j in judge(kernel, "MBR205")} == {Verdict.UNKNOWN}


def test_bytes_announced_to_a_phase_without_a_copy_are_the_tail_of_a_ring() -> None:
    assert judge_sum(Equation(1024, 0, ()), known({})) is Sum.EVEN


def test_the_gemm_has_the_boxes_of_its_tiles() -> None:
    protocol = facts(stored("gemm_persistent")).protocol
    assert protocol is not None
    assert protocol.bytes is not None
    assert sorted(protocol.bytes.boxes.loads.values()) == [128 * 64 * 2, 256 * 64 * 2]
    assert list(protocol.bytes.boxes.stores.values()) == [128 * 32 * 2]


def test_a_violation_that_rests_on_dense_stages_says_so() -> None:
    found = judge(facts(swapped(stored("gemm_persistent"), "49152", "49136")), "MBR205")
    assert {j.verdict for j in found} == {Verdict.VIOLATED}
    assert all("if each box fills its stage" in j.message for j in found)


def test_remote_stores_count_towards_the_mailbox() -> None:
    kernel = fragment(
        """
        cluster 2
        warp 0:
        mov.u32 r4, %cluster_ctarank;
        xor.b32 r5, r4, 1;
        mov.b32 r6, bar; mapa.shared::cluster.u32 r6, r6, r5;
        mov.b32 r7, buf; mapa.shared::cluster.u32 r7, r7, r5;
        mov.u32 r8, %laneid; shl.b32 r8, r8, 2; add.u32 r7, r7, r8;
        elect.sync _|q, -1;
        @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [r7], r1, [r6];
        W0: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [bar], 0; @!p bra W0;
        ld.shared.b32 r9, [buf];
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        """
    )
    assert {j.verdict for code in ("MBR205", "MEM401", "CTL703") for j in judge(kernel, code)} == {Verdict.PROVED}
