"""The authority: Lark over the PTX grammar. Imported only when a text has a shape that no memo knows.

Lark's own error types stop here; what leaves is `ParseError` with a position in the user's file.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from typing import cast

from lark import Lark, UnexpectedInput, UnexpectedToken

from verifier.errors import ParseError
from verifier.parse.ptx_ast import Param, Statement
from verifier.parse.ptx_build import Builder, Performed
from verifier.parse.ptx_leaves import start_of
from verifier.parse.shapes import grammar_text
from verifier.parse.source import Source

_STARTS = ["file", "body", "param", "header_directive"]

_OPERAND = {"NAME", "INT", "FLOAT", "SINK", "LBRACE", "LPAR", "LSQB", "NOT", "SIGN", "TILDE"}
_CLOSERS = {"RBRACE", "RPAR", "RSQB", "COMMA", "COLON", "SEMI", "EQUAL"}

_EXPECTED: tuple[tuple[str, set[str]], ...] = (
    ("a statement", {"DOTTED", "LBRACE"}),
    ("an opcode", {"DOTTED"}),
    ("a directive", {"VERSION"}),
    ("an operand", {"NAME", "INT", "SINK"}),
    ("a name", {"NAME"}),
    ("a number", {"INT"}),
    ("a version such as '9.0'", {"VERSION_NUMBER"}),
    ("a string", {"STRING"}),
    ("a section name", {"SECTION_NAME"}),
    ("a type such as '.b32'", {"DATA_TYPE"}),
    ("a parameter", {"PARAM"}),
    ("'{'", {"LBRACE"}),
    ("'}'", {"RBRACE"}),
    ("'('", {"LPAR"}),
    ("')'", {"RPAR"}),
    ("']'", {"RSQB"}),
    ("','", {"COMMA"}),
    ("':'", {"COLON"}),
    ("'='", {"EQUAL"}),
    ("';'", {"SEMI"}),
)
"""What to call a set of terminals. A whole statement, directive or operand stands for all that can begin it."""


_WORD = re.compile(r"[\w$%.]{1,40}|[\s\S]", re.ASCII)
"""What to quote of a text that is not accepted."""


class Engine:
    """One Lark parser and its callbacks. Building it takes about 0.1 s; `engine()` shares it."""

    def __init__(self) -> None:
        self._builder = Builder()
        self._lock = threading.Lock()
        self._lark = Lark(
            grammar_text("ptx"), parser="lalr", start=_STARTS, transformer=self._builder, maybe_placeholders=False
        )

    def statements(self, source: Source, text: str, base: int = 0, start: str = "file") -> list[Statement]:
        """Statements of `text`, which lies `base` characters into `source`. Raises `ParseError`."""
        return self._run(source, text, base, start, None)[0]

    def learn(self, text: str, start: str, holes: dict[int, tuple[int, str]] | None) -> object:
        """Parse one statement or part with its leaves replaced by `holes`. Raises `ParseError` or `Unlearnable`."""
        out, result = self._run(Source("", text), text, 0, start, holes)
        if isinstance(result, Param):
            return result
        return (result.name, result.values) if isinstance(result, Performed) else tuple(out)

    def _run(
        self, source: Source, text: str, base: int, start: str, holes: dict[int, tuple[int, str]] | None
    ) -> tuple[list[Statement], object]:
        with self._lock:
            self._builder.begin(source, base, holes)
            try:
                result = self._lark.parse(text, start=start)
            except UnexpectedInput as error:
                raise _explain(error, source, len(text), base) from None
            return self._builder.out, result


@cache
def engine() -> Engine:
    """The one engine of this process."""
    return Engine()


def _explain(error: UnexpectedInput, source: Source, length: int, base: int) -> ParseError:
    token = error.token if isinstance(error, UnexpectedToken) else None
    at = base + (cast(int, error.pos_in_stream) if token is None else start_of(token))
    what = _what_is_at(source.text, at)
    if token is not None and token.type == "$END":
        at, what = base + length, "unexpected end of file"
    line, column = source.line_of(max(at, 0)), source.column_of(max(at, 0))
    terminals: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    return ParseError(what, file=source.name, line=line, column=column, expected=_expected(terminals))


def _what_is_at(text: str, at: int) -> str:
    if text.startswith("/*", at):
        return "a comment without end"
    if text.startswith('"', at):
        return "a string without end" if text.find('"', at + 1) == -1 else "unexpected string"
    word = _WORD.match(text, at)
    shown = word[0] if word else ""
    return f"unexpected '{shown}'" if shown.isprintable() else f"unexpected {shown!r}"


def _expected(terminals: set[str]) -> tuple[str, ...]:
    words = []
    for phrase, needed in _EXPECTED:
        if needed <= terminals:
            words.append(phrase)
            if "DOTTED" in needed or "VERSION" in needed:
                terminals &= _CLOSERS
            elif "SINK" in needed:
                terminals -= _OPERAND
    return tuple(words)
