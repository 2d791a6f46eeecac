"""Cutting PTX text: comments, statement boundaries, leaves. Only boundaries; meaning comes from the grammar.

Patterns are put together from the terminals of `ptx.lark`, so that what counts as a name or a number is said once.
"""

from __future__ import annotations

import re
from functools import cache

from verifier.parse import ptx_literals as literals
from verifier.parse.ptx_ast import Imm, Name, Operand
from verifier.parse.shapes import grammar_text

BLANKS = " \t\r\n\f\v"


@cache
def terminal(name: str) -> str:
    """Pattern of a terminal of the grammar."""
    found = re.search(rf"^{name}(?:\.\d+)?: /(.*)/$", grammar_text("ptx"), re.MULTILINE)
    assert found is not None, f"the grammar has no terminal {name}"
    return found[1]


_NAME = terminal("NAME")
_STRING = terminal("STRING")
_OPCODE = r"[A-Za-z]\w{0,255}(?:\.\w{1,255}(?:::\w{1,255}){0,7}){0,63}"
_WORD = rf"(?:{terminal('WORD')}|{terminal('SYMBOL')})"
_DIGITS = r"\d\w{0,255}(?![\w$.])"
_LINKAGE = r"(?:\.(?:extern|visible|weak|common)\s*){0,4}"
_STRINGS = rf"{_STRING}(?:\s*,\s*{_STRING}){{0,31}}"

_GOES_ON = r"[\w$.]|\s*,"
"""What must not follow a directive that has no end mark of its own."""

_OPENER = re.compile(rf'"|//|/\*|{terminal("MARKER")}')
"""Where a comment or a line marker may begin; strings too, so that a `//` in a path is not taken for a comment."""

_BRACKETS = re.compile(r"[,()\[\]{}]")

_FRESH = r"(?<![.\w$%])"
LEAF = re.compile(
    rf"({_STRING}|(?:-|{_FRESH})\.?\d[\w$.]*(?:(?<=[eE])[+-]\d+)?"
    rf"|=[^;\"\0]*|{_FRESH}(?!(?:function_name|inlined_at)\b){_NAME})",
    re.ASCII,
)
"""A name, number, string or initializer. `split` gives what is fixed and what varies in turn."""

_DECLARATION = rf"{_LINKAGE}\.(?:reg|param|shared|global|const|local|tex)\b[^;\"\0]*;"
_LOC = (
    rf"\.loc\s+{_DIGITS}\s+{_DIGITS}\s+{_DIGITS}(?:\s*,\s*function_name\s+{_NAME}(?:\s*[+-]\s*{_DIGITS})?"
    rf"\s*,\s*inlined_at\s+{_DIGITS}\s+{_DIGITS}\s+{_DIGITS})?(?!{_GOES_ON})"
)
_TARGETS = rf"{_WORD}\s*:\s*\.(?:branchtargets|calltargets|callprototype)\b[^;\"\0]*;"

BODY = re.compile(
    rf"\s*(?:(@\s*(?:!\s*)?{_NAME}\s+)?({_OPCODE})(?![\w$%]|\s*[:.])([^;\"\0]*);"
    rf"|({_WORD})\s*:(?!:|\s*\.(?:branchtargets|calltargets|callprototype)\b)"
    rf"|([{{}}])"
    rf"|({_LOC}|{_DECLARATION}|{_TARGETS}|\.pragma\s*{_STRINGS}\s*;)"
    rf"|(\S)|\Z)",
    re.ASCII,
)
"""One statement of a body: guard, opcode, operands | label | brace | directive | anything else | the end."""

INSTRUCTION, LABEL, BRACE, DIRECTIVE = 3, 4, 5, 6
"""`lastindex` of a match of `BODY`."""

_PERFORMANCE = rf"\.[a-z][a-z0-9_]{{0,255}}(?:\s+{_DIGITS}(?:\s*,\s*{_DIGITS}){{0,15}})?"
HEADER = re.compile(
    rf"({_LINKAGE})\.(entry|func)\b\s*(?:(\([^()\0]*\))\s*)?({_NAME})(?![\w$.])(?:\s*(\([^()\0]*\)))?"
    rf"((?:\s*{_PERFORMANCE}){{0,63}})\s*([{{;])",
    re.ASCII,
)
"""A function header: linkage, kind, returns, name, parameters, directives, what follows it."""

_COUNTED = rf"({_NAME})(?:\s*<\s*({_DIGITS})\s*>)?"
REGISTERS = re.compile(
    rf"\.reg\s+(?:({terminal('VECTOR')})\s*)?({terminal('DATA_TYPE')})\s*"
    rf"({_COUNTED}(?:\s*,\s*{_COUNTED}){{0,999}})\s*;",
    re.ASCII,
)
"""A declaration of registers, the most frequent one: vector, type, names."""

COUNTED = re.compile(_COUNTED, re.ASCII)
"""A name with its count."""

HEADER_DIRECTIVE = re.compile(_PERFORMANCE, re.ASCII)

MODULE = re.compile(
    rf"\s*(?:({_LINKAGE}\.(?:entry|func)\b)"
    rf"|((?:\.version\s+\d+\.\d+|\.target\s+\w+(?:\s*,\s*\w+){{0,31}}|\.address_size\s+\w+"
    rf"|\.file\s+{_DIGITS}\s*{_STRING}(?:\s*,\s*{_DIGITS}\s*,\s*{_DIGITS})?)(?!{_GOES_ON})"
    rf"|{_DECLARATION}|\.pragma\s*{_STRINGS}\s*;|\.alias\b[^;\"\0]*;)"
    rf"|(\.section\s+\.[A-Za-z_][\w.$]*\s*\{{[^{{}}\"]*\}})"
    rf"|((?<![\s\S])\ufeff|\x00[\x00\s]*\Z|\Z)"
    rf"|(\S))",
    re.ASCII,
)
"""One module item: start of a function | directive | section | nothing | anything else."""

