"""The fast path gives what Lark gives: on stored files, on every construct, and on damaged texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.parse.ptx_texts import HEADER, IN_BODY, IN_MODULE, STORED, body, stored
from tests.parse.update_ptx_shapes import relearned, stored_shapes
from verifier.errors import VerifierError
from verifier.parse import ptx, ptx_text
from verifier.parse.ptx import parse_ptx, parse_ptx_reference
from verifier.parse.ptx_ast import PtxFile, Statement
from verifier.parse.ptx_shapes import SEED, PtxShapes, learn, sample
from verifier.parse.ptx_text import Rejected
from verifier.parse.source import Source

WHOLE = [*map(stored, STORED), *map(body, IN_BODY.values()), *IN_MODULE.values()]
NAMES = [*(path.stem for path in STORED), *IN_BODY, *IN_MODULE]

Outcome = tuple[Statement, ...] | str


def outcome(text: str, shapes: PtxShapes | None = None, *, reference: bool = False) -> Outcome:
    """The statements of a text, or what is wrong with it."""
    source = Source("k.ptx", text)
    try:
        return (parse_ptx_reference(source) if reference else parse_ptx(source, shapes)).statements
    except VerifierError as error:
        return str(error)


@pytest.mark.parametrize("text", WHOLE, ids=NAMES)
def test_both_ways_agree(text: str) -> None:
    expected = outcome(text, reference=True)
    assert not isinstance(expected, str)
    cold = PtxShapes()
    assert outcome(text, cold) == expected
    assert outcome(text, cold) == expected
    assert outcome(text) == expected


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_files_need_no_lark(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from verifier.parse.ptx import parse_ptx;"
        "from verifier.parse.source import Source;"
        "parse_ptx(Source('x', Path(sys.argv[1]).read_bytes().decode())); sys.exit('lark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], cwd=Path.cwd(), check=False).returncode == 0


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_files_are_read_by_shape_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> list[Statement]:
        raise AssertionError(args)

    monkeypatch.setattr(ptx._Reader, "_rest", fail)
    monkeypatch.setattr(ptx._Reader, "_alone", fail)
    assert isinstance(outcome(stored(path), PtxShapes()), tuple)


def test_lark_reads_on_where_the_fast_path_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    rest = ptx._Reader._rest

    def spy(self: ptx._Reader, at: int) -> list[Statement]:
        places.append(at)
        return rest(self, at)

    monkeypatch.setattr(ptx._Reader, "_rest", spy)
    text = body("ret;", "{", "{", "mov .b32 %r1, 2;", "}", "L: ret;", "}") + ".func f();"
    assert outcome(text) == outcome(text, reference=True)
    assert places == [text.index("mov .b32")]


@pytest.mark.parametrize("text", [stored(STORED[0]), body(*IN_BODY.values())], ids=["file", "constructs"])
def test_every_prefix_fails_alike(text: str) -> None:
    for end in range(0, len(text), max(1, len(text) // 150)):
        assert outcome(text[:end]) == outcome(text[:end], reference=True)


PIECES = [
    *"{}[]();,:.@!|_-+*/%$\"#<>=&^~? \n\t\0'",
    *("//", "/*", "*/", "::", ".reg", ".b32", ".loc 1 2 3", "0x1", "1.5", "-1", "08", "0f3f800000", "0f3f", "%r1"),
    *("%tid.x", "call", "call.uni", "(a)", "mov.b32", "mov", ".branchtargets", ".entry", ".func", ".visible", ".param"),
    *(".align 8", "function_name", "inlined_at", "@%p ", "ret;", "L:", ".section .x {", "\ufeff", "# x\n", "= 3"),
    *(
        "WARP_SZ",
        " .x",
        "[%r1]",
        '# 1 "a"',
        "= {1,2}",
        "é",
        "\u00a0",
        "+4",
        "[%r+4]",
        "{1,_}",
        "1+2",
        "(.s64)3",
        "!%p",
        "p|q",
        ".version 9.0",
        ", 3",
    ),
]

edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 1, 2, 5, 20]), st.sampled_from(["", *PIECES])), max_size=3
)


def edited(text: str, changes: list[tuple[float, int, str]]) -> str:
    for place, removed, inserted in changes:
        start = int(place * len(text))
        text = text[:start] + inserted + text[start + removed :]
    return text


@given(st.lists(st.sampled_from(list(IN_BODY.values())), min_size=1, max_size=3), edits)
@example(["ret;"], [(0.99, 0, "\0")])
def test_damaged_bodies_give_the_same(parts: list[str], changes: list[tuple[float, int, str]]) -> None:
    text = edited(body(*parts), changes)
    expected = outcome(text, reference=True)
    assert outcome(text) == expected
    assert outcome(text, PtxShapes()) == expected


@given(st.lists(st.sampled_from(list(IN_MODULE.values())), min_size=1, max_size=3), edits)
def test_damaged_modules_give_the_same(parts: list[str], changes: list[tuple[float, int, str]]) -> None:
    text = edited(HEADER + "\n".join(parts), changes)
    assert outcome(text, PtxShapes()) == outcome(text, reference=True)


@given(st.lists(st.sampled_from([*PIECES, "a", "1", "%r1", ", "]), max_size=12).map("".join))
def test_any_operands_give_the_same(text: str) -> None:
    whole = body(f"op {text};")
    assert outcome(whole, PtxShapes()) == outcome(whole, reference=True)


def test_the_shipped_table_is_what_lark_says_today() -> None:
    shapes = stored_shapes()
    assert len(shapes) > 100
    table = PtxShapes(SEED).memo.table
    assert table == relearned(shapes), "run python -m tests.parse.update_ptx_shapes"


@pytest.mark.parametrize("damage", [["o"], ["o", 99], ["t", ["o", -1]], ["Imm"], ["k"], ["t", "o"], [], ["x", True]])
def test_templates_that_make_no_sense_count_as_unknown(damage: list[object], tmp_path: Path) -> None:
    store = tmp_path / "shapes.json"
    text = body("x %r1, 2;")
    kept = PtxShapes(store=store)
    expected = outcome(text, kept)
    kept.memo.save()
    data = msgspec.json.decode(store.read_bytes())
    data["shapes"] = dict.fromkeys(data["shapes"], damage)
    store.write_bytes(msgspec.json.encode(data))
    assert outcome(text, PtxShapes(store=store)) == expected


def test_what_was_learned_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "shapes.json"
    text = stored(STORED[0])
    first = PtxShapes(store=store)
    expected = outcome(text, first)
    first.memo.save()
    monkeypatch.setattr("verifier.parse.ptx_shapes.learn", lambda shape: pytest.fail(f"{shape!r} was learned again"))
    assert outcome(text, PtxShapes(store=store)) == expected


def test_a_sample_has_the_shape_it_is_made_for() -> None:
    assert sample("oNIM\0{\0, \0, \0}") == "{%r1, 7, -7}"
    assert sample("o\0[\0+\0]") == "[%r1+%r1]"
    with pytest.raises(Rejected):
        learn("oN\0[\0")


def test_leaves_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.parse.ptx_shapes.MAX_LEAVES", 3)
    shapes = PtxShapes()
    outcome(body("x a, b, c, d;"), shapes)
    assert not shapes.objects


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        ("a // b\nc", "a     \nc"),
        ("a /* b\n */c", "a         c"),
        ("/*/ a */b", "        b"),
        ('# 1 "a"\nb', "       \nb"),
        ("# a\nb", "# a\nb"),
        ('"// a" // b', '"// a"     '),
        ("a // b", "a     "),
        ("/* a", "/* a"),
        ('" // a', '" // a'),
        ("a / b", "a / b"),
    ],
)
def test_comments_become_blanks(text: str, blanked: str) -> None:
    assert ptx_text.blank_comments(text) == blanked


def test_result_is_a_file_of_its_source() -> None:
    source = Source("k.ptx", HEADER)
    assert parse_ptx(source) == PtxFile(source, parse_ptx_reference(source).statements)
