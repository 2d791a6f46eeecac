"""The authority on SASS text: the Lark grammar, and how its tree becomes statements.

The fast path of `verifier.parse.sass` must give the same result; it asks this module about every operand shape
that it has not met, and about every line that its patterns do not fit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from verifier.errors import ParseError
from verifier.parse.sass_ast import (
    Address,
    Banner,
    Guard,
    Immediate,
    Indices,
    LineInfo,
    Operand,
    Register,
    SassData,
    SassDirective,
    SassFile,
    SassInstruction,
    SassLabel,
    SassStatement,
    Symbol,
    Word,
)
from verifier.parse.shapes import grammar_text
from verifier.parse.source import Source, Span

_FRIENDLY = {
    "OFFSET": "an instruction offset /*0000*/",
    "HEXWORD": "an encoding word /* 0x... */",
    "OPCODE": "an opcode",
    "REGISTER": "a register",
    "SEMICOLON": '";"',
    "COMMA": '","',
    "NEWLINE": "the end of the line",
    "SUFFIX": "a suffix",
    "WORD": "a word",
    "HEX": "a hexadecimal number",
    "FLOAT": "a decimal number",
    "DIRECTIVE": "a directive",
    "LABEL": "a label",
    "$END": "the end of the file",
    "LINE_INFO": "a line comment",
    "BANNER": "a comment",
    "NOTE": "a note",
    "LSQB": '"["',
    "RSQB": '"]"',
    "BAR": '"|"',
    "AT": "a guard",
    "NOT": '"!"',
    "MINUS": '"-"',
    "PLUS": '"+"',
}
_OPERAND_STARTS = frozenset(
    {"BAR", "LBRACE", "LSQB", "PREFIX", "RELOCATION", "SPECIAL", "SYMBOL", "FLOAT", "HEX", "REGISTER", "WORD"}
)
_LONGEST_QUOTE = 30


class _Builder(Transformer[Token, object]):
    """Turns the tree of one listing into AST values, bottom up."""

    def __init__(self, text: str, shift: int) -> None:
        super().__init__()
        self._text = text
        self._shift = shift

    def _span(self, first: Token, last: Token) -> Span:
        return Span((first.start_pos or 0) + self._shift, (last.end_pos or 0) + self._shift)

    # -- operands

    def register(self, items: list[Token]) -> Register:
        return Register(str(items[0]), "", _suffixes(items[1:]))

    def integer(self, items: list[Token]) -> Immediate:
        return Immediate(int(items[0], 16), "", _suffixes(items[1:]))

    def floating(self, items: list[Token]) -> Immediate:
        return Immediate(float(items[0]), "", _suffixes(items[1:]))

    def word(self, items: list[Token]) -> Word:
        return Word(str(items[0]), "", _suffixes(items[1:]))

    def symbol(self, items: list[Token]) -> Symbol:
        return Symbol(str(items[0][2:-1]))

    def relocation(self, items: list[Token]) -> Symbol:
        how, _, rest = items[0].partition("(")
        return Symbol(rest[:-1], how)

    def indices(self, items: list[Token]) -> Indices:
        return Indices(tuple(int(index) for index in items[0].split(",")))

    def term(self, items: list[Token]) -> Register | Symbol | int:
        first = items[0]
        if first.type == "REGISTER":
            return self.register(items)
        if first.type == "SYMBOL":
            return self.symbol(items)
        return -int(items[1], 16) if first.type == "MINUS" else int(first, 16)

    def sum(self, items: list[Register | Symbol | int]) -> tuple[tuple[Register | Symbol, ...], int]:
        terms = tuple(item for item in items if not isinstance(item, int))
        return terms, sum(item for item in items if isinstance(item, int))

    def address(self, items: list[object]) -> Address:
        kind = str(items.pop(0)) if isinstance(items[0], Token) else ""
        terms, offset = _as_sum(items[0])
        return Address(kind, terms, offset, None, "", _suffixes(items[1:]))

    def headed_address(self, items: list[object]) -> Address:
        registers, bank = _as_sum(items[1])
        head = registers[0] if registers else Immediate(bank)
        assert isinstance(head, Register | Immediate)
        terms, offset = _as_sum(items[2])
        return Address(str(items[0]), terms, offset, head, "", _suffixes(items[3:]))

    def operand(self, items: list[object]) -> Operand:
        prefix = ""
        while isinstance(items[0], Token):
            prefix += items.pop(0)  # type: ignore[operator]
        value = items[0]
        assert isinstance(value, Operand)
        outer = _suffixes(item for item in items[1:] if isinstance(item, Token) and item.type == "SUFFIX")
        if isinstance(value, Symbol | Indices):
            return value
        if isinstance(value, Immediate) and prefix in ("-", "+"):
            return Immediate(-value.value if prefix == "-" else value.value, "", value.suffixes)
        return _decorated(value, prefix, value.suffixes + outer) if prefix or outer else value

    def operand_list(self, items: list[Operand]) -> tuple[Operand, ...]:
        return tuple(items)

    # -- statements

    def guard(self, items: list[Token]) -> Guard:
        return Guard(str(items[-1]), len(items) == 2)

    def encoding(self, items: list[Token]) -> list[int]:
        return [int(items[0][5:-3], 16), int(items[-1][5:-3], 16)]

    def instruction(self, items: list[object]) -> SassInstruction:
        tokens = {item.type: item for item in items if isinstance(item, Token)}
        guard = next((item for item in items if isinstance(item, Guard)), None)
        operands: tuple[Operand, ...] = next((item for item in items if isinstance(item, tuple)), ())
        words = next(((item[0], item[1]) for item in items if isinstance(item, list)), None)
        note = str(tokens["NOTE"][3:-3]) if "NOTE" in tokens else None
        span = self._span(tokens["OFFSET"], tokens["SEMICOLON"])
        return SassInstruction(span, _offset(tokens["OFFSET"]), guard, str(tokens["OPCODE"]), operands, note, words)

    def label(self, items: list[Token]) -> SassLabel:
        return SassLabel(self._span(items[0], items[0]), str(items[0][:-1]))

    def line_info(self, items: list[Token]) -> LineInfo:
        inlined = (str(items[3][1:-1]), int(items[4])) if len(items) > 3 else None
        return LineInfo(self._span(items[0], items[-1]), str(items[1][1:-1]), int(items[2]), inlined)

    def argument(self, items: list[Token]) -> tuple[str, Token]:
        return self._text[items[0].start_pos : items[-1].end_pos], items[-1]

    def directive(self, items: list[object]) -> SassDirective:
        first = items[0]
        assert isinstance(first, Token)
        args, last = _arguments(items[1:], first)
        return SassDirective(self._span(first, last), str(first), args)

    def data(self, items: list[object]) -> SassData:
        first, name = items[0], items[1]
        assert isinstance(first, Token)
        assert isinstance(name, Token)
        args, last = _arguments(items[2:], name)
        return SassData(self._span(first, last), _offset(first), str(name), args)

    def banner(self, items: list[Token]) -> Banner:
        text = items[0].rstrip()
        start = (items[0].start_pos or 0) + self._shift
        return Banner(Span(start, start + len(text)), text)

    def listing(self, items: list[object]) -> list[object]:
        return [item for item in items if not isinstance(item, Token)]


def _offset(token: Token) -> int:
    return int(token[2:-2], 16)


def _suffixes(tokens: object) -> tuple[str, ...]:
    assert hasattr(tokens, "__iter__")
    return tuple(str(token[1:]) for token in tokens)


def _as_sum(item: object) -> tuple[tuple[Register | Symbol, ...], int]:
    assert isinstance(item, tuple)
    return item


def _arguments(items: list[object], last: Token) -> tuple[tuple[str, ...], Token]:
    texts: list[str] = []
    for item in items:
        assert isinstance(item, tuple)
        text, last = item
        texts.append(text)
    return tuple(texts), last


def _decorated(value: Register | Immediate | Word | Address, prefix: str, suffixes: tuple[str, ...]) -> Operand:
    if isinstance(value, Register):
        return Register(value.name, prefix, suffixes)
    if isinstance(value, Immediate):
        return Immediate(value.value, prefix, suffixes)
    if isinstance(value, Word):
        return Word(value.text, prefix, suffixes)
    return Address(value.kind, value.terms, value.offset, value.head, prefix, suffixes)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    starts = ["listing", "operand_list"]
    return Lark(grammar_text("sass"), parser="lalr", lexer="contextual", start=starts, maybe_placeholders=False)


def parse_operands(text: str) -> tuple[Operand, ...] | None:
    """Operands of one instruction, or None when the grammar does not accept the text."""
    try:
        tree = _parser().parse(text, start="operand_list")
    except UnexpectedInput:
        return None
    operands = _Builder(text, 0).transform(tree)
    assert isinstance(operands, tuple)
    return operands


def parse_lines(source: Source, start: int, end: int) -> list[SassStatement]:
    """Statements of the lines between two offsets of `source`; ParseError when one is not SASS."""
    text = source.text[start:end]
    try:
        tree = _parser().parse(text, start="listing")
    except UnexpectedInput as error:
        _fail(source, start, end, error)
    statements = _Builder(text, start).transform(tree)
    assert isinstance(statements, list)
    return statements


def parse_with_lark(source: Source) -> SassFile:
    """The whole listing by the plain grammar: slow, and the reference for the fast path."""
    return SassFile(source, tuple(parse_lines(source, 0, len(source.text))))


def _fail(source: Source, start: int, end: int, error: UnexpectedInput) -> NoReturn:
    expected: set[str] = set()
    position = end
    found = "the end of the text"
    if isinstance(error, UnexpectedCharacters):
        position, expected = start + cast(int, error.pos_in_stream), set(error.allowed or ())
        found = repr(source.text[position : position + _LONGEST_QUOTE].split("\n")[0])
    elif isinstance(error, UnexpectedToken):
        expected = set(error.accepts or error.expected)
        if error.token.type != "$END":
            position = start + (error.token.start_pos or 0)
            found = repr(str(error.token)[:_LONGEST_QUOTE])
    elif isinstance(error, UnexpectedEOF):
        expected = set(error.expected)
    raise ParseError(
        f"this is not SASS: found {found}",
        file=source.name,
        line=source.line_of(position),
        column=source.column_of(position),
        expected=_in_words(expected),
    )


def _in_words(terminals: set[str]) -> tuple[str, ...]:
    names = {_FRIENDLY.get(name, name) for name in terminals}
    if terminals >= _OPERAND_STARTS:
        names = {_FRIENDLY.get(name, name) for name in terminals - _OPERAND_STARTS} | {"an operand"}
    return tuple(sorted(names))
