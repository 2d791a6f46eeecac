"""Control words: the bit positions, one by one, and what real instructions carry."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.parse.control import Control, Depbar, control_of, decode_control, depbar_of
from verifier.parse.sass import parse_sass
from verifier.parse.sass_ast import SassInstruction
from verifier.parse.source import Source

DATA = Path(__file__).parent / "data"
NOTHING = 7 << 46 | 7 << 49 | 1 << 45  # no scoreboard, yield bit set


def instruction(text: str) -> SassInstruction:
    (statement,) = parse_sass(Source("x", f"/*0000*/ {text} ;\n")).statements
    assert isinstance(statement, SassInstruction)
    return statement


def test_nothing_is_set() -> None:
    assert decode_control((0, NOTHING)) == Control(0, False, None, None, 0, 0)


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0xB << 41, {"stall": 11}),
        (1 << 52, {"wait": 1}),
        (0x3F << 52, {"wait": 0x3F}),
        (5 << 58, {"reuse": 5}),
    ],
)
def test_each_field_stands_alone(bits: int, expected: dict[str, int]) -> None:
    fields = {"stall": 0, "yields": False, "write": None, "read": None, "wait": 0, "reuse": 0, **expected}
    assert decode_control((0, NOTHING | bits)) == Control(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("scoreboard", range(6))
def test_scoreboards(scoreboard: int) -> None:
    control = decode_control((0, scoreboard << 46 | (5 - scoreboard) << 49 | 1 << 52 + scoreboard))
    assert (control.write, control.read) == (scoreboard, 5 - scoreboard)
    assert [n for n in range(6) if control.waits_for(n)] == [scoreboard]
    assert control.yields


def test_real_instructions() -> None:
    """`S2UR` sets a scoreboard that the first reader of its result waits for."""
    listing = parse_sass(Source("roles", (DATA / "roles.sass").read_text()))
    code = [s for s in listing.statements if isinstance(s, SassInstruction)]
    load = next(i for i in code if i.opcode == "S2R")
    reader = next(i for i in code[code.index(load) + 1 :] if "R9" in {getattr(o, "name", "") for o in i.operands})
    written = control_of(load)
    waits = control_of(reader)
    assert written is not None
    assert written.write is not None
    assert waits is not None
    assert waits.waits_for(written.write)


def test_without_hex_there_is_no_control() -> None:
    assert control_of(instruction("NOP")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DEPBAR.LE SB0, 0x1", Depbar(1, 1)),
        ("DEPBAR.LE SB3, 0x0", Depbar(8, 0)),
        ("DEPBAR {5,4,3,2,1,0}", Depbar(0x3F, 0)),
        ("NOP", None),
    ],
)
def test_depbar(text: str, expected: Depbar | None) -> None:
    assert depbar_of(instruction(text)) == expected
