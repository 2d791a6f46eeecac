"""The authority: Lark over the PTX grammar. Imported only when a text has a shape that no memo knows.

Lark's own error types stop here; what leaves is `ParseError` with a position in the user's file.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import cast

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from verifier.errors import ParseError
from verifier.parse.ptx_ast import Param, Statement
from verifier.parse.ptx_build import Builder, Performed
from verifier.parse.ptx_leaves import start_of
from verifier.parse.shapes import grammar_text
from verifier.parse.source import Source

_STARTS = ["file", "body", "param", "header_directive"]

_EXPECTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a statement", ("DOTTED",)),
    ("a directive", ("VERSION", "ENTRY")),
    ("an instruction", ("WORD",)),
    ("an operand", ("LSQB", "SINK")),
    ("a name", ("NAME",)),
    ("a number", ("INT", "FLOAT", "VERSION_NUMBER")),
    ("a string", ("STRING",)),
    ("a type such as '.b32'", ("DATA_TYPE",)),
    ("a parameter", ("PARAM",)),
    ("'{'", ("LBRACE",)),
    ("'}'", ("RBRACE",)),
    ("'('", ("LPAR",)),
    ("')'", ("RPAR",)),
    ("']'", ("RSQB",)),
    ("','", ("COMMA",)),
    ("':'", ("COLON",)),
    ("';'", ("SEMI",)),
    ("the end of the file", ("$END",)),
)


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
    if isinstance(error, UnexpectedToken):
        at_end = error.token.type == "$END"
        at = base + (length if at_end else start_of(error.token))
        what = "unexpected end of file" if at_end else f"unexpected {_quote(error.token.value)}"
        terminals = set(error.expected)
    else:
        assert isinstance(error, UnexpectedCharacters)
        at = base + cast(int, error.pos_in_stream)
        what = f"unexpected {_quote(error.char)}"
        terminals = set(error.allowed)
    line, column = source.line_of(max(at, 0)), source.column_of(max(at, 0))
    return ParseError(what, file=source.name, line=line, column=column, expected=_expected(terminals))


def _quote(text: str) -> str:
    first = text.split("\n", 1)[0]
    shown = first if len(first) <= 32 else first[:32] + "..."
    return repr(shown) if not shown.isprintable() else f"'{shown}'"


def _expected(terminals: set[str]) -> tuple[str, ...]:
    return tuple(words for words, names in _EXPECTED if terminals.intersection(names))
