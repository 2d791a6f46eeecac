"""Counters that grow from round to round, and loops whose state comes back."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts
from verifier.analyses.protocol.code import Code
from verifier.analyses.protocol.drift import amount

_RING = """.version 9.4
.target sm_100a
.address_size 64
.shared .align 1024 .b8 buf[8192];
.shared .align 8 .b64 full[2];
.shared .align 8 .b64 empty[2];
.visible .entry ring(.param .u32 rounds)
.reqntid 64, 1, 1
{{
.reg .pred p, q; .reg .b32 r<32>; .reg .b32 n, i, warp, stage, parity, at;
ld.param.u32 n, [rounds];
mov.u32 r0, %tid.x; shr.u32 warp, r0, 5; shfl.sync.idx.b32 warp, warp, 0, 31, -1;
setp.ne.u32 p, r0, 0;
@p bra READY;
mov.b32 r1, full; mbarrier.init.shared::cta.b64 [r1], 1; mbarrier.init.shared::cta.b64 [r1+8], 1;
mov.b32 r1, empty; mbarrier.init.shared::cta.b64 [r1], 1; mbarrier.init.shared::cta.b64 [r1+8], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
mov.b32 i, 0;
setp.ne.u32 p, warp, 0;
@p bra TAKE;
GIVE:
and.b32 stage, i, 1; shr.u32 parity, i, 1; and.b32 parity, parity, 1; xor.b32 parity, parity, 1;
shl.b32 stage, stage, 3;
mov.b32 r1, empty; add.u32 r1, r1, stage;
W0: mbarrier.try_wait.parity.shared::cta.b64 p, [r1], parity; @!p bra W0;
{address}
st.shared.b32 [at], i;
mov.b32 r1, full; add.u32 r1, r1, stage;
elect.sync _|q, -1;
@q mbarrier.arrive.shared::cta.b64 _, [r1];
add.u32 i, i, 1; setp.lt.u32 p, i, n;
@p bra GIVE;
ret;
TAKE:
and.b32 stage, i, 1; shr.u32 parity, i, 1; and.b32 parity, parity, 1;
shl.b32 stage, stage, 3;
mov.b32 r1, full; add.u32 r1, r1, stage;
W1: mbarrier.try_wait.parity.shared::cta.b64 p, [r1], parity; @!p bra W1;
{address}
ld.shared.b32 r2, [at];
mov.b32 r1, empty; add.u32 r1, r1, stage;
elect.sync _|q, -1;
@q mbarrier.arrive.shared::cta.b64 _, [r1];
add.u32 i, i, 1; setp.lt.u32 p, i, n;
@p bra TAKE;
ret;
}}
"""
_BY_STAGE = "mov.b32 at, buf; shl.b32 r3, stage, 4; add.u32 at, at, r3;"
_BY_COUNT = "mov.b32 at, buf; shl.b32 r3, i, 4; add.u32 at, at, r3;"


def test_a_ring_stepped_by_a_counter_recurs_after_two_turns() -> None:
    protocol = facts(_RING.format(address=_BY_STAGE)).protocol
    assert protocol is not None
    assert protocol.recurrence is not None
    assert protocol.recurrence.period == 4
    assert protocol.doubt == ""


def test_an_address_that_grows_does_not_recur() -> None:
    protocol = facts(_RING.format(address=_BY_COUNT)).protocol
    assert protocol is not None
    assert protocol.base is not None
    assert protocol.recurrence is None


@pytest.mark.parametrize(
    ("work", "still"),
    [
        ("and.b32 r2, r1, 7;", True),
        ("and.b32 r2, r1, 15;", False),
        ("shr.u32 r2, r1, 31; add.u32 r2, r1, r2; and.b32 r2, r2, -2; sub.u32 r2, r1, r2;", True),
        ("rem.u32 r2, r1, 4;", True),
        ("rem.u32 r2, r1, 3;", False),
        ("sub.u32 r2, r1, r3;", True),  # r3 moves by as much
        ("sub.u32 r2, r1, r4;", False),
        ("shl.b32 r2, r1, 2;", False),
    ],
)
def test_what_arithmetic_does_to_a_counter_that_moves_by_eight(work: str, still: bool) -> None:
    text = f"""
.version 9.4
.target sm_100a
.address_size 64
.shared .align 8 .b8 buf[64];
.visible .entry k()
{{
.reg .b32 r<8>;
{work}
mov.b32 r5, buf; add.u32 r5, r5, r2;
st.shared.b32 [r5], 1;
ret;
}}
"""
    kernel = facts(text)
    assert kernel.ptx is not None
    code = Code(kernel.ptx)
    slots = code.layout.registers
    moved = {slots[name]: 8 for name in ("r1", "r3") if name in slots}
    assert code.drift.stands_still(moved, {}, range(len(code.cfg.blocks))) == still


def test_amounts() -> None:
    assert amount(3, 11) == 8
    assert amount((1, 2), (3, 4)) == 2
    assert amount((1, 2), (3, 5)) is None
    assert amount((1, 2), (1, 2)) == 0
