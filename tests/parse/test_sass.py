"""The fast path gives what the grammar gives, on real listings and on every odd form."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from verifier.errors import InputError, ParseError
from verifier.parse import sass
from verifier.parse.sass import SEED, Template, memo_fingerprint, operand_memo, parse_sass, shape_of
from verifier.parse.sass_ast import (
    Address,
    Banner,
    Guard,
    Immediate,
    Indices,
    LineInfo,
    Register,
    SassData,
    SassDirective,
    SassInstruction,
    SassLabel,
    Symbol,
    Word,
)
from verifier.parse.sass_lark import parse_operands, parse_with_lark
from verifier.parse.shapes import ShapeMemo
from verifier.parse.source import Source

DATA = Path(__file__).parent / "data"
LISTINGS = sorted(DATA.glob("*.sass"))
OPERANDS = (DATA / "operands.txt").read_text().splitlines()


def load(path: Path) -> Source:
    return Source(path.name, path.read_text())


def line(text: str) -> SassInstruction:
    """The one instruction of a listing line, read by both paths."""
    source = Source("line.sass", f"        /*0120*/  {text}\n")
    fast, plain = parse_sass(source), parse_with_lark(source)
    assert fast.statements == plain.statements
    (instruction,) = fast.statements
    assert isinstance(instruction, SassInstruction)
    return instruction


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.name)
def test_fast_path_agrees_with_the_grammar(path: Path) -> None:
    source = load(path)
    assert parse_sass(source).statements == parse_with_lark(source).statements


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.name)
def test_no_line_is_lost(path: Path) -> None:
    source = load(path)
    covered = {source.line_of(s.span.start) for s in parse_sass(source).statements}
    for number, text in enumerate(source.text.splitlines(), 1):
        is_second_word = text.strip().startswith("/* 0x")
        assert (number in covered) == (bool(text.strip()) and not is_second_word), text


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.name)
def test_spans_are_the_statements(path: Path) -> None:
    source = load(path)
    for statement in parse_sass(source).statements:
        text = source.text[statement.span.start : statement.span.end]
        assert text == text.strip()
        if isinstance(statement, SassInstruction):
            assert text.startswith(f"/*{statement.offset:04x}*/")
            assert text.endswith(";")
            assert statement.opcode in text
        elif isinstance(statement, SassLabel):
            assert text == statement.name + ":"


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.name)
def test_common_listings_need_no_lark(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Lark was asked")

    monkeypatch.setattr(sass, "learn_operand", refuse)
    monkeypatch.setattr(sass, "_by_lark", refuse)
    parse_sass(load(path))


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.name)
def test_an_empty_memo_learns_the_same(path: Path) -> None:
    memo: ShapeMemo[Template] = ShapeMemo(Template, memo_fingerprint())
    source = load(path)
    assert parse_sass(source, memo).statements == parse_sass(source).statements
    assert memo.table
    assert all(operand_memo().table[shape] == template for shape, template in memo.table.items())


def test_shipped_shapes_are_current() -> None:
    """Fails after a change of the grammar or of operands.txt: run update_sass_shapes.py."""
    spec = importlib.util.spec_from_file_location("update", Path(__file__).with_name("update_sass_shapes.py"))
    assert spec is not None
    assert spec.loader is not None
    update = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(update)
    shipped: ShapeMemo[Template] = ShapeMemo(Template, memo_fingerprint(), seed=SEED)
    assert shipped.table == update.fresh_memo().table


@pytest.mark.parametrize("text", OPERANDS)
def test_every_shape_rebuilds_what_the_grammar_says(text: str) -> None:
    shape, values = shape_of(text)
    template = operand_memo().table[shape]
    assert (sass._rebuild(template, values),) == parse_operands(text)


def test_shape_takes_out_numbers_only() -> None:
    assert shape_of("desc[UR4][R2.64+0x20]") == ("desc[UR#][R#.64+$]", ["4", "2", "32"])
    assert shape_of("-1.5e-08") == ("-%", ["1.5e-08"])
    assert shape_of("R8.N7654")[0] == "R#.N7654"


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("RET.REL.NODEC R2 `(k) ;", (Register("R2"), Symbol("k"))),
        ("FMNMX R1, R3, -INF , PT ;", (Register("R1"), Register("R3"), Word("INF", "-"), Register("PT"))),
        ("DEPBAR {5,4,3,2,1,0} ;", (Indices((5, 4, 3, 2, 1, 0)),)),
        ("DEPBAR.LE SB1, 0x36 ;", (Word("SB1"), Immediate(0x36))),
        ("NOP;", ()),
        ("FADD R1, -|R225|, R3.reuse ;", (Register("R1"), Register("R225", "-|"), Register("R3", "", ("reuse",)))),
        ("MOV R20, 32@lo((k + .L_x_5@srel)) ;", (Register("R20"), Symbol("(k + .L_x_5@srel)", "32@lo"))),
        ("FMUL R1, R2, -1.4426950216293334961 ;", (Register("R1"), Register("R2"), Immediate(-1.4426950216293335))),
        ("IADD3 R1, R2, -0x10, RZ ;", (Register("R1"), Register("R2"), Immediate(-16), Register("RZ"))),
        ("LDC R6, c[R8+`((k.const_opt.0.12 + -0x8000))] ;",
         (Register("R6"), Address("c", (Register("R8"), Symbol("(k.const_opt.0.12 + -0x8000)"))))),
    ],
)  # fmt: skip
def test_odd_operands(text: str, operands: tuple[object, ...]) -> None:
    assert line(text).operands == operands


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("LDS R0, [R2.X4+UR5+0x10] ;", Address("", (Register("R2", "", ("X4",)), Register("UR5")), 16)),
        ("LDL R0, [R1+-0x8] ;", Address("", (Register("R1"),), -8)),
        ("LDC R0, c[0x0][UR4+0x2b0] ;", Address("c", (Register("UR4"),), 0x2B0, Immediate(0))),
        ("LDG.E R0, desc[UR4][R2.64+0x20] ;", Address("desc", (Register("R2", "", ("64",)),), 32, Register("UR4"))),
        ("UTCCP.T.S tmem[UR4+0x100], gdesc[UR6] ;", Address("tmem", (Register("UR4"),), 0x100)),
        ("UTCHMMA gdesc[UR16].tnspA.tnspB ;", Address("gdesc", (Register("UR16"),), 0, None, "", ("tnspA", "tnspB"))),
        ("FADD R0, R1, -|c[0x0][0x160]| ;", Address("c", (), 0x160, Immediate(0), "-|")),
        ("LDS R0, [RZ] ;", Address("", (Register("RZ"),))),
    ],
)  # fmt: skip
def test_addresses(text: str, address: Address) -> None:
    assert next(o for o in line(text).operands if isinstance(o, Address)) == address


def test_guards_and_notes() -> None:
    assert line("@!UPT UIADD3 URZ, UPT, UPT, URZ, URZ, URZ ;").guard == Guard("UPT", True)
    assert line("@P0 ERRBAR;").guard == Guard("P0", False)
    branch = line('BRX R4 -0x5f0          (*"BRANCH_TARGETS .L_x_1,.L_x_2"*);')
    assert branch.note == "BRANCH_TARGETS .L_x_1,.L_x_2"
    assert branch.operands == (Register("R4"), Immediate(-0x5F0))
    assert line('STL [R1], RZ       (*"SpillRefill"*);').note == "SpillRefill"


def test_encoding_is_the_pair_of_words() -> None:
    text = "S2UR UR7, SR_CgaCtaId ;   /* 0x00000000000779c3 */\n              /* 0x000e620000008800 */"
    assert line(text).words == (0x779C3, 0x000E620000008800)
    assert line("NOP ;").words is None


def test_other_lines() -> None:
    text = (
        '\t//## File "a dir/x.py", line 12 inlined at "y.py", line 30\n'
        '\t//## File ".nv_debug_ptx_txt.1234", line 55\n'
        "//--------------------- .text.k                   --------------------------\n"
        '\t.section\t.text.k,"ax",@progbits\n'
        "        .size           k,(.L_x_16 - k)\n"
        '        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"\n'
        '\t.sectionflags\t@""\n'
        ".text.k:\n"
        "        /*0040*/ \t.byte\t0x01, 0x02\n"
        '        /*0042*/ \t.word\tstr_index@("#ii")\n'
        "        /*0000*/  NOP ;\n"
    )
    source = Source("x", text)
    statements = parse_sass(source).statements
    assert statements == parse_with_lark(source).statements
    shapes = [type(s) for s in statements]
    assert shapes == [LineInfo, LineInfo, Banner, *[SassDirective] * 4, SassLabel, SassData, SassData, SassInstruction]
    assert statements[0].inlined_at == ("y.py", 30)
    assert (statements[1].file, statements[1].line) == (".nv_debug_ptx_txt.1234", 55)
    assert statements[3].args == (".text.k", '"ax"', "@progbits")
    assert statements[4].args == ("k", "(.L_x_16 - k)")
    assert (statements[8].offset, statements[8].args) == (0x40, ("0x01", "0x02"))


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("        /*0000*/   MOV R1, $$ ;\n", "1:28", "an operand"),
        ("        /*0000*/   NOP ;\n        /*0010*/  @P9x NOP ;\n", "2:20", "a register"),
        ("hello world\n", "1:1", "an instruction offset"),
        ("        /*0000*/   NOP\n", "1:23", '";"'),
        ("        /*0000*/   LDS R1, [R2+ ;\n", "1:33", "a register"),
        ("        /*0000*/ NOP ;  /* 0x00000a00ff017b82 */\n", "2:1", "an encoding word"),
        ("        /*0000*/ NOP ;\n\x00\x01\n", "2:1", "a label"),
        ('\t.section "open\n', "1:11", ""),
    ],
)
def test_a_line_that_is_not_sass_is_an_error(text: str, where: str, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_sass(Source("bad.sass", text))
    assert str(caught.value).startswith(f"bad.sass:{where}: this is not SASS")
    assert said in str(caught.value)
    with pytest.raises(ParseError) as plain:
        parse_with_lark(Source("bad.sass", text))
    assert plain.value.where == caught.value.where


@pytest.mark.parametrize("text", ["", " \n\n", "// nothing\n", "\t.target\tsm_100a\n"])
def test_a_listing_without_code_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="no instruction"):
        parse_sass(Source("empty.sass", text))


@pytest.mark.parametrize("blanks", ["        /*0000*/ NOP", "        /*0000*/", ".x", "@P0"])
def test_a_long_line_of_blanks_is_read_once(blanks: str) -> None:
    """The run-time limit of the suite is what fails when a pattern goes quadratic."""
    with pytest.raises(ParseError):
        parse_sass(Source("long.sass", blanks + " " * 2_000_000 + "$\n        /*0000*/ ;\n"))
