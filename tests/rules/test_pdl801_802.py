"""What counts as a read, and as a write, of the memory that grids hand to each other."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

LATE = "griddepcontrol.wait;"
LOCAL = "mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1;"
REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [gp], [buf], 64;"


@pytest.mark.parametrize(
    "read",
    [
        "ld.global.b32 r2, [data];",
        "ld.b32 r2, [data];",
        "ld.global.u64 rd1, [data]; ld.b32 r2, [rd1];",
        "atom.global.add.u32 r2, [data], 1;",
        "atom.add.u32 r2, [data], 1;",
        "red.global.add.u32 [data], 1;",
        "cp.async.ca.shared.global [buf], [data], 4;",
        REDUCE,
    ],
)
def test_reads_of_global_memory_wait_for_the_prior_grid(read: str) -> None:
    early, _ = judge("PDL801", f"warp 0:\n{read}\n{LATE}")
    assert Verdict.VIOLATED in early
    late, _ = judge("PDL801", f"warp 0:\n{LATE}\n{read}")
    assert late
    assert set(late) == {Verdict.PROVED}


@pytest.mark.parametrize(
    "other",
    [
        f"{LOCAL} ld.b32 r2, [rd1];",
        f"{LOCAL} atom.add.u32 r2, [rd1], 1;",
        "ld.shared.b32 r2, [buf];",
        "mov.b64 rd1, p_map; cvta.param.u64 rd1, rd1; ld.b32 r2, [rd1];",
        "st.global.b32 [data], r1;",
        "prefetch.global.L2 [data];",
        "cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;",
    ],
)
def test_other_memory_may_be_read_before(other: str) -> None:
    assert judge("PDL801", f"warp 0:\n{other}\n{LATE}")[0] == []


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ("st.global.b32 [data], r1;", Verdict.VIOLATED),
        ("st.b32 [data], r1;", Verdict.VIOLATED),
        ("red.add.u32 [data], 1;", Verdict.VIOLATED),
        (f"{LOCAL} st.b32 [rd1], r1;", Verdict.PROVED),
        (f"{LOCAL} atom.add.u32 r2, [rd1], 1;", Verdict.PROVED),
    ],
)
def test_results_come_before_the_launch_of_dependents(write: str, expected: Verdict) -> None:
    assert judge("PDL802", f"warp 0:\ngriddepcontrol.launch_dependents;\n{write}")[0] == [expected]
