"""Printing and parsing again: the same statements, apart from their spans."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parse.ptx_texts import IN_BODY, IN_MODULE, STORED, body, stored
from verifier.parse import ptx_ast as ast
from verifier.parse.ptx import parse_ptx
from verifier.parse.ptx_literals import decode
from verifier.parse.ptx_print import render, render_all
from verifier.parse.source import Source, Span

NOWHERE = Span(0, 0)


def bare(statements: tuple[ast.Statement, ...]) -> list[ast.Statement]:
    return [msgspec.structs.replace(statement, span=NOWHERE) for statement in statements]


def assert_survives_printing(text: str) -> None:
    first = parse_ptx(Source("k.ptx", text)).statements
    again = parse_ptx(Source("k.ptx", render_all(first))).statements
    assert bare(again) == bare(first)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_files_survive_printing(path: Path) -> None:
    assert_survives_printing(stored(path))


@pytest.mark.parametrize("text", [*map(body, IN_BODY.values()), *IN_MODULE.values()], ids=[*IN_BODY, *IN_MODULE])
def test_constructs_survive_printing(text: str) -> None:
    assert_survives_printing(text)


names = st.from_regex(r"([A-Za-z][A-Za-z0-9_$]{0,8}|[_$%][A-Za-z0-9_$]{1,8})(\.[xyzw])?", fullmatch=True).map(ast.Name)
literals = st.one_of(
    st.integers(-(2**63), 2**64 - 1).map(str),
    st.integers(0, 2**32 - 1).map(hex),
    st.integers(0, 2**32 - 1).map(lambda bits: f"0f{bits:08X}"),
    st.integers(0, 2**64 - 1).map(lambda bits: f"0d{bits:016x}"),
    st.integers(0, 999).map(lambda value: f"{value}U"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
).map(lambda text: ast.Imm(decode(text), text))
sinks = st.just(ast.Sink())
negations = names.map(ast.Not)
offsets = st.integers(-(2**31), 2**31)
components = st.one_of(names, literals, sinks, negations)
vectors = st.lists(components, min_size=1, max_size=6).map(lambda items: ast.Vector(tuple(items)))
addresses = st.one_of(
    st.builds(ast.Address, names, offsets),
    st.builds(ast.Address, literals, st.just(0)),
    st.builds(ast.Address, names, offsets, st.lists(st.one_of(components, vectors), max_size=3).map(tuple)),
)
pairs = st.builds(ast.Pair, st.one_of(names, sinks), st.one_of(names, sinks))
operands = st.one_of(
    components,
    vectors,
    addresses,
    pairs,
    st.builds(ast.Sum, names, offsets),
    st.builds(ast.Element, names, st.one_of(offsets, names)),
)
guards = st.none() | st.builds(ast.Guard, names.map(lambda name: name.text), st.booleans())
opcodes = st.from_regex(r"[a-z]{1,5}(\.[a-z0-9_]{1,6}(::[a-z0-9_]{1,6})?){0,4}", fullmatch=True)
instructions = st.builds(
    ast.Instruction, st.just(NOWHERE), guards, opcodes, st.lists(operands, max_size=5).map(tuple)
).filter(lambda one: one.opcode not in ("call", "call.uni"))
arguments = st.lists(st.one_of(names, literals, vectors), max_size=3).map(lambda items: ast.Args(tuple(items)))
calls = st.builds(
    lambda guard, items: ast.Instruction(NOWHERE, guard, "call.uni", tuple(items)),
    guards,
    st.lists(st.one_of(arguments, names), min_size=1, max_size=4),
)


@given(st.lists(st.one_of(instructions, calls), min_size=1, max_size=4))
def test_random_instructions_survive_printing(statements: list[ast.Instruction]) -> None:
    text = body(*map(render, statements))
    found = parse_ptx(Source("k.ptx", text)).statements
    assert bare(found)[5:-1] == statements
