"""Leaves of the PTX grammar: from tokens to names, numbers, strings and spans.

They serve two purposes. Parsing a file, a leaf becomes what it says. Learning the shape of a statement, it
becomes a `Hole` that stands for the n-th leaf of the text; whatever cannot be rebuilt from holes alone (a
folded expression) raises `Unlearnable`. To the type checker a hole passes for what it will be filled with.
"""

from __future__ import annotations

from typing import NoReturn, cast

from lark import Token

from verifier.errors import ParseError
from verifier.parse import ptx_literals as literals
from verifier.parse.ptx_ast import Imm, Name, Statement
from verifier.parse.ptx_template import Hole
from verifier.parse.source import Source, Span


class Unlearnable(Exception):
    """The statement may be fine, but what it says is not a function of its leaves."""


def start_of(token: Token) -> int:
    return cast(int, token.start_pos)


def end_of(token: Token) -> int:
    return cast(int, token.end_pos)


class Leaves:
    """State of one parse: where its offsets lie, what its leaves are, and the statements found so far."""

    def __init__(self) -> None:
        self.out: list[Statement] = []
        self._source = Source("", "")
        self._base = 0
        self._holes: dict[int, tuple[int, str]] | None = None
        self._texts: dict[int, str] = {}

    def begin(self, source: Source, base: int = 0, holes: dict[int, tuple[int, str]] | None = None) -> None:
        """Prepare for one parse. Offsets are moved by `base`; `holes` maps an offset to (index, text) of its leaf."""
        self.out = []
        self._source = source
        self._base = base
        self._holes = holes
        self._texts = dict((holes or {}).values())

    def fail(self, offset: int, what: str) -> NoReturn:
        at = max(offset + self._base, 0)
        raise ParseError(what, file=self._source.name, line=self._source.line_of(at), column=self._source.column_of(at))

    def span(self, start: int, end: int) -> Span:
        return Span(start + self._base, end + self._base)

    def between(self, first: Token, last: Token) -> Span:
        return self.span(start_of(first), end_of(last))

    def name_of(self, token: Token) -> Name:
        if self._holes is not None:
            return cast(Name, self._hole("o", start_of(token), token.value))
        return Name(token.value)

    def text_of(self, token: Token) -> str:
        if self._holes is not None:
            return cast(str, self._hole("s", start_of(token), token.value))
        return cast(str, token.value)

    def string_of(self, token: Token) -> str:
        if self._holes is not None:
            return cast(str, self._hole("q", start_of(token), token.value))
        return cast(str, token.value[1:-1])

    def initializer_of(self, equal: Token, text: str) -> str:
        """What follows `=` in a declaration; as a leaf, it has the sign and blanks."""
        if self._holes is not None:
            index, leaf = self._holes.get(start_of(equal), (-1, ""))
            if "".join(leaf[1:].split()) != text:
                raise Unlearnable
            return cast(str, Hole("a", index))
        return text

    def number_at(self, start: int, text: str) -> Imm:
        """The literal `text`, which has its sign when there is one."""
        if self._holes is not None:
            return cast(Imm, self._hole("o", start, text))
        try:
            return Imm(literals.decode(text), text)
        except literals.LiteralError as error:
            self.fail(start, str(error))

    def int_of(self, token: Token) -> int:
        return self.as_int(self.number_at(start_of(token), token.value), start_of(token))

    def as_int(self, value: Imm, near: int) -> int:
        """The integer that a constant denotes; `near` is where to complain."""
        hole = value if isinstance(value, Hole) else None
        number = literals.decode(self._texts[hole.index]) if hole else value.value
        if not isinstance(number, int):
            self.fail(near, "an integer is needed here")
        return cast(int, Hole("x", hole.index)) if hole else number

    def not_for_holes(self) -> None:
        """Give up learning a shape here."""
        if self._holes is not None:
            raise Unlearnable

    def _hole(self, role: str, start: int, text: str) -> Hole:
        index, leaf = (self._holes or {}).get(start, (-1, ""))
        if leaf != text:
            raise Unlearnable
        return Hole(role, index)
