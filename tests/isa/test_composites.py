"""Composite operations against plain arithmetic, on every truth table and on many numbers."""

from __future__ import annotations

import random

import pytest

from verifier.isa.compute import COMPOSITES, OPERATIONS, logic_form, mask, signed
from verifier.model.symbolic import compute
from verifier.model.values import SymbolTable, Value

M = mask(32)
NUMBERS = [0, 1, 2, 5, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, M] + [
    random.Random(7).getrandbits(32) for _ in range(20)
]


def run(op: str, *args: int, width: int = 32) -> int:
    result = compute(SymbolTable(), op, width, [Value(a) for a in args])
    assert result is not None
    assert result.constant is not None
    return result.constant & mask(width)


@pytest.mark.parametrize("table", range(256))
def test_logic_forms_compute_their_table(table: int) -> None:
    form = logic_form(table)
    if form is None:
        return
    places, operations, inverted = form
    a, b, c = 0xF0, 0xCC, 0xAA
    inputs = [(a, b, c)[p] ^ (0xFF if inverted >> p & 1 else 0) for p in places]
    result = inputs[0] if inputs else (0xFF if inverted else 0)
    for operation, value in zip(operations, inputs[1:], strict=True):
        result = OPERATIONS[operation](8, result, value)
    assert result == table


def test_common_tables_have_a_form() -> None:
    assert all(logic_form(t) is not None for t in (0x00, 0xFF, 0xC0, 0xFC, 0x3C, 0x0F, 0x80, 0xFE, 0x96, 0xF8, 0xEA))
    assert logic_form(0xE8) is None  # the majority of three


@pytest.mark.parametrize("a", NUMBERS)
def test_arithmetic(a: int) -> None:
    for b in NUMBERS[::3]:
        assert run("sum", a, 1, b, -1 & M, 7, 1) == (a + M * b + 7) & M
        assert run("mul_add", a, b, 1, 9, 1) == (a * b + 9) & M
        assert run("lea_hi", a, b, 0, 5) == (b + (a >> 27)) & M
        assert run("lea_hi_s", a, b, 27) == (b + (signed(a, 32) >> 5)) & M
        assert run("add_min_u", a, 3, b) == min((a + 3) & M, b)
        assert run("setp_lt_s_and", a, b, 32, 1, 0, width=1) == int(signed(a, 32) < signed(b, 32))
        assert run("setp_lt_s_and", a, b, 32, 1, 1, width=1) == 0
        assert run("setp_ge_u_or", a, b, 32, 0, 1, width=1) == 1
        assert run("lop3_ne", a, b, 0, 0xC0, width=1) == int(a & b != 0)


def test_symbols_pass_through() -> None:
    table = SymbolTable()
    x, y = table.value("x", uniform=True), table.value("y", uniform=True)
    total = compute(table, "sum", 32, [x, Value(1), Value(5), Value(-1), y, Value(4)])
    assert total is not None
    assert sorted(coef for _, coef in total.terms) == [1, 4]
    assert total.lanes == -5
    assert compute(table, "lop3", 32, [x, Value(M), Value(0), Value(0xC0)]) == x
    assert compute(table, "setp_eq_u_and", 1, [x, x, Value(32), Value(0), Value(1)]) == Value(1)


def test_first_lane_is_known_only_where_all_lanes_agree() -> None:
    table = SymbolTable()
    assert compute(table, "first_lane", 32, [Value(3)]) == Value(3)
    assert compute(table, "first_lane", 32, [Value(tuple(range(32)))]) is None


def test_lookup_outside_of_the_table_is_zero() -> None:
    assert [run("lookup", at, 4, 10, 20, 30) for at in (0, 4, 8, 2)] == [20, 30, 0, 0]


def test_names_do_not_hide_operations() -> None:
    assert set(COMPOSITES) & set(OPERATIONS) == {"lop3"}
