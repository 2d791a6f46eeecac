"""Footprints of accesses to tensor memory, and the order that the protocol asks of them."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, judge
from verifier.analyses.protocol.effects import KINDS
from verifier.findings import Verdict
from verifier.isa.ptx_ops import decode
from verifier.isa.tmem import load_store_columns, operand_columns, scale_columns, shifted_quarters
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


@pytest.mark.parametrize(
    ("shape", "written", "verdict"),
    [
        ("32x128b.warpx4", 0, Verdict.VIOLATED),
        ("32x128b.warpx4", 508, Verdict.VIOLATED),
        ("32x128b.warpx4", 512, Verdict.UNKNOWN),  # only if its rows do not lie one behind the other
        ("128x256b", 512, Verdict.VIOLATED),
    ],
)
def test_bytes_that_a_copy_reads_for_certain(shape: str, written: int, verdict: Verdict) -> None:
    copy = COPY.replace("128x256b", shape)
    store = f"st.shared.b32 [buf+{written}], r1;"
    found = seen("PRX402", "warp 0:", store, "bar.warp.sync -1;", ARRIVE, "warp 1:", DESCRIPTOR, WAIT, copy)
    assert found == {verdict}


STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [t+{}], {{r2}}; tcgen05.wait::st.sync.aligned;"
LEADER = "mov.b32 id, 0x8020490; elect.sync _|q, -1;"
PLAIN = "@q tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;"
FROM_TMEM = "@q tcgen05.mma.cta_group::1.kind::f16 [t], [t+32], bd, id, p;"
SCALED = "@q tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [t], ad, bd, id, [t+32], [t+48], p;"
COMMIT = "@q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar2];"
DONE = "L2: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra L2; tcgen05.fence::after_thread_sync;"


@pytest.mark.parametrize(
    ("column", "mma", "racing"),
    [
        (7, PLAIN, True),  # D
        (8, PLAIN, False),
        (39, FROM_TMEM, True),  # A: 8 columns
        (40, FROM_TMEM, False),
        (35, SCALED, True),  # scale factors of 128 rows of A: 4 columns
        (36, SCALED, False),
        (48, SCALED, True),  # of 8 columns of B: 1 column
        (49, SCALED, False),
    ],
)
def test_a_store_beside_an_mma(column: int, mma: str, racing: bool) -> None:
    store = STORE.format(column)
    assert (Verdict.VIOLATED in seen("TCG108", "warp 0:", store, "warp 1:", LEADER, mma)) is racing
    ordered = seen("TCG108", "warp 0:", store, ARRIVE, "warp 1:", WAIT, LEADER, mma)
    assert ordered == ({Verdict.PROVED} if racing else set())


@pytest.mark.parametrize(("first", "racing"), [("", True), (DONE, False)])
def test_a_store_over_what_an_mma_reads(first: str, racing: bool) -> None:
    store = STORE.format(32)
    again = STORE.format(36)
    lines = ("warp 0:", store, ARRIVE, first, again, "warp 1:", WAIT, LEADER, FROM_TMEM, COMMIT)
    assert (Verdict.VIOLATED in seen("TCG108", *lines)) is racing
    assert Verdict.VIOLATED not in seen("TCG103", *lines)  # not a load


@pytest.mark.parametrize(("order", "racing"), [(f"{WAIT}", True), (DONE, False)])
def test_mmas_of_two_warps_into_the_same_columns(order: str, racing: bool) -> None:
    arrive = "@q mbarrier.arrive.shared::cta.b64 _, [bar];"
    lines = ("warp 0:", LEADER, PLAIN, COMMIT, arrive, "warp 1:", order, LEADER, PLAIN)
    assert (Verdict.VIOLATED in seen("TCG108", *lines)) is racing


@pytest.mark.parametrize(("store", "verdicts"), [("", set()), (STORE.format(0), {Verdict.UNKNOWN, Verdict.PROVED})])
def test_an_unsized_operand_matters_where_others_write(store: str, verdicts: set[Verdict]) -> None:
    sparse = "@q tcgen05.mma.sp.cta_group::1.kind::f16 [t], [t+32], bd, [t+48], id, p;"
    lines = ("warp 0:", store, ARRIVE, "warp 1:", WAIT, LEADER, PLAIN, sparse)
    assert seen("TCG108", *lines) == verdicts


@pytest.mark.parametrize(
    ("opcode", "columns", "scales"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16", 8, (4, 1)),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X", None, (4, 1)),
        ("tcgen05.mma.sp.cta_group::1.kind::f16", None, None),
        ("tcgen05.mma.ws.cta_group::1.kind::f16", None, (4, 1)),
    ],
)
def test_columns_of_operands(opcode: str, columns: int | None, scales: tuple[int, int] | None) -> None:
    op = decode(opcode)
    assert operand_columns(op) == columns
    assert scale_columns(op, 0x8020490, 1) == scales


def test_columns_of_scale_factors() -> None:
    op = decode("tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16")
    wide = 256 // 16 << 24 | 256 // 8 << 17
    assert scale_columns(op, wide, 2) == (4, 8)
    assert scale_columns(op, wide | 1 << 31, 2) is None  # a longer step of K
