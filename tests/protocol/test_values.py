"""Values on the abstract machine: lanes, unknown parts, results that stay known."""

from __future__ import annotations

import pytest

from verifier.analyses.protocol.values import ALL_LANES, UNDEFINED, Memo, Parts, Scalar, Unknown, apply, collapse, merge
from verifier.isa.compute import OPERATIONS

LANES = tuple(range(32))
UNKNOWN = Unknown("a parameter")


def test_one_operation_on_lanes() -> None:
    assert apply("add", OPERATIONS["add"], 32, (LANES, 1), ALL_LANES) == tuple(range(1, 33))
    assert apply("sub", OPERATIONS["sub"], 32, (LANES, LANES), ALL_LANES) == 0


def test_only_active_lanes_count() -> None:
    values: tuple[Scalar, ...] = (7, *([UNDEFINED] * 31))
    assert collapse(values, (0,)) == 7
    assert apply("add", OPERATIONS["add"], 32, (values, 1), (0,)) == 8
    mixed = apply("add", OPERATIONS["add"], 32, (values, 1), (0, 1))
    assert isinstance(mixed, tuple)
    assert mixed[0] == 8
    assert mixed[1] is UNDEFINED


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [
        ("and", (UNKNOWN, 0), 0),
        ("or", (UNKNOWN, 0xFFFFFFFF), 0xFFFFFFFF),
        ("mul", (UNKNOWN, 0), 0),
        ("selp", (4, UNKNOWN, 1), 4),
        ("selp", (4, 4, UNKNOWN), 4),
        ("add", (UNKNOWN, 1), UNKNOWN),
        ("popc", (UNKNOWN,), UNKNOWN),
    ],
)
def test_what_an_unknown_operand_leaves_known(op: str, args: tuple[object, ...], result: object) -> None:
    assert apply(op, OPERATIONS[op], 32, args, ALL_LANES) == result  # type: ignore[arg-type]


def test_a_register_pair_keeps_its_known_half() -> None:
    pair = apply("pack", OPERATIONS["pack"], 64, (UNKNOWN, 5, 32), ALL_LANES)
    assert isinstance(pair, Parts)
    assert apply("field", OPERATIONS["field"], 32, (pair, 32), ALL_LANES) == 5
    assert apply("field", OPERATIONS["field"], 32, (pair, 0), ALL_LANES) is UNKNOWN


def test_merge_takes_each_lane_from_its_side() -> None:
    merged = merge(1, 2, (3, 4), ALL_LANES)
    assert isinstance(merged, tuple)
    assert [merged[lane] for lane in (2, 3, 4, 5)] == [1, 2, 2, 1]
    assert merge(1, 1, (3,), ALL_LANES) == 1
    assert merge(1, 2, ALL_LANES, ALL_LANES) == 2


def test_a_memo_does_not_mix_partial_warps_in() -> None:
    memo = Memo("add", OPERATIONS["add"], 32)
    assert memo((LANES, 1), ALL_LANES) == tuple(range(1, 33))
    assert memo((LANES, 1), (5,)) == 6
    assert memo((LANES, 1), ALL_LANES) == tuple(range(1, 33))
