"""Footprints of accesses to tensor memory, and the order that the protocol asks of them."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, judge
from verifier.analyses.protocol.effects import KINDS
from verifier.findings import Verdict
from verifier.isa.ptx_ops import decode
from verifier.isa.tmem import load_store_columns, shifted_quarters
from verifier.model.events import Kind

ARRIVE = "tcgen05.fence::before_thread_sync; elect.sync _|q, -1; @q mbarrier.arrive.shared::cta.b64 _, [bar];"
WAIT = "L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1; tcgen05.fence::after_thread_sync;"
MMA = "mov.b32 id, 0x8020490; elect.sync _|q, -1; @q tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;"
EIGHT = "{r4, r5, r6, r7, r8, r9, r10, r11}"


def seen(code: str, *lines: str) -> set[Verdict]:
    return {judged.verdict for judged in judge(fragment("\n".join(lines)), code)}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x8.b32", 8),
        ("tcgen05.ld.sync.aligned.32x32b.x8.pack::16b.b32", 16),
        ("tcgen05.ld.sync.aligned.16x64b.x1.pack::16b.b32", 4),
        ("tcgen05.st.sync.aligned.16x256b.x2.b32", 16),
        ("tcgen05.st.sync.aligned.16x256b.x2.unpack::16b.b32", 32),
    ],
)
def test_packed_registers_reach_two_columns_each(opcode: str, expected: int) -> None:
    assert load_store_columns(decode(opcode)) == expected


@pytest.mark.parametrize(("packing", "late"), [("", False), (".pack::16b", True)])
def test_packed_load_of_columns_that_were_given_away(packing: str, late: bool) -> None:
    load = f"tcgen05.ld.sync.aligned.32x32b.x8{packing}.b32 {EIGHT}, [t]; tcgen05.wait::ld.sync.aligned;"
    verdicts = seen("TCG103", "warp 0:", ARRIVE, load, "warp 1:", WAIT, "add.u32 t, t, 8;", MMA)
    assert (Verdict.VIOLATED in verdicts) is late


@pytest.mark.parametrize(("address", "expected"), [(8, 0b1111), (0x400000, 0b1100), (0x600010, 0b1000)])
def test_a_shift_moves_rows_from_its_lane_on(address: int, expected: int) -> None:
    assert shifted_quarters(address) == expected


@pytest.mark.parametrize(
    ("write", "column", "late"),
    [
        ("tcgen05.cp.cta_group::1.128x256b [t], ad;", 7, True),
        ("tcgen05.shift.cta_group::1.down [t];", 7, True),
        ("tcgen05.shift.cta_group::1.down [t];", 8, False),
    ],
)
def test_a_copy_or_a_shift_of_columns_that_are_still_read(write: str, column: int, late: bool) -> None:
    load = f"add.u32 t, t, {column}; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r4}}, [t]; tcgen05.wait::ld.sync.aligned;"
    verdicts = seen("TCG103", "warp 0:", ARRIVE, load, "warp 1:", WAIT, "elect.sync _|q, -1;", f"@q {write}")
    assert (Verdict.VIOLATED in verdicts) is late


def test_every_kind_of_event_has_an_effect_or_is_known_to_have_none() -> None:
    assert frozenset(Kind) == KINDS


DESCRIPTOR = "mov.u32 r5, buf; shr.u32 r5, r5, 4; cvt.u64.u32 ad, r5;"
COPY = "elect.sync _|q, -1; @q tcgen05.cp.cta_group::1.128x256b [t], ad;"


@pytest.mark.parametrize(
    ("fence", "signal", "wait", "racing", "unfenced"),
    [
        ("fence.proxy.async.shared::cta;", ARRIVE, WAIT, False, False),
        ("", ARRIVE, WAIT, False, True),
        ("fence.proxy.async.shared::cta;", "", "", True, False),
    ],
)
def test_a_copy_into_tensor_memory_reads_shared_memory(
    fence: str, signal: str, wait: str, racing: bool, unfenced: bool
) -> None:
    lines = ("warp 0:", "st.shared.b32 [buf], r1;", fence, "bar.warp.sync -1;", signal, "warp 1:", DESCRIPTOR, wait)
    assert (Verdict.VIOLATED in seen("MEM401", *lines, COPY)) is racing
    assert (Verdict.VIOLATED in seen("PRX402", *lines, COPY)) is unfenced
