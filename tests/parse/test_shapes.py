"""The shape memo: what it keeps, and what it refuses to load."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.parse.shapes import ShapeMemo, fingerprint, grammar_text, write_memo

PRINT = fingerprint("grammar", "format-1")


def memo(store: Path, print_of: str = PRINT) -> ShapeMemo[list[int]]:
    return ShapeMemo(list[int], print_of, store=store, valid=lambda shape, template: len(template) == len(shape))


def test_what_was_learned_is_there_again(tmp_path: Path) -> None:
    first = memo(tmp_path / "deep" / "memo.json")
    first.learn("ab", [1, 2])
    first.save()
    assert memo(tmp_path / "deep" / "memo.json").table == {"ab": [1, 2]}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["memo.json"]


def test_two_processes_do_not_lose_each_others_shapes(tmp_path: Path) -> None:
    store = tmp_path / "memo.json"
    one, two = memo(store), memo(store)
    one.learn("a", [1])
    two.learn("b", [2])
    one.save()
    two.save()
    assert memo(store).table == {"a": [1], "b": [2]}


def test_another_grammar_has_another_memo(tmp_path: Path) -> None:
    write_memo(tmp_path / "memo.json", PRINT, {"a": [1]})
    assert memo(tmp_path / "memo.json", fingerprint("grammar", "format-2")).table == {}
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"[1]",
        b'{"schema_version":1,"fingerprint":"%s","shapes":{"a":"x"}}' % PRINT.encode(),
        b'{"schema_version":1,"fingerprint":"%s","shapes":{"a":[1,2]}}' % PRINT.encode(),
        b'{"schema_version":2,"fingerprint":"%s","shapes":{"a":[1]}}' % PRINT.encode(),
    ],
)
def test_a_damaged_memo_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memo.json").write_bytes(content)
    assert memo(tmp_path / "memo.json").table == {}


def test_a_store_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    full = memo(tmp_path / "file" / "memo.json")
    full.learn("a", [1])
    full.save()
    assert full.table == {"a": [1]}


def test_the_grammar_is_found() -> None:
    assert "listing:" in grammar_text("sass")
