"""What SASS instructions mean, in the vocabulary of events."""

from __future__ import annotations

import pytest

from tests.model.test_lower_sass import lower
from verifier.model.events import Event, Kind
from verifier.model.lift_sass import lift_sass
from verifier.model.program import AddressExpr, Const, Reg


def lift(*code: str) -> list[Event]:
    return list(lift_sass(lower(*code)))


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("LDTM.x4 R4, tmem[UR8+0x20]", Kind.TMEM_LOAD, {"address": AddressExpr((Reg("UR8"),), 0x20)}),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR10+0x48], RZ", Kind.BARRIER_ARRIVE, {"count": Const(1), "size": None}),
        ("SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR10], R3", Kind.BARRIER_ARRIVE, {"count": Reg("R3"), "size": None}),
        ("SYNCS.ARRIVE.TRANS64.ACT0 RZ, [UR10], RZ", Kind.BARRIER_ARRIVE, {"count": None}),
        ("SYNCS.ARRIVE.TRANS64 RZ, [UR10], R3", Kind.BARRIER_ARRIVE, {"count": Const(1), "size": Reg("R3")}),
        ("SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [R1], R3", Kind.BARRIER_EXPECT, {"size": Reg("R3")}),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR1], R2", Kind.BARRIER_WAIT, {"registers": ("P0",)}),
        ("UTMALDG.2D [UR16], [UR12], desc[URZ]", Kind.BULK_LOAD, {"barrier": AddressExpr((Reg("UR17"),))}),
        ("UTMASTG.2D [UR12], [UR18], desc[URZ]", Kind.BULK_STORE, {"source": AddressExpr((Reg("UR12"),))}),
        ("STAS.128 [R36.64], R4", Kind.ASYNC_STORE, {"barrier": AddressExpr((Reg("R37"),)), "width": 16}),
        ("MEMBAR.ALL.GPU", Kind.FENCE, {"sem": "acq_rel", "scope": "gpu"}),
        ("MEMBAR.SC.SYS", Kind.FENCE, {"sem": "sc", "scope": "sys"}),
        ("CCTL.IVALL", Kind.CACHE_INVALIDATE, {}),
        ("FENCE.VIEW.ASYNC.T", Kind.TMEM_WAIT_STORE, {}),
        ("FENCE.VIEW.ASYNC.S", Kind.PROXY_FENCE, {"space": "shared::cta"}),
        ("LDL R2, [R1]", Kind.SPILL, {"width": 4}),
        ("STL.64 [R1], R2", Kind.SPILL, {"width": 8}),
        ("LDG.E.STRONG.GPU R2, desc[UR4][R2.64]", Kind.LOAD, {"sem": "relaxed", "scope": "gpu", "space": "global"}),
        ("LDG.E R2, desc[UR4][R2.64]", Kind.LOAD, {"sem": "weak", "scope": None}),
        ("BAR.SYNC.DEFER_BLOCKING 0x1, 0x80", Kind.CTA_SYNC, {"number": Const(1), "count": Const(128)}),
        ("USETMAXREG.DEALLOC.CTAPOOL 0x18", Kind.REGISTERS, {"number": Const(24)}),
        ("FROBNICATE R2, R3", Kind.UNKNOWN, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_instruction(text: str, kind: Kind, fields: dict[str, object]) -> None:
    (event,) = lift(text)
    assert event.kind is kind
    assert {name: getattr(event, name) for name in fields} == fields


@pytest.mark.parametrize("text", ["NOP", "IADD3 R1, R2, R3, RZ", "DEPBAR.LE SB0, 0x36", "CCTL.E.PF2 [R2]"])
def test_what_means_nothing_here(text: str) -> None:
    assert not lift(text)


def test_flags_have_their_ptx_names() -> None:
    (event,) = lift("UTCBAR.2CTA.MULTICAST [UR4], URZ, UR6")
    assert event.kind is Kind.TMEM_COMMIT
    assert event.has("cta_group::2")
    assert event.has("multicast::cluster")
    assert event.mask == Reg("UR6")
