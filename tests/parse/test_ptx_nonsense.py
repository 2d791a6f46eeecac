"""Texts that are no PTX, or far too much of it: one clear error or a result, and no other exception."""

from __future__ import annotations

import sys

import pytest

from tests.parse.ptx_texts import HEADER, body
from verifier.errors import ParseError, VerifierError
from verifier.parse.ptx import MAX_STATEMENT, PROBE, parse_ptx, parse_ptx_reference
from verifier.parse.source import Source

OPEN = HEADER + ".entry k()\n{\n"
HUGE = 3_000_000


@pytest.mark.parametrize(
    "text",
    [
        "foo { 1 ; @ " * (HUGE // 12),
        "a" * HUGE,
        "a." * (HUGE // 2),
        "a::" * (HUGE // 3),
        "\0" * HUGE + "x",
        '"' * HUGE + "'",
        "/*" * (HUGE // 2),
        "@" * HUGE,
        "@" + " " * HUGE,
        "mov" + " " * HUGE,
        "mov %r1" + ", %r1" * (HUGE // 5),
        "mov.b32 %r1, " + "1" * HUGE + ";",
        "." * HUGE,
        "{" * 200_000,
        ".reg .b32 %r" + " " * HUGE,
        ".func f" + " " * HUGE,
        ".loc 1 2 3" + " " * HUGE,
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("before", ["", OPEN], ids=["module", "body"])
def test_nonsense_of_any_size_is_one_error(before: str, text: str) -> None:
    with pytest.raises(VerifierError) as error:
        parse_ptx(Source("k.ptx", before + text))
    assert len(str(error.value)) < 400


def test_binary_is_one_error() -> None:
    data = bytes(range(256)) * 64
    for text in (data.decode("latin-1"), data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape")):
        with pytest.raises(ParseError):
            parse_ptx(Source("k.ptx", text))


@pytest.mark.parametrize(
    "statement",
    [
        "{" * 50_000 + "}" * 50_000,
        "mov.b32 %r1, " + "(" * 20_000 + "1" + ")" * 20_000 + ";",
        "mov.b32 %r1, " + "~" * 20_000 + "1;",
        "mov.b32 %r1, " + "1+" * 20_000 + "1;",
        "mov.b32 %r1, " + "1?2:" * 5_000 + "3;",
        "mov.b32 {" + "%r1," * 20_000 + "%r1};",
    ],
    ids=["scopes", "parentheses", "operators", "sum", "choices", "vector"],
)
def test_depth_is_no_limit(statement: str) -> None:
    assert len(statement) > sys.getrecursionlimit()
    assert parse_ptx(Source("k.ptx", body(statement))).statements


def test_nested_initializers_are_no_limit() -> None:
    depth = 5_000
    assert parse_ptx(Source("k.ptx", f".global .b32 x = {'{' * depth}1{'}' * depth};")).statements


def test_a_statement_that_does_not_end_is_given_up() -> None:
    text = OPEN + "mov %r1" + ", %r1" * MAX_STATEMENT
    with pytest.raises(ParseError, match=f"no ';' in {MAX_STATEMENT} characters") as error:
        parse_ptx(Source("k.ptx", text))
    assert (error.value.line, error.value.column) == (6, MAX_STATEMENT + 1)


def test_an_error_in_a_statement_that_does_not_end_comes_first() -> None:
    with pytest.raises(ParseError, match=r"unexpected '%r2'"):
        parse_ptx(Source("k.ptx", OPEN + "mov %r1 %r2" + ", %r1" * MAX_STATEMENT))


def test_a_huge_file_is_read_to_its_end() -> None:
    count = 2 * PROBE // 10
    text = body("add %r1,3;\n" * count)
    assert len(text) > 2 * PROBE
    assert len(parse_ptx(Source("k.ptx", text)).statements) == count + 6


def test_a_huge_file_with_a_late_error_names_it() -> None:
    count = 2 * PROBE // 10
    text = body("add %r1,3;\n" * count + "add %r1 3;")
    with pytest.raises(ParseError) as error:
        parse_ptx(Source("k.ptx", text))
    assert error.value.line == len(HEADER.splitlines()) + 3 + count + 1


def test_a_comment_longer_than_what_is_tried_first() -> None:
    text = "/*" + "x" * 3 * PROBE + "*/" + body("ret;")
    assert parse_ptx(Source("k.ptx", text)).statements == parse_ptx_reference(Source("k.ptx", text)).statements
