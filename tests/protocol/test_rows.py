"""Accesses that are not one piece a lane: rows of matrices, and copies of nothing."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, violated

_ROWS = "mov.u32 r4, %laneid; shl.b32 r4, r4, 4; add.u32 r5, buf, r4;"


@pytest.mark.parametrize(("number", "registers", "rows"), [("x1", "{r1}", 8), ("x2", "{r1, r2}", 16)])
def test_lanes_beyond_the_rows_of_a_matrix_give_no_address(number: str, registers: str, rows: int) -> None:
    source = """
        warp 0:
        {rows}
        stmatrix.sync.aligned.m8n8.{number}.shared.b16 [r5], {registers};
        warp 1:
        ld.shared.b32 r6, [buf+{at}];
        """
    inside, outside = (
        fragment(source.format(rows=_ROWS, number=number, registers=registers, at=at))
        for at in (16 * rows - 4, 16 * rows)
    )
    assert violated(inside) == {"MEM401"}
    assert violated(outside) == set()


def test_a_matrix_is_loaded_by_rows_of_sixteen_bytes() -> None:
    source = """
        warp 0:
        {rows}
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{r6}}, [r5];
        warp 1:
        st.shared.b32 [buf+{at}], r1;
        """
    assert violated(fragment(source.format(rows=_ROWS, at=124))) == {"MEM401"}
    assert violated(fragment(source.format(rows=_ROWS, at=128))) == set()


def test_a_copy_of_no_bytes_completes_nothing() -> None:
    source = """
        warp 0:
        elect.sync _|q, -1;
        mov.b32 r4, {size};
        @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 0;
        @q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [data], r4, [bar];
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        """
    assert violated(fragment(source.format(size=0))) == set()
    assert violated(fragment(source.format(size=16))) != set()
