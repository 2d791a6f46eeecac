"""Accesses whose bytes are not a register's width: st.bulk, matrices of wmma, and .mmio stores that name no barrier."""

from __future__ import annotations

import pytest

from tests.protocol.support import fragment, judge
from verifier.findings import Verdict
from verifier.isa.ptx_ops import decode
from verifier.isa.wmma import matrix_bytes

EIGHT = "{f0, f1, f2, f3, f4, f5, f6, f7}"
STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [buf], {EIGHT}"
LOAD = "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {f0, f1, f2, f3, f4, f5, f6, f7}, [buf]"
CLEAR = "setp.eq.u32 q, r0, 0; @q st.bulk.weak.shared::cta [buf], rd1, 0;"
SIZE = "mov.b64 rd1, 1024;"


def seen(code: str, *lines: str) -> set[Verdict]:
    return {judged.verdict for judged in judge(fragment("\n".join(lines)), code)}


@pytest.mark.parametrize(
    ("opcode", "stride", "expected"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", None, 512),
        ("wmma.load.a.sync.aligned.row.m32n8k16.shared.s8", 16, 512),
        ("wmma.load.b.sync.aligned.col.m8n32k16.shared.bf16", 16, 1024),
        ("wmma.load.b.sync.aligned.col.m8n8k32.shared.s4", None, 128),
        ("wmma.load.a.sync.aligned.row.m8n8k128.shared.b1", None, 128),
        ("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32", 32, None),
        ("wmma.store.d.sync.aligned.col.m32n8k16.shared.f32", 32, 1024),
        ("wmma.store.d.sync.aligned.row.m8n8k4.shared.f64", None, 512),
    ],
)
def test_bytes_of_a_matrix_without_gaps(opcode: str, stride: int | None, expected: int | None) -> None:
    assert matrix_bytes(decode(opcode), stride) == expected


@pytest.mark.parametrize(
    ("first", "second", "offset", "racing"),
    [
        (f"{SIZE} {CLEAR}", "ld.shared.b32 r2, [buf+{}];", 1020, True),
        (f"{SIZE} {CLEAR}", "ld.shared.b32 r2, [buf+{}];", 1024, False),
        (f"{STORE};", "ld.shared.b32 r2, [buf+{}];", 1020, True),
        (f"{STORE};", "ld.shared.b32 r2, [buf+{}];", 1024, False),
        (f"{LOAD};", "st.shared.b32 [buf+{}], r1;", 1020, True),
        (f"{LOAD};", "st.shared.b32 [buf+{}], r1;", 1024, False),
    ],
)
def test_races_with_the_last_byte_and_not_behind_it(first: str, second: str, offset: int, racing: bool) -> None:
    verdicts = seen("MEM401", "warp 0:", first, "warp 1:", second.format(offset))
    assert (Verdict.VIOLATED in verdicts) is racing


@pytest.mark.parametrize("first", [f"{STORE}, r3;", f"{LOAD}, 20;", f"mov.u64 rd1, %clock64; {CLEAR}"])
def test_what_cannot_be_sized_is_undecided(first: str) -> None:
    verdicts = seen("MEM401", "warp 0:", first, "warp 1:", "st.shared.b32 [buf+2048], r1;")
    assert Verdict.UNKNOWN in verdicts
    assert Verdict.VIOLATED not in verdicts


def test_st_bulk_writes_zeros() -> None:
    lines = ("warp 0:", SIZE, CLEAR, "ld.shared.b32 r4, [buf+8]; setp.ne.u32 q2, r4, 0; @q2 bar.sync 1, 64;")
    assert seen("CTL703", *lines) == {Verdict.PROVED}


BULK_STORE = "cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64; cp.async.bulk.commit_group;"


@pytest.mark.parametrize("write", [f"{STORE};", f"{SIZE} {CLEAR}"])
def test_an_unfenced_source_of_a_bulk_store(write: str) -> None:
    lines = ("warp 0:", write, "{}", "bar.warp.sync -1;", "setp.ne.u32 q, r0, 0; @q bra END;", BULK_STORE)
    assert Verdict.VIOLATED in seen("PRX402", *(line.format("") for line in lines[2:3]), *lines[:2], *lines[3:])
    assert seen("PRX402", *lines[:2], "fence.proxy.async.shared::cta;", *lines[3:]) == {Verdict.PROVED}


@pytest.mark.parametrize("write", [f"{STORE};", f"{SIZE} {CLEAR}"])
def test_a_bulk_store_whose_source_is_written_again(write: str) -> None:
    lines = ("warp 0:", "setp.ne.u32 q, r0, 0;", "@q bra NEXT;", BULK_STORE, "{}", "NEXT:", "bar.warp.sync -1;", write)
    wait = "cp.async.bulk.wait_group.read 0;"
    assert Verdict.VIOLATED in seen("TMA502", *(line.replace("{}", "") if line == "{}" else line for line in lines))
    assert seen("TMA502", *(wait if line == "{}" else line for line in lines)) == {Verdict.PROVED}


def test_a_matrix_from_and_to_global_memory() -> None:
    load = "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {f0, f1, f2, f3, f4, f5, f6, f7}, [data];"
    store = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [data], {EIGHT};"
    wait = "griddepcontrol.wait;"
    assert seen("PDL801", "warp 0:", load, wait) == {Verdict.VIOLATED}
    assert seen("PDL801", "warp 0:", wait, load) == {Verdict.PROVED}
    assert seen("PDL802", "warp 0:", "griddepcontrol.launch_dependents;", store) == {Verdict.VIOLATED}
    assert seen("PDL802", "warp 0:", store, "griddepcontrol.launch_dependents;") == {Verdict.PROVED}


@pytest.mark.parametrize("code", ["MEM401", "PDL802", "SCP304"])
@pytest.mark.parametrize("write", ["st.async.mmio.release.sys.global.b32", "red.async.mmio.release.sys.global.add.u32"])
def test_mmio_stores_complete_on_no_barrier(code: str, write: str) -> None:
    verdicts = seen(
        code, "griddepcontrol.launch_dependents;", "warp 0:", f"{write} [data], r1;", "st.shared.b32 [buf], r1;"
    )
    assert (Verdict.VIOLATED in verdicts) is (code == "PDL802")
    assert Verdict.UNKNOWN not in verdicts


@pytest.mark.parametrize("access", [STORE, LOAD, STORE.replace(".aligned", ""), LOAD.replace(".aligned", "")])
def test_a_matrix_needs_the_whole_warp(access: str) -> None:
    branch = ("warp 0:", "setp.lt.u32 q, r0, 5;", "@q bra NEXT;")
    assert Verdict.VIOLATED in seen("CTL701", *branch, f"{access};", "NEXT:")
    assert Verdict.VIOLATED not in seen("CTL701", *branch, "NEXT:", f"{access};")
