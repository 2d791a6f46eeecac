"""SASS in the common form: roles agree with the PTX, instructions compute what they should, control flow is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.errors import InputError
from verifier.isa.compute import mask
from verifier.model.cfg import build_cfg
from verifier.model.lower_ptx import lower_ptx
from verifier.model.lower_sass import entry_names, lower_sass, unknown_opcodes
from verifier.model.program import UNKNOWN_CALLEE, AddressExpr, Assign, Const, FlowKind, Function, Guard, Reg, SReg, Sym
from verifier.model.sass_operands import addresses_of, bundle_member
from verifier.model.ssa import Ssa
from verifier.model.streams import Shape, build_streams
from verifier.model.symbolic import compute
from verifier.model.values import SymbolTable, Value
from verifier.parse.cubin import CubinInfo, KernelInfo, read_cubin
from verifier.parse.ptx import parse_ptx
from verifier.parse.sass import parse_sass
from verifier.parse.sass_ast import SassInstruction
from verifier.parse.source import Source

DATA = Path(__file__).parents[1] / "parse" / "data"
EIGHT = {f"R{n}" for n in (8, 9, 10, 11, 16, 17, 18, 19)}
HEAD = "\t.target\tsm_100a\n        .type           k,@function\nk:\n.text.k:\n"


def listing(*code: str) -> Source:
    """A function `k` of these instructions; a line that ends in a colon is a label."""
    lines, offset = [], 0
    for text in code:
        if text.endswith(":"):
            lines.append(text)
        else:
            lines.append(f"        /*{offset:04x}*/  {text} ;")
            offset += 16
    return Source("k.sass", HEAD + "\n".join(lines) + "\n")


def lower(*code: str, cubin: CubinInfo | None = None) -> Function:
    (function,) = lower_sass(parse_sass(listing(*code)), cubin)
    return function


def results(text: str, **registers: int) -> dict[str, int | None]:
    """What one instruction leaves in the registers that it writes, None where nothing is known."""
    function = lower(text)
    table = SymbolTable()

    def value(arg: object) -> Value:
        if isinstance(arg, Const):
            return Value(int(arg.value))
        if isinstance(arg, Reg):
            return Value(registers[arg.name])
        return table.value("other", str(arg))

    left: dict[str, int | None] = {}
    for assign in function.instrs[0].assigns:
        result = compute(table, assign.op, assign.width, [value(a) for a in assign.args])
        constant = None if result is None else result.constant
        left[assign.dst] = None if constant is None else constant & mask(assign.width)
    return left


@pytest.mark.parametrize(
    ("text", "registers", "expected"),
    [
        ("MOV R1, 0x5", {}, {"R1": 5}),
        ("IMAD.MOV.U32 R1, RZ, RZ, -0x4", {}, {"R1": 0xFFFFFFFC}),
        ("IMAD.SHL.U32 R1, R2, 0x4, RZ", {"R2": 3}, {"R1": 12}),
        ("IMAD.IADD R1, R2, 0x1, R3", {"R2": 3, "R3": 4}, {"R1": 7}),
        ("IMAD R1, R2, R3, -R4", {"R2": 3, "R3": 4, "R4": 5}, {"R1": 7}),
        ("IMAD.WIDE.U32 R2, R4, 0x4, R6", {"R4": 3, "R6": 100, "R7": 0}, {"R2": 112, "R3": None}),
        ("IADD3 R1, PT, PT, -R2, UR7, RZ", {"R2": 3, "UR7": 10}, {"R1": 7}),
        ("IADD3 R1, P0, PT, R2, R3, R4", {"R2": 1, "R3": 2, "R4": 3}, {"R1": 6, "P0": None}),
        ("IADD3 R1, R2, 0x1, RZ", {"R2": 3}, {"R1": 4}),
        ("UIADD3 UR4, UPT, UPT, UR4, -0x1, URZ", {"UR4": 3}, {"UR4": 2}),
        ("IADD3.X R1, R2, R3, RZ, P0, !PT", {"R2": 1, "R3": 2, "P0": 1}, {"R1": None}),
        ("VIADD R1, R2, 0xffffffff", {"R2": 3}, {"R1": 2}),
        ("LEA R1, R2, R3, 0x3", {"R2": 2, "R3": 1}, {"R1": 17}),
        ("ULEA UR6, UR7, UR6, 0x18", {"UR7": 1, "UR6": 0x400}, {"UR6": 0x1000400}),
        ("LEA.HI R1, R2, R3, RZ, 0x5", {"R2": 0x80000000, "R3": 1}, {"R1": 17}),
        ("LEA.HI.SX32 R1, R2, R3, 0x1b", {"R2": 0xFFFFFFE0, "R3": 3}, {"R1": 2}),
        ("SHF.R.U32.HI R1, RZ, 0x5, R2", {"R2": 0x80000060}, {"R1": 0x04000003}),
        ("SHF.R.S32.HI R1, RZ, 0x1f, R2", {"R2": 0x80000000}, {"R1": 0xFFFFFFFF}),
        ("SHF.L.U32 R1, R2, 0x3, RZ", {"R2": 3}, {"R1": 24}),
        ("SHF.R.U64 R1, R2, 0x4, R3", {"R2": 0x10, "R3": 0x1}, {"R1": 0x10000001}),
        ("SHF.L.U64.HI R1, R2, 0x4, R3", {"R2": 0x80000000, "R3": 0x1}, {"R1": 0x18}),
        ("LOP3.LUT R1, R2, 0x1f, RZ, 0xc0, !PT", {"R2": 0x65}, {"R1": 5}),
        ("LOP3.LUT R1, R2, 0x1f, R3, 0xf8, !PT", {"R2": 0x60, "R3": 5}, {"R1": 0x65}),
        ("LOP3.LUT P0, RZ, R2, 0x1f, RZ, 0xc0, !PT", {"R2": 0x60}, {"P0": 0}),
        ("LOP3.LUT P0, R1, R2, 0x1f, RZ, 0xc0, !PT", {"R2": 0x61}, {"P0": 1, "R1": 1}),
        ("PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x8", {}, {"P0": 1}),
        ("PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x80", {}, {"P0": 0}),
        ("PLOP3.LUT P0, P1, P2, P3, PT, 0x80, 0x8", {"P2": 1, "P3": 1}, {"P0": 1, "P1": 0}),
        ("PLOP3.LUT P0, PT, !P2, P3, PT, 0x80, 0x0", {"P2": 0, "P3": 1}, {"P0": 1}),
        ("ISETP.NE.U32.AND P0, PT, R2, RZ, PT", {"R2": 3}, {"P0": 1}),
        ("ISETP.LT.AND P0, P1, R2, 0x0, PT", {"R2": 0xFFFFFFFF}, {"P0": 1, "P1": 0}),
        ("ISETP.LE.U32.OR P1, PT, R2, 0x3, P1", {"R2": 9, "P1": 1}, {"P1": 1}),
        ("ISETP.GE.AND P0, PT, R2, 0x3, !P1", {"R2": 9, "P1": 1}, {"P0": 0}),
        ("ISETP.GE.AND.EX P0, PT, R2, 0x3, PT, P1", {"R2": 9, "P1": 1}, {"P0": None}),
        ("SEL R1, R2, 0x5, !P0", {"R2": 1, "P0": 1}, {"R1": 5}),
        ("VIMNMX R1, R2, R3, PT", {"R2": 0xFFFFFFFF, "R3": 1}, {"R1": 0xFFFFFFFF}),
        ("VIMNMX.U32 R1, R2, R3, !PT", {"R2": 0xFFFFFFFF, "R3": 1}, {"R1": 0xFFFFFFFF}),
        ("VIADDMNMX.U32 R2, R0, R3, 0x2, PT", {"R0": 7, "R3": 0xFFFFFFFC}, {"R2": 2}),
        ("PRMT R1, R2, 0x7610, R3", {"R2": 0x11223344, "R3": 0xAABBCCDD}, {"R1": 0xAABB3344}),
        ("SGXT R1, R2, 0x8", {"R2": 0x80}, {"R1": 0xFFFFFF80}),
        ("HFMA2 R5, -RZ, RZ, 0, 5.9604644775390625e-08", {}, {"R5": 1}),
        ("HFMA2 R5, -RZ, RZ, 1.875, 0.5", {}, {"R5": 0x3F803800}),
        ("HFMA2.BF16_V2 R5, -RZ, RZ, 1, 0", {}, {"R5": 0x3F800000}),
        ("CS2R R2, SRZ", {}, {"R2": 0, "R3": 0}),
        ("UMOV.64 UR4, 0x100000002", {}, {"UR4": 2, "UR5": 1}),
        ("R2UR UR4, R5", {"R5": 9}, {"UR4": 9}),
        ("LDS.128 R4, [R2]", {"R2": 0}, {"R4": None, "R5": None, "R6": None, "R7": None}),
        ("LDTM.x2 R4, tmem[UR4]", {"UR4": 0}, {"R4": None, "R5": None}),
        ("R2P PR, R5, 0x7f", {"R5": 1}, dict.fromkeys(f"P{n}" for n in range(7))),
        ("STS [R1], R2", {"R1": 0, "R2": 0}, {}),
        ("FROB R1, R2", {"R2": 0}, {"R1": None}),
    ],
)  # fmt: skip
def test_what_instructions_compute(text: str, registers: dict[str, int], expected: dict[str, int | None]) -> None:
    assert results(text, **registers) == expected


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("STS.128 [R8+UR4+0x10], R20", {"R8", "UR4", "R20", "R21", "R22", "R23"}),
        ("STG.E.64 desc[UR4][R2.64], R6", {"UR4", "UR5", "R2", "R3", "R6", "R7"}),
        ("STG.E.ENL2.256 desc[UR4][R2.64], R8, R16", {"UR4", "UR5", "R2", "R3", *EIGHT}),
        ("STTM.x4 tmem[UR4], R4", {"UR4", "R4", "R5", "R6", "R7"}),
        ("UTMALDG.2D [UR8], [UR20], desc[URZ]", {"UR8", "UR9", "UR10", "UR11", "UR20", "UR21"}),
        ("IMAD.WIDE R2, R4, 0x4, R6", {"R4", "R6", "R7"}),
        ("@!P2 ISETP.GE.AND P0, PT, R2, 0x3, P1", {"R2", "P1", "P2"}),
        ("SYNCS.EXCH.64 URZ, [UR8], UR4", {"UR8", "UR4", "UR5"}),
        ("DADD R2, R4, -R6", {"R4", "R5", "R6", "R7"}),
        ("ATOMG.E.ADD.STRONG.GPU PT, R0, desc[UR6][R2.64], R9", {"UR6", "UR7", "R2", "R3", "R9"}),
    ],
)  # fmt: skip
def test_what_instructions_read(text: str, reads: set[str]) -> None:
    assert set(lower(text).instrs[0].uses) == reads


def test_special_registers_and_launch_words() -> None:
    code = lower("S2R R0, SR_TID.X", "S2UR UR4, SR_CgaCtaId", "LDC R1, c[0x0][0x360]", "LDC.64 R2, c[0x0][0x380]")
    assigns = [a for i in code.instrs for a in i.assigns]
    assert assigns == [
        Assign("R0", "mov", 32, (SReg("tid.x"),)),
        Assign("UR4", "first_lane", 32, (SReg("cluster_ctarank"),)),
        Assign("R1", "mov", 32, (SReg("ntid.x"),)),
        Assign("R2", "mov", 32, (Sym("c[0x0][0x380]", "const"),)),
        Assign("R3", "mov", 32, (Sym("c[0x0][0x384]", "const"),)),
    ]


def flows(*code: str) -> list[tuple[FlowKind, tuple[int, ...]]]:
    return [(i.flow.kind, i.flow.targets) for i in lower(*code).instrs]


def test_branches() -> None:
    found = flows(
        "@P0 BRA `(.L_x_1)", "BRA.U !UP1, `(.L_x_1)", "@!P0 BRA P1, `(.L_x_1)", "BRA.DIV UR8, `(.L_x_1)",
        "NOP", ".L_x_1:", "@P0 EXIT", "BPT.TRAP 0x1", "EXIT", ".L_x_2:", "BRA `(.L_x_2)", "NOP",
    )  # fmt: skip
    branch, going_on = FlowKind.BRANCH, (FlowKind.NEXT, ())
    assert found == [
        (branch, (5,)), (branch, (5,)), (branch, (5,)), (FlowKind.INDEXED, (5, 4)), going_on,
        (FlowKind.EXIT, ()), (FlowKind.TRAP, ()), (FlowKind.EXIT, ()), (FlowKind.TRAP, ()), going_on,
    ]  # fmt: skip


def test_guards_also_stand_among_the_operands() -> None:
    first, second = lower("@!P0 BRA P1, `(.L_x_1)", "BRA.U !UP1, `(.L_x_1)", ".L_x_1:", "EXIT").instrs[:2]
    assert first.guards == (Guard("P0", True), Guard("P1", False))
    assert second.guards == (Guard("UP1", True),)
    assert {"P0", "P1"} <= set(first.uses)


def test_a_guard_that_never_holds_is_known() -> None:
    function = lower("NOP", "@!PT BRA `(.L_x_1)", "MOV R1, 0x1", ".L_x_1:", "EXIT")
    cfg = build_cfg(function)
    (stream,) = build_streams(function, cfg, Ssa(function, cfg), Shape((32, 1, 1), None))
    assert stream.truth(1) is False
    assert 2 in stream.instructions


def test_a_branch_out_of_its_function_is_an_error() -> None:
    with pytest.raises(InputError, match="out of function k"):
        lower("BRA `(.L_x_7)")


def test_a_listing_without_target_is_an_error() -> None:
    with pytest.raises(InputError, match="this listing"):
        lower_sass(parse_sass(Source("x", "/*0000*/ NOP ;\n")))


def test_indirect_branches_take_the_listed_targets() -> None:
    code = ("BRX R2 -0x10 {}", ".L_x_1:", "NOP", ".L_x_2:", "EXIT", ".L_x_3:", "EXIT")
    note = '(*"BRANCH_TARGETS .L_x_3,.L_x_2"*)'
    named = lower(code[0].format(note), *code[1:]).instrs[0].flow
    assert (named.targets, named.selector, named.keys) == ((3, 2), Reg("R2"), (0x30, 0x20))
    assert lower(code[0].format(""), *code[1:]).instrs[0].flow.targets == (0, 1, 2, 3)


def test_calls() -> None:
    text = (
        HEAD + "/*0000*/ MOV R9, R8 ;\n/*0010*/ CALL.REL.NOINC `(trap) ;\n/*0020*/ CALL.REL.NOINC `(slow) ;\n"
        "/*0030*/ CALL.ABS.NOINC R8 ;\n/*0040*/ EXIT ;\n"
        "        .type           trap,@function\ntrap:\n/*0050*/ BPT.TRAP 0x1 ;\n/*0060*/ RET.REL.NODEC R2 `(k) ;\n"
        "        .type           slow,@function\nslow:\n/*0070*/ MOV R3, R4 ;\n/*0080*/ RET.REL.NODEC R2 `(k) ;\n"
    )
    kernel, trap, slow = lower_sass(parse_sass(Source("k", text)))
    assert [f.name for f in (kernel, trap, slow)] == ["k", "trap", "slow"]
    assert kernel.instrs[1].flow.kind is FlowKind.TRAP
    assert kernel.instrs[2].flow.kind is FlowKind.CALL
    assert (kernel.instrs[2].flow.callee, kernel.instrs[3].flow.callee) == ("", UNKNOWN_CALLEE)
    assert {a.dst for a in kernel.instrs[2].assigns} == {"R2", "R3", "R4"}
    assert {a.dst for a in kernel.instrs[3].assigns} >= {"R8", "R9"}
    assert {a.op for a in kernel.instrs[2].assigns} == {"opaque"}
    assert slow.instrs[-1].flow.kind is FlowKind.EXIT


@pytest.mark.parametrize(
    ("body", "silent"),
    [
        ("MOV R3, R4 ;", True),
        ("STL [R1], R4 ;", True),  # the stack is the thread's own
        ("BAR.SYNC.DEFER_BLOCKING 0x0 ;", False),
        ("LDS R3, [R4] ;", False),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ ;", False),
        ("CALL.REL.NOINC `(other) ;", False),  # calls back: of a recursion nothing is known
        ("CALL.ABS.NOINC R8 ;", False),
        ("EXIT ;", False),
    ],
)
def test_a_callee_that_only_computes_is_told_from_one_that_may_synchronize(body: str, silent: bool) -> None:
    text = (
        HEAD + "/*0000*/ CALL.REL.NOINC `(other) ;\n/*0010*/ EXIT ;\n        .type           other,@function\nother:\n"
        f"/*0020*/ {body}\n/*0030*/ RET.REL.NODEC R2 `(k) ;\n"
    )
    kernel, _ = lower_sass(parse_sass(Source("k", text)))
    assert kernel.instrs[0].flow.callee == ("" if silent else "other")


def test_locations_join_offset_ptx_and_source_lines() -> None:
    text = (
        HEAD + '\t//## File ".nv_debug_ptx_txt", line 7\n/*0000*/ NOP ;\n'
        '\t//## File "in.py", line 3 inlined at "k.py", line 9\n\t//## File "k.py", line 9\n'
        "/*0010*/ NOP ;\n/*0020*/ EXIT ;\n"
    )
    (function,) = lower_sass(parse_sass(Source("k", text)))
    found = [(i.location.sass_offset, i.location.ptx_line, i.location.file, i.location.line) for i in function.instrs]
    assert found == [(0, 7, None, None), (16, 7, "in.py", 3), (32, 7, "in.py", 3)]


def test_addresses() -> None:
    (instr,) = lower("LDGSTS.E [R1+UR4+0x10], desc[UR6][R2.64+-0x8], !P0").instrs
    assert isinstance(instr.origin, SassInstruction)
    assert addresses_of(instr.origin) == (AddressExpr((Reg("R1"), Reg("UR4")), 16), AddressExpr((Reg("R2"),), -8))
    (scaled,) = lower("LDS R0, [R2.X4+0x4]").instrs
    assert isinstance(scaled.origin, SassInstruction)
    assert addresses_of(scaled.origin) == (AddressExpr((Reg("R2"),) * 4, 4),)
    (bulk,) = lower("UTMALDG.2D [UR8], [UR20], desc[URZ]").instrs
    assert isinstance(bulk.origin, SassInstruction)
    assert bundle_member(bulk.origin, 0, 1) == Reg("UR9")
    assert bundle_member(bulk.origin, 5, 0) is None


def test_unknown_opcodes_are_counted() -> None:
    function = lower("FROB R1, R2", "NOP", "FROB R1, R2", "EXIT")
    assert unknown_opcodes(function) == {"FROB": 2}
    functions = lower_sass(parse_sass(load("roles.sass")))
    assert functions
    assert all(not unknown_opcodes(f) for f in functions)


def load(name: str) -> Source:
    return Source(name, (DATA / name).read_text())


def groups(function: Function, shape: Shape) -> list[tuple[int, ...]]:
    cfg = build_cfg(function)
    return sorted(stream.warps for stream in build_streams(function, cfg, Ssa(function, cfg), shape))


def test_sass_and_ptx_agree_on_the_roles() -> None:
    cubin = read_cubin((DATA / "roles.cubin").read_bytes(), "roles")
    sass, *_ = lower_sass(parse_sass(load("roles.sass")), cubin)
    (ptx,) = lower_ptx(parse_ptx(load("roles.ptx")))
    shape = Shape((128, 1, 1), None)
    assert groups(sass, shape) == groups(ptx, shape) == [(0,), (1,), (2,), (3,)]
    assert (sass.block, sass.arch) == ((128, 1, 1), "sm_100a")


def test_without_the_table_a_switch_goes_everywhere() -> None:
    sass, *_ = lower_sass(parse_sass(load("roles.sass")))
    assert groups(sass, Shape((128, 1, 1), None)) == [(0,), (1, 2), (3,)]


def test_entries_are_the_kernels() -> None:
    assert entry_names(parse_sass(load("roles.sass"))) == ("roles",)
    info = CubinInfo(arch="sm_103a", assembler="", options="", kernels=(KernelInfo(name="k", block=(64, 1, 1)),))
    function = lower("EXIT", cubin=info)
    assert (function.arch, function.block) == ("sm_103a", (64, 1, 1))


SPILLED = (
    "VIADD R1, R1, 0xffffffc8",
    "S2R R0, SR_TID.X",
    "SHF.R.U32.HI R2, RZ, 0x5, R0",
    'STL [R1+0x34], R2 (*"SpillRefill"*)',
    "MOV R2, 0x7",
    'LDL R3, [R1+0x34] (*"SpillRefill"*)',
    "ISETP.NE.U32.AND P0, PT, R3, 0x1, PT",
    "@P0 BRA `(.L_x_1)",
    "NOP",
    ".L_x_1:",
    "EXIT",
)


def test_a_spilled_warp_index_still_tells_the_roles() -> None:
    shape = Shape((96, 1, 1), None)
    assert groups(lower(*SPILLED), shape) == [(0, 2), (1,)]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (3, "STL [R1+0x34], R2"),  # not marked as a spill: anything may write the slot
        (5, 'LDL R3, [R1+0x38] (*"SpillRefill"*)'),  # another slot
        (4, "VIADD R1, R1, 0x8"),  # the stack pointer moves
        (5, 'LDL.U8 R3, [R1+0x34] (*"SpillRefill"*)'),  # a part of the slot
    ],
)
def test_spills_are_followed_only_where_that_is_sound(place: int, text: str) -> None:
    code = [*SPILLED[:place], text, *SPILLED[place + 1 :]]
    assert groups(lower(*code), Shape((96, 1, 1), None)) == [(0, 1, 2)]


def test_wide_spills_keep_their_words_apart() -> None:
    function = lower('STL.64 [R1+0x8], R4 (*"SpillRefill"*)', 'LDL R7, [R1+0xc] (*"SpillRefill"*)', "EXIT")
    stored, filled = (i.assigns for i in function.instrs[:2])
    assert stored == (Assign("[R1+0x8]", "mov", 32, (Reg("R4"),)), Assign("[R1+0xc]", "mov", 32, (Reg("R5"),)))
    assert filled == (Assign("R7", "mov", 32, (Reg("[R1+0xc]"),)),)
