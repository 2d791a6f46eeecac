"""Lowering PTX: vector registers and launch-control answers."""

from __future__ import annotations

from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.model.program import Assign, Const, Function, Reg
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source

_HEAD = ".version 9.4\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n"


def lower(body: str) -> Function:
    return lower_ptx(parse_ptx(Source("k.ptx", f"{_HEAD}{body}\nret;\n}}\n")))[0]


def test_a_vector_register_is_its_elements() -> None:
    function = lower(
        ".reg .b32 a, b;\n{\n.reg .v4 .s32 q;\nmov.s32 q.x, a;\nmov.s32 q.w, 1;\nst.shared.v4.s32 [b], q;\n}"
    )
    first, last, store = function.instrs[:3]
    assert first.assigns == (Assign("q.x#1", "mov", 32, (Reg("a"),)),)
    assert last.assigns == (Assign("q.w#1", "mov", 32, (Const(1),)),)
    assert set(store.uses) == {"b", "q.x#1", "q.y#1", "q.z#1", "q.w#1"}
    assert lift_ptx(function)[0].registers == ("q.x#1", "q.y#1", "q.z#1", "q.w#1")


def test_an_unsigned_wide_product_adds_a_double_word() -> None:
    function = lower(".reg .b32 a;\n.reg .b64 c, d;\nmad.wide.u32 d, a, -1, c;\nmad.wide.s32 d, a, -1, c;")
    unsigned, signed = function.instrs[:2]
    assert unsigned.assigns == (Assign("d", "mad", 64, (Reg("a"), Const(0xFFFFFFFF), Reg("c"))),)
    assert signed.assigns == (Assign("d", "opaque", 32, ()),)


def test_a_scalar_of_an_inner_scope_hides_a_vector() -> None:
    function = lower(".reg .v2 .b32 q;\n.reg .b32 b;\n{\n.reg .b32 q;\nst.shared.b32 [b], q;\n}")
    assert function.instrs[0].uses == ("b", "q#1")


def test_a_launch_control_answer_is_taken_apart_into_fields() -> None:
    function = lower(
        ".reg .b128 q;\n.reg .pred p;\n.reg .b32 x, y, z;\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, q;\n"
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, q;\n"
        "clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 y, q;\n"
    )
    valid, place, single = (instr.assigns for instr in function.instrs[:3])
    assert valid == (Assign("p", "field", 1, (Reg("q"), Const(96))),)
    assert place == tuple(Assign(r, "field", 32, (Reg("q"), Const(b))) for r, b in (("x", 0), ("y", 32), ("z", 64)))
    assert single == (Assign("y", "field", 32, (Reg("q"), Const(32))),)


def test_a_funnel_shift_names_its_halves() -> None:
    function = lower(".reg .b32 d, a, b, n;\nshf.l.wrap.b32 d, a, b, 35;\nshf.r.clamp.b32 d, a, b, n;\n")
    left, right = (instr.assigns for instr in function.instrs[:2])
    assert left == (Assign("d", "shf_l", 32, (Reg("a"), Const(3), Reg("b"))),)
    assert right == (Assign("d", "shf_r", 32, (Reg("a"), Reg("n"), Reg("b"))),)


def test_a_negative_immediate_of_an_unsigned_wide_product_is_zero_extended() -> None:
    """NVRTC divides by 3 like this."""
    function = lower(".reg .b32 a;\n.reg .b64 d;\nmul.wide.u32 d, a, -1431655765;")
    assert function.instrs[0].assigns == (Assign("d", "mul", 64, (Reg("a"), Const(2863311531))),)
