"""What may be read after a spin on a flag that does not acquire."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

SPIN = "L1: ld.relaxed.gpu.global.u32 r4, [flag]; setp.eq.u32 q, r4, 0; @q bra L1;"


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("ld.global.u32 r5, [data];", Verdict.VIOLATED),
        ("ld.global.nc.u32 r5, [data];", Verdict.UNKNOWN),
        ("ld.volatile.global.u32 r5, [data];", Verdict.UNKNOWN),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [data], 64, [bar];", Verdict.VIOLATED),
        ("fence.acq_rel.gpu; ld.global.u32 r5, [data];", Verdict.PROVED),
        ("ld.volatile.global.u32 r5, [data]; ld.global.u32 r6, [data+8];", Verdict.VIOLATED),
    ],
)
def test_a_read_after_a_spin(read: str, expected: Verdict) -> None:
    assert judge("SCP303", f"warp 0:\n{SPIN}\n{read}")[0] == [expected]


def test_words_polled_together_are_flags_not_data() -> None:
    both = "L1: ld.volatile.global.u32 r4, [flag]; ld.volatile.global.u32 r5, [flag+8];"
    test = "setp.eq.u32 q, r4, 0; setp.eq.u32 q2, r5, 0; or.pred q, q, q2; @q bra L1;"
    assert judge("SCP303", f"warp 0:\n{both}\n{test}")[0] == []
    assert Verdict.VIOLATED in judge("SCP303", f"warp 0:\n{both}\n{test}\nld.global.u32 r6, [data];")[0]