FUNCTION, ITEM, SECTION, NOTHING = 1, 2, 3, 4
"""`lastindex` of a match of `MODULE`."""

_NUMBER = rf"(?:[+-]\s*)?(?:{terminal('FLOAT')}|{terminal('INT')})"
_SYMBOL = rf"(?:{_NAME}|{terminal('SECTION_NAME')})(?:\s*[+-]\s*(?:{terminal('INT')}|{_NAME}))?"
_VALUE = rf"(?:{_NUMBER}|{_SYMBOL})"

SECTION_HEAD = re.compile(rf"\.section\s+({terminal('SECTION_NAME')})\s*\{{", re.ASCII)
SECTION_ITEM = re.compile(
    rf"\s*(?:({_WORD})\s*:(?!:)|({terminal('DATA_TYPE')})\s*({_VALUE}(?:\s*,\s*{_VALUE}){{0,4095}})|(\}})|(\S))",
    re.ASCII,
)
"""One item of a debug section: label | type, values | end | anything else."""


def split_operands(text: str) -> list[str]:
    """Operands of a list, without the blanks around them; nothing in brackets separates. Raises `Rejected`."""
    found, start, depth = [], 0, 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] != ",":
            depth += 1 if mark[0] in "([{" else -1
        elif depth == 0:
            found.append(text[start : mark.start()].strip(BLANKS))
            start = mark.end()
        if depth < 0:
            raise Rejected
    if text:
        found.append(text[start:].strip(BLANKS))
    if depth or not all(found):
        raise Rejected
    return found


def blank_comments(text: str) -> str:
    """`text` with spaces for comments: every offset stays what it was."""
    if "/" not in text and "#" not in text:
        return text
    pieces: list[str] = []
    kept = 0
    opener = _OPENER.search(text)
    while opener is not None:
        start = opener.start()
        end = _end_of_comment(text, opener)
        if end == 0:
            break
        if opener[0] != '"':
            pieces += (text[kept:start], " " * (end - start))
            kept = end
        opener = _OPENER.search(text, end)
    return "".join((*pieces, text[kept:]))


def _end_of_comment(text: str, opener: re.Match[str]) -> int:
    """Offset behind a comment or string; 0 when it does not end, and then nothing after it can be PTX."""
    start = opener.end()
    if opener[0] == '"':
        return text.find('"', start) + 1
    if opener[0] == "/*":
        end = text.find("*/", start)
        return 0 if end == -1 else end + 2
    if opener[0] == "//":
        end = text.find("\n", start)
        return len(text) if end == -1 else end
    return start


_BASE = rf"(?:{_NAME}\s*\(\s*{_NAME}\s*\)|{_NAME})(?:\s*[+-]\s*{terminal('INT')})*"
_INITIAL = rf"(?:[+-]?(?:{terminal('FLOAT')}|{terminal('INT')})|{_BASE}|{terminal('INT')}\s*\(\s*{_BASE}\s*\))"
_INITIAL_VALUE = re.compile(_INITIAL, re.ASCII)


_NOT_A_NAME = frozenset('"=-.0123456789')


class Rejected(Exception):
    """Lark does not accept this text, or not on its own."""


class Objects(dict[str, Operand]):
    """Leaf to operand, each made once. Raises `Rejected` for what is no operand."""

    def __missing__(self, leaf: str) -> Operand:
        self[leaf] = made = self._make(leaf)
        return made

    @staticmethod
    def _make(leaf: str) -> Operand:
        if leaf[0] not in _NOT_A_NAME and leaf != literals.WARP_SIZE:
            return Name(leaf)
        if kind_of(leaf) not in "IMFGW":
            raise Rejected
        return Imm(literals.decode(leaf), leaf)


class Kinds(dict[str, str]):
    """Leaf to its kind."""

    def __missing__(self, leaf: str) -> str:
        self[leaf] = kind = kind_of(leaf)
        return kind


_INT = re.compile(terminal("INT"))
_FLOAT = re.compile(terminal("FLOAT"))


def _is_plain_initializer(text: str) -> bool:
    """The initializers that need no Lark: one value, or a flat list."""
    items = text[1:-1].split(",") if text[:1] == "{" and text[-1:] == "}" else [text]
    return all(_INITIAL_VALUE.fullmatch(item.strip(BLANKS)) for item in items)


def kind_of(leaf: str) -> str:
    """What a leaf is to the grammar: N name, D name with a suffix, S string, I integer, M negative integer, F float,
    G negative float, W the size of a warp, A initializer, ? none of these."""
    first = leaf[0]
    if first not in _NOT_A_NAME:
        return "W" if leaf == literals.WARP_SIZE else "D" if "." in leaf else "N"
    if first == '"':
        return "S"
    if first == "=":
        return "A" if _is_plain_initializer(leaf[1:].strip(BLANKS)) else "?"
    if len(leaf) > literals.MAX_DIGITS:
        return "?"
    digits = leaf[1:] if first == "-" else leaf
    if _INT.fullmatch(digits):
        return "M" if first == "-" else "I"
    if _FLOAT.fullmatch(digits):
        return "G" if first == "-" else "F"
    return "?"
