"""The SASS tables: lookup by prefix, parts in synchronization, widths."""

from __future__ import annotations

import pytest

from verifier.isa.sass_ops import Latency, Part, Results, decode, opcodes
from verifier.isa.sass_regs import access_bytes, bundle_registers, launch_word, result_registers, source_registers


@pytest.mark.parametrize(
    ("opcode", "part"),
    [
        ("SYNCS.ARRIVE.TRANS64.A1T0", Part.BARRIER_ARRIVE),
        ("SYNCS.ARRIVE.TRANS64.RED.A0TR", Part.BARRIER_EXPECT),
        ("SYNCS.ARRIVE.TRANS64.RED.A0TX", Part.BARRIER_COMPLETE),
        ("SYNCS.ARRIVE.TRANS64.RED.A0T1", Part.BARRIER_PENDING),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", Part.BARRIER_WAIT),
        ("SYNCS.EXCH.64", Part.BARRIER_INIT),
        ("SYNCS.CCTL.IV", Part.BARRIER_INVAL),
        ("CCTL.IVALL", Part.CACHE_INVALIDATE),
        ("CCTL.E.C.LDCU.IV.DEEP", Part.CACHE_CONTROL),
        ("FENCE.VIEW.ASYNC.T", Part.TMEM_STORE_FENCE),
        ("FENCE.VIEW.ASYNC.S", Part.PROXY_FENCE),
        ("UTCATOMSWS.2CTA.FIND_AND_SET.ALIGN", Part.TMEM_ALLOC),
        ("UTCATOMSWS.AND", Part.TMEM_DEALLOC),
        ("UTMALDG.3D.MULTICAST.2CTA", Part.BULK_LOAD),
        ("UTMAREDG.5D.ADD", Part.BULK_STORE),
        ("UBLKCP.S.S", Part.BULK_PEER),
        ("UBLKCP.S.G.MULTICAST", Part.BULK_LOAD),
        ("BAR.ARV", Part.CTA_ARRIVE),
        ("BAR.RED.POPC.DEFER_BLOCKING", Part.CTA_SYNC),
        ("WARPGROUP.DEPBAR.LE", Part.WGMMA_WAIT),
        ("LDTM.STAT.x32.MAX.F32", Part.TMEM_LOAD),
        ("IMAD.MOV.U32", Part.PLAIN),
        ("FROBNICATE.64", Part.UNKNOWN),
    ],
)
def test_longest_prefix_decides(opcode: str, part: Part) -> None:
    assert decode(opcode).part is part


def test_an_unknown_opcode_may_write_its_first_operand_late() -> None:
    op = decode("FROBNICATE.64")
    assert not op.known
    assert (op.row.results, op.row.latency) == (Results.REGISTER, Latency.VARIABLE)


def test_every_row_says_where_it_comes_from() -> None:
    assert len(opcodes()) > 200
    assert all(row.source for row in opcodes().values())
    assert Part.UNKNOWN not in {row.part for row in opcodes().values()}


@pytest.mark.parametrize(
    ("opcode", "registers"),
    [
        ("LDTM.x32", 32),
        ("LDTM", 1),
        ("LDTM.16dp256bit.x4", 16),
        ("LDTM.16dp128bit.x2", 4),
        ("LDTM.16dp64bit", 1),
        ("LDG.E.128", 4),
        ("LDG.E.U16", 1),
        ("LDG.E.ENL2.256", 4),
        ("LDS.64", 2),
        ("LDSM.16.M88.4", 4),
        ("LDSM.8.MT1616.2", 4),
        ("IMAD.WIDE.U32", 2),
        ("IMAD.MOV.U32", 1),
        ("CS2R", 2),
        ("CS2R.32", 1),
        ("DFMA", 2),
        ("F2F.F64.F32", 2),
        ("F2F.F32.F64", 1),
        ("LDC.64", 2),
        ("LDCU.128", 4),
        ("HGMMA.64x128x16.F32.BF16", 64),
        ("HGMMA.64x128x16.F16", 32),
        ("HMMA.16816.F32.BF16", 4),
        ("HMMA.16816.F16", 2),
        ("SHF.R.U64", 1),
    ],
)
def test_result_widths(opcode: str, registers: int) -> None:
    assert result_registers(decode(opcode)) == registers


@pytest.mark.parametrize(
    ("opcode", "registers"),
    [
        ("STS.128", 4),
        ("STG.E", 1),
        ("STSM.16.MT88.4", 4),
        ("STTM.x8", 8),
        ("STAS.64", 2),
        ("REDG.E.ADD.F32x4.FTZ.RN", 4),
    ],
)
def test_stored_widths(opcode: str, registers: int) -> None:
    assert source_registers(decode(opcode), 0) == registers


def test_access_sizes_in_bytes() -> None:
    sizes = {text: access_bytes(decode(text)) for text in ("LDS", "LDS.U8", "STG.E.U16", "STG.E.ENL2.256", "STAS.128")}
    assert sizes == {"LDS": 4, "LDS.U8": 1, "STG.E.U16": 2, "STG.E.ENL2.256": 32, "STAS.128": 16}


def test_bulk_copies_name_groups_of_registers() -> None:
    assert bundle_registers(decode("UTMALDG.3D.2CTA"), 0) == 5
    assert bundle_registers(decode("UTMASTG.2D"), 0) == 3
    assert bundle_registers(decode("UBLKCP.S.G"), 0) == 2


def test_launch_words_move_between_architectures() -> None:
    assert launch_word(90, 0x0) == "ntid.x"
    assert launch_word(100, 0x0) is None
    assert launch_word(103, 0x364) == "ntid.y"
