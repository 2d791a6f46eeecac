"""Footprints of accesses to tensor memory, and the order that the protocol asks of them."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, judge
from verifier.findings import Verdict
from verifier.isa.ptx_ops import decode
from verifier.isa.tmem import load_store_columns

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
