"""What PTX statements parse to, one construct at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.parse.ptx_texts import HEADER, IN_BODY, IN_MODULE, body
from verifier.errors import InputError, ParseError
from verifier.parse import ptx_ast as ast
from verifier.parse.ptx import parse_ptx, parse_ptx_reference
from verifier.parse.ptx_ast import Address, Args, Guard, Imm, Name, Not, Pair, Sink, Sum, Vector
from verifier.parse.source import Source, Span

PARSERS = [parse_ptx, parse_ptx_reference]

Parser = Callable[[Source], ast.PtxFile]


@pytest.fixture(params=PARSERS, ids=["fast", "reference"])
def parse(request: pytest.FixtureRequest) -> Parser:
    parser: Parser = request.param
    return parser


def statements(parse: Parser, text: str) -> list[ast.Statement]:
    """What the body of a kernel with this text holds."""
    found = parse(Source("k.ptx", body(text))).statements
    assert isinstance(found[4], ast.ScopeBegin)
    assert isinstance(found[-1], ast.ScopeEnd)
    return list(found[5:-1])


def operands(parse: Parser, text: str) -> tuple[ast.Operand, ...]:
    """Operands of the one instruction in `text`."""
    (statement,) = statements(parse, text)
    assert isinstance(statement, ast.Instruction)
    return statement.operands


def item(parse: Parser, text: str) -> ast.Statement:
    """The one item of a module."""
    found = parse(Source("k.ptx", HEADER + text)).statements[3:]
    return found[0]


R1, R2, P1 = Name("%r1"), Name("%r2"), Name("%p1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ret;", ()),
        ("mov.b32 %r1, %tid.x;", (R1, Name("%tid.x"))),
        ("x {%r1, _, !%p1, -2};", (Vector((R1, Sink(), Not(P1), Imm(-2, "-2"))),)),
        ("x [%r1];", (Address(R1, 0),)),
        ("x [ %r1 + 0x8 ];", (Address(R1, 8),)),
        ("x [%r1+-16384];", (Address(R1, -16384),)),
        ("x [%r1-4];", (Address(R1, -4),)),
        ("x [%r1+4*2-1];", (Address(R1, 7),)),
        ("x [4096];", (Address(Imm(4096, "4096"), 0),)),
        ("x [%r1, {%r2,%r2,0} ];", (Address(R1, 0, (Vector((R2, R2, Imm(0, "0"))),)),)),
        ("x [a+4, b, {1}];", (Address(Name("a"), 4, (Name("b"), Vector((Imm(1, "1"),)))),)),
        ("x %r1|%p1, _|%p1, %r1|_;", (Pair(R1, P1), Pair(Sink(), P1), Pair(R1, Sink()))),
        ("x a+4, a-4, a+(1<<3);", (Sum(Name("a"), 4), Sum(Name("a"), -4), Sum(Name("a"), 8))),
        ("x a[2], a[1+2], a[%r1];", (ast.Element(Name("a"), 2), ast.Element(Name("a"), 3), ast.Element(Name("a"), R1))),
        ("x WARP_SZ, %tid .x;", (Imm(32, "WARP_SZ"), Name("%tid.x"))),
        ("call.uni (r), f, (a, 1);", (Args((Name("r"),)), Name("f"), Args((Name("a"), Imm(1, "1"))))),
        ("call f, ();", (Name("f"), Args(()))),
    ],
)
def test_operands(parse: Parser, text: str, expected: tuple[ast.Operand, ...]) -> None:
    assert operands(parse, text) == expected


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("42U", 42),
        ("017", 15),
        ("0x1F", 31),
        ("0XffU", 255),
        ("0b101", 5),
        ("-1", -1),
        ("-0x10", -16),
        ("0f3F800000", 1.0),
        ("0Fff800000", -math.inf),
        ("0d4000000000000000", 2.0),
        ("1.5e-3", 1.5e-3),
        (".5", 0.5),
        ("1.", 1.0),
        ("-2.5", -2.5),
        ("1e3", 1000.0),
    ],
)
def test_literals(parse: Parser, literal: str, value: float) -> None:
    _, found = operands(parse, f"x 0, {literal};")
    assert found == Imm(value, literal)
    assert type(found) is Imm
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("1<<3|2", 10),
        ("7/2", 3),
        ("-7/2", -3),
        ("-7%3", -1),
        ("10-4-3", 3),
        ("1 ? 2 : 3", 2),
        ("0 ? 2 : 1 ? 4 : 5", 4),
        ("~5", -6),
        ("!5", 0),
        ("- (2+3)", -5),
        ("+5", 5),
        ("2 < 3 && 3 >= 4 || 1 == 1", 1),
        ("6 ^ 3 & 2", 4),
        ("5 != 5", 0),
        ("(.s64)0xffffffffffffffff", -1),
        ("(.u64)-1", (1 << 64) - 1),
        ("0xffffffffffffffff + 1", 0),
        ("1.5 * 2", 3.0),
        ("1 > 2", 0),
        ("2 <= 2", 1),
        ("256 >> 4", 16),
        ("WARP_SZ * 2", 64),
    ],
)
def test_constant_expressions_are_folded(parse: Parser, expression: str, value: float) -> None:
    (found,) = operands(parse, f"x {expression};")
    assert isinstance(found, Imm)
    assert found.value == value
    assert found.text == expression.replace(" ", "")


def test_nan_equals_itself(parse: Parser) -> None:
    first, second = operands(parse, "x 0f7FFFFFFF, 0f7FFFFFFF;")
    assert isinstance(first, Imm)
    assert math.isnan(first.value)
    assert first == second


def test_instruction_has_guard_opcode_and_span(parse: Parser) -> None:
    (found,) = statements(parse, "  @!%p1 mov\t.b32 %r1 , 1 ;// x")
    assert isinstance(found, ast.Instruction)
    assert (found.guard, found.opcode) == (Guard("%p1", True), "mov.b32")
    text = body("  @!%p1 mov\t.b32 %r1 , 1 ;// x")
    assert text[found.span.start : found.span.end] == "@!%p1 mov\t.b32 %r1 , 1 ;"


def test_scopes_and_labels_stay_in_order(parse: Parser) -> None:
    found = statements(parse, "{ L: { L: ret; } }")
    assert [type(statement).__name__ for statement in found] == [
        *("ScopeBegin", "Label", "ScopeBegin", "Label", "Instruction", "ScopeEnd", "ScopeEnd")
    ]


def test_register_declarations(parse: Parser) -> None:
    one, two = statements(parse, ".reg .b32 %r<40>, x; .reg .v4 .f32 v;")
    assert isinstance(one, ast.RegDecl)
    assert isinstance(two, ast.RegDecl)
    assert (one.type, one.names) == ("b32", (("%r", 40), ("x", None)))
    assert (two.type, two.names) == ("v4.f32", (("v", None),))


def test_each_variable_of_a_declaration_is_one_statement(parse: Parser) -> None:
    one, two = statements(parse, ".shared .align 8 .b64 full[2][3], x;")
    assert isinstance(one, ast.VarDecl)
    assert (one.space, one.align, one.type, one.name, one.dims) == ("shared", 8, "b64", "full", (2, 3))
    assert isinstance(two, ast.VarDecl)
    assert (two.name, two.dims, two.span) == ("x", (), one.span)


def test_variables_of_a_module(parse: Parser) -> None:
    found = item(parse, ".visible .global .attribute(.managed) .align 4 .b8 t[] = { 1, -2,\n generic(x) + 4 };")
    assert isinstance(found, ast.VarDecl)
    assert (found.linkage, found.dims, found.attributes) == (("visible",), (None,), (".managed",))
    assert found.initializer == "{1,-2,generic(x)+4}"


def test_location_with_the_place_it_was_inlined_at(parse: Parser) -> None:
    one, two = statements(parse, ".loc 1 2 3\n.loc 1 436 17, function_name $L__info_string0, inlined_at 2 541 1\n")
    assert isinstance(one, ast.Loc)
    assert (one.file, one.line, one.column, one.inlined_at, one.function_name) == (1, 2, 3, None, None)
    assert isinstance(two, ast.Loc)
    assert (two.line, two.inlined_at, two.function_name) == (436, (2, 541, 1), "$L__info_string0")


def test_branch_targets_over_lines_and_ranges(parse: Parser) -> None:
    (found,) = statements(parse, "JTI0_0:\n.branchtargets\n\t$L1,\n\tB<2>;")
    assert isinstance(found, ast.BranchTargets)
    assert (found.name, found.targets) == ("JTI0_0", ("$L1", "B0", "B1"))


def test_call_prototypes_and_targets(parse: Parser) -> None:
    one, two = statements(
        parse, "P : .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]) .noreturn;\nT: .calltargets f, g;"
    )
    assert isinstance(one, ast.Directive)
    assert one.args == ("P", "(.param .b32 _)", "_", "(.param .align 8 .b8 _[16])", ".noreturn")
    assert isinstance(two, ast.Directive)
    assert (two.name, two.args) == (".calltargets", ("T", "f", "g"))


def test_function_headers(parse: Parser) -> None:
    text = (
        ".visible .entry k(\n.param .u64 .ptr .global .align 16 p, // x\n.param .align 64 .b8 m[128]\n)\n"
        ".maxntid 256, 1\n.explicitcluster // y\n{ }"
    )
    found = item(parse, text)
    assert isinstance(found, ast.FunctionHeader)
    assert (found.kind, found.name, found.linkage, found.is_definition) == ("entry", "k", ("visible",), True)
    assert found.params == (
        ast.Param("u64", "p", None, (), ast.Pointer("global", 16)),
        ast.Param("b8", "m", 64, (128,)),
    )
    assert found.directives == ((".maxntid", (256, 1)), (".explicitcluster", ()))
    start = len(HEADER)
    assert found.span == Span(start, start + text.index(" // y"))


def test_prototypes(parse: Parser) -> None:
    found = item(parse, ".extern .func (.param .b32 r) f (.reg .b64 a) .noreturn\n;")
    assert isinstance(found, ast.FunctionHeader)
    assert (found.kind, found.is_definition) == ("func", False)
    assert found.returns == (ast.Param("b32", "r"),)
    assert found.params == (ast.Param("b64", "a", space="reg"),)
    assert found.span.end == len(HEADER) + len(".extern .func (.param .b32 r) f (.reg .b64 a) .noreturn\n;")


def test_module_directives(parse: Parser) -> None:
    text = '.version 9.0\n.target sm_90a, debug\n.file 1 "a//b.cu", 12, 34\n.pragma "x;y";\n.alias g, f;\n'
    found = parse(Source("k.ptx", text)).statements
    shown = [(one.name, one.args) for one in found if isinstance(one, ast.Directive)]
    assert shown == [
        (".version", ("9.0",)),
        (".target", ("sm_90a", "debug")),
        (".pragma", ("x;y",)),
        (".alias", ("g", "f")),
    ]
    (file,) = (one for one in found if isinstance(one, ast.FileDecl))
    assert (file.index, file.path, file.stamp) == (1, "a//b.cu", (12, 34))


def test_debug_sections_are_kept(parse: Parser) -> None:
    found = item(parse, ".section .debug_x {\n.b8 1, 2 // x\n$L1:\n.b32 .debug_abbrev + 4\n.b64 L2 - L1 }")
    assert isinstance(found, ast.Directive)
    assert found.args == (".debug_x", ".b8 1,2", "$L1:", ".b32 .debug_abbrev+4", ".b64 L2-L1")


@pytest.mark.parametrize("text", [*map(body, IN_BODY.values()), *IN_MODULE.values()], ids=[*IN_BODY, *IN_MODULE])
def test_every_construct_is_accepted(parse: Parser, text: str) -> None:
    assert parse(Source("k.ptx", text)).statements


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\0",
        lambda text: text + "\0\0\n\0",
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace(" ", "\t"),
        lambda text: text.rstrip(),
    ],
    ids=["NUL", "NULs", "byte-order mark", "CR LF", "CR", "tabs", "no last line end"],
)
def test_what_editors_and_dumps_do_to_a_file(parse: Parser, change: Callable[[str], str]) -> None:
    text = body("mov.b32 %r1, 1;", "L: bra L;")
    expected = [type(statement) for statement in parse(Source("k.ptx", text)).statements]
    assert [type(statement) for statement in parse(Source("k.ptx", change(text))).statements] == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("garbage", 1, 1, "unexpected 'garbage'; expected a directive"),
        ("\x7fELF\x02", 1, 1, r"unexpected '\x7f'; expected a directive"),
        (".version abc", 1, 10, "unexpected 'abc'; expected a version such as '9.0'"),
        (".target", 1, 8, "unexpected end of file; expected a name"),
        (".file 1 2", 1, 9, "unexpected '2'; expected a string"),
        (".global .b32 x", 1, 15, "unexpected end of file; expected ',', '=', ';'"),
        (".entry", 1, 7, "unexpected end of file; expected a name, '('"),
        (".func f();\nret;", 2, 1, "unexpected 'ret'; expected a directive"),
        (".entry k(){ret;};", 1, 17, "unexpected ';'; expected a directive"),
        (".entry k(){}\n}", 2, 1, "unexpected '}'; expected a directive"),
        (".entry k(){\n.entry j(){}", 2, 1, "unexpected '.entry'; expected a statement, '}'"),
        (".entry k(){\n", 2, 1, "unexpected end of file; expected a statement, '}'"),
        (".entry k(){{\n}", 2, 2, "unexpected end of file; expected a statement, '}'"),
        (".entry k(){\nmov.b32 %r1, ;", 2, 14, "unexpected ';'; expected an operand"),
        (".entry k(){\nmov.b32 %r1 %r2;}", 2, 13, "unexpected '%r2'; expected ',', ';'"),
        (".entry k(){\nld.b32 %r1, [%r2+;", 2, 18, "unexpected ';'; expected a number, '('"),
        (".entry k(){\nld.b32 %r1, [%r2;", 2, 17, "unexpected ';'; expected ']', ','"),
        (".entry k(){\nmov.b64 {%r1, %rd1;", 2, 19, "unexpected ';'; expected '}', ','"),
        (".entry k(){\n  ret\n}", 3, 1, "unexpected '}'; expected an operand, ':', ';'"),
        (".entry k(){\nret;;", 2, 5, "unexpected ';'; expected a statement, '}'"),
        (".entry k(){\n@%p1 ;", 2, 6, "unexpected ';'; expected an opcode"),
        (".entry k(){\n.reg b32 x;", 2, 6, "unexpected 'b32'; expected a type such as '.b32'"),
        (".entry k(){\n.reg .b32 x<y>;", 2, 13, "unexpected 'y'; expected a number"),
        (".entry k(){\n.foo 1;", 2, 1, "unexpected '.foo'; expected a statement, '}'"),
        (".entry k(){\ncall (a, f;", 2, 11, "unexpected ';'; expected ')', ','"),
        (".entry k(){\nmov.b32 %r1, 089;", 2, 14, "unexpected '089'; expected an operand"),
        (".entry k(){\nret; # 5", 2, 6, "unexpected '#'; expected a statement, '}'"),
        (".entry k(){\nmov.b32 %r1, #5;", 2, 14, "unexpected '#'; expected an operand"),
        (".entry k(){\nret; /* x", 2, 6, "a comment without end; expected a statement, '}'"),
        ('.entry k(){\n.pragma "x', 2, 9, "a string without end; expected a string"),
        (".entry k(){\nret;\0 x", 2, 5, r"unexpected '\x00'; expected a statement, '}'"),
        (".entry k(){\nmov.b32 %r1, 1/0;", 2, 15, "division by zero"),
        (".entry k(){\nmov.b32 %r1, 1<<64;", 2, 15, "the shift count is not between 0 and 63"),
        (".entry k(){\nmov.b32 %r1, ~1.5;", 2, 14, "this operator needs integers"),
        (".entry k(){\nmov.b32 %r1, (.s64)1e999;", 2, 15, "this value has no integer form"),
        (".entry k(){\nld.b32 %r1, [%r2+1.5];", 2, 17, "an integer is needed here"),
        (".entry k(){\n.shared .b8 x[1.5];", 2, 14, "an integer is needed here"),
        (f".entry k(){{\nmov.b32 %r1, {'9' * 101};", 2, 14, "the number is too long"),
        (".entry k(){\nL: .branchtargets A<999999>;", 2, 21, "more than 65536 branch targets"),
    ],
)
def test_errors_name_their_place(parse: Parser, text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(ParseError) as error:
        parse(Source("k.ptx", text))
    assert error.value.what == what
    assert (error.value.file, error.value.line, error.value.column) == ("k.ptx", line, column)


@pytest.mark.parametrize("text", ["", " \n\t", "// nothing\n", "\0", "\ufeff"])
def test_a_file_without_a_statement_is_not_ptx(parse: Parser, text: str) -> None:
    with pytest.raises(InputError, match="empty file"):
        parse(Source("k.ptx", text))
