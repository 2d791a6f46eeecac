"""The state space of generic accesses."""

from __future__ import annotations

import pytest

from tests.rules.example_kernel import complete
from tests.rules.fragments import judge, kernel_of
from verifier.findings import Verdict
from verifier.model.events import Kind, in_shared

SHARED = "mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1;"


@pytest.mark.parametrize(
    ("lines", "space"),
    [
        (SHARED, "shared"),
        ("mov.u32 r4, buf; cvt.u64.u32 rd1, r4; cvta.shared.u64 rd1, rd1;", "shared"),
        ("cvt.u64.u32 rd2, r0; mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1; add.u64 rd1, rd1, rd2;", "shared"),
        ("cvt.u64.u32 rd1, r0; cvta.shared.u64 rd1, rd1;", "shared"),  # whatever is computed: cvta says it
        ("mov.u64 rd1, buf; cvta.shared.u64 rd1, rd1; mapa.u64 rd1, rd1, 1;", "shared::cluster"),
        (f"{SHARED} @p mov.u64 rd1, gp;", "shared"),  # it may be
        (f"{SHARED} @p bra PAST; add.u64 rd1, rd1, 8; PAST:", "shared"),
        ("mov.u64 rd1, gp;", "global"),
        ("mul.wide.u32 rd2, r0, 4; add.u64 rd1, gp, rd2;", "global"),
        ("mov.b64 rd1, p_map; cvta.param.u64 rd1, rd1;", "param"),
        ("ld.global.u64 rd1, [gp];", None),
    ],
)
@pytest.mark.parametrize("access", ["ld.b32 r9, [rd1];", "st.b32 [rd1], r9;", "atom.add.u32 r9, [rd1], 1;"])
def test_space_of_a_generic_address(lines: str, space: str | None, access: str) -> None:
    text, _ = complete(f"cluster 2\nwarp 0:\n{lines}\n{access}", "sm_100a")
    model = kernel_of(text).ptx
    assert model is not None
    (found,) = [e for e in model.events if e.opcode in ("ld.b32", "st.b32", "atom.add.u32")]
    assert found.kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC)
    assert found.space == space
    assert in_shared(found) == (space or "").startswith("shared")
    assert in_shared(found, perhaps=True) == (space is None or space.startswith("shared"))


def test_generic_accesses_race() -> None:
    read = f"warp 1:\n{SHARED}\nld.b32 r2, [rd1];"
    assert judge("MEM401", f"warp 0:\nst.shared.b32 [buf], r1;\n{read}")[0] == [Verdict.VIOLATED]
    assert Verdict.VIOLATED not in judge("MEM401", f"warp 0:\nst.shared.b32 [buf+64], r1;\n{read}")[0]
    write = f"warp 1:\n{SHARED}\nst.b32 [rd1], r2;"
    assert judge("MEM401", f"warp 0:\nst.shared.b32 [buf], r1;\n{write}")[0] == [Verdict.VIOLATED]
