"""Cutting PTX text: comments, statement boundaries, leaves. Only boundaries; meaning comes from the grammar.

Patterns are put together from the terminals of `ptx.lark`, so that what counts as a name or a number is said once.
"""

from __future__ import annotations

import re
from functools import cache

from verifier.parse import ptx_literals as literals
from verifier.parse.ptx_ast import Imm, Name, Operand
from verifier.parse.shapes import grammar_text


@cache
def terminal(name: str) -> str:
    """Pattern of a terminal of the grammar."""
    found = re.search(rf"^{name}(?:\.\d+)?: /(.*)/$", grammar_text("ptx"), re.MULTILINE)
    assert found is not None, f"the grammar has no terminal {name}"
    return found[1]


_NAME = terminal("NAME")
_STRING = terminal("STRING")
_OPCODE = r"[A-Za-z]\w*(?:\.\w+(?:::\w+)*)*"
_WORD = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
_DIGITS = r"\d\w*"
_LINKAGE = r"(?:\.(?:extern|visible|weak|common)\s*)*"
_STRINGS = rf"{_STRING}(?:\s*,\s*{_STRING})*"

COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|#[^\n]*')
"""Comments and line markers; strings too, so that a `//` in a path is not taken for a comment."""

_FRESH = r"(?<![.\w$%])"
LEAF = re.compile(
    rf"({_STRING}|(?:-|{_FRESH})\.?\d[\w$.]*(?:(?<=[eE])[+-]\d+)?"
    rf"|=[^;\"]*|{_FRESH}(?!(?:function_name|inlined_at)\b){_NAME})",
    re.ASCII,
)
"""A name, number, string or initializer. `split` gives what is fixed and what varies in turn."""

_DECLARATION = rf"{_LINKAGE}\.(?:reg|param|shared|global|const|local|tex)\b[^;\"]*;"
_LOC = (
    rf"\.loc\s+{_DIGITS}\s+{_DIGITS}\s+{_DIGITS}(?:\s*,\s*function_name\s+{_NAME}(?:\s*[+-]\s*{_DIGITS})?"
    rf"\s*,\s*inlined_at\s+{_DIGITS}\s+{_DIGITS}\s+{_DIGITS})?"
)
_TARGETS = rf"{_WORD}\s*:\s*\.(?:branchtargets|calltargets|callprototype)\b[^;\"]*;"

BODY = re.compile(
    rf"\s*(?:(@\s*!?\s*{_NAME}\s+)?({_OPCODE})(?![\w$%]|\s*[:.])\s*([^;\"]*);"
    rf"|({_WORD})\s*:(?!:|\s*\.(?:branchtargets|calltargets|callprototype)\b)"
    rf"|([{{}}])"
    rf"|({_LOC}|{_DECLARATION}|{_TARGETS}|\.pragma\s*{_STRINGS}\s*;)"
    rf"|(\S))",
    re.ASCII,
)
"""One statement of a body: guard, opcode, operands | label | brace | directive | anything else."""

INSTRUCTION, LABEL, BRACE, DIRECTIVE = 3, 4, 5, 6
"""`lastindex` of a match of `BODY`."""

HEADER = re.compile(
    rf"({_LINKAGE})\.(entry|func)\b\s*(?:(\([^()]*\))\s*)?({_NAME})\s*(\([^()]*\))?"
    rf"((?:\s*\.[a-z][a-z0-9_]*(?:\s+{_DIGITS}(?:\s*,\s*{_DIGITS})*)?)*)\s*([{{;])",
    re.ASCII,
)
"""A function header: linkage, kind, returns, name, parameters, directives, what follows it."""

HEADER_DIRECTIVE = re.compile(rf"\.[a-z][a-z0-9_]*(?:\s+{_DIGITS}(?:\s*,\s*{_DIGITS})*)?", re.ASCII)

MODULE = re.compile(
    rf"\s*(?:({_LINKAGE}\.(?:entry|func)\b)"
    rf"|(\.version\s+[\w.]+|\.target\s+\w+(?:\s*,\s*\w+)*|\.address_size\s+\w+)"
    rf"|(\.file\s+{_DIGITS}\s*{_STRING}(?:\s*,\s*{_DIGITS}\s*,\s*{_DIGITS})?|{_DECLARATION}"
    rf"|\.pragma\s*{_STRINGS}\s*;|\.alias\b[^;\"]*;)"
    rf"|(\.section\s+\.[A-Za-z_][\w.$]*\s*\{{[^{{}}\"]*\}})"
    rf"|((?<![\s\S])\ufeff|\x00[\x00\s]*\Z|\Z)"
    rf"|(\S))",
    re.ASCII,
)
"""One module item: start of a function | text kept whole | directive | section | nothing | anything else."""

FUNCTION, WHOLE, ITEM, SECTION, NOTHING = 1, 2, 3, 4, 5
"""`lastindex` of a match of `MODULE`."""

_NUMBER = rf"(?:[+-]\s*)?(?:{terminal('FLOAT')}|{terminal('INT')})"
_SYMBOL = rf"(?:{_NAME}|{terminal('SECTION_NAME')})(?:\s*[+-]\s*(?:{terminal('INT')}|{_NAME}))?"
_VALUE = rf"(?:{_NUMBER}|{_SYMBOL})"

SECTION_HEAD = re.compile(rf"\.section\s+({terminal('SECTION_NAME')})\s*\{{", re.ASCII)
SECTION_ITEM = re.compile(
    rf"\s*(?:({_WORD})\s*:(?!:)|({terminal('DATA_TYPE')})\s*({_VALUE}(?:\s*,\s*{_VALUE})*)|(\}})|(\S))", re.ASCII
)
"""One item of a debug section: label | type, values | end | anything else."""


def blank_comments(text: str) -> str:
    """`text` with spaces for comments: every offset stays what it was."""
    if "/" not in text and "#" not in text:
        return text
    return COMMENT.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found[0] == '"' else " " * len(found)


_BASE = rf"(?:{_NAME}\s*\(\s*{_NAME}\s*\)|{_NAME})(?:\s*[+-]\s*{terminal('INT')})*"
_INITIAL = rf"(?:[+-]?(?:{terminal('FLOAT')}|{terminal('INT')})|{_BASE}|{terminal('INT')}\s*\(\s*{_BASE}\s*\))"
_INITIALIZER = re.compile(rf"=\s*(?:{_INITIAL}|\{{\s*{_INITIAL}(?:\s*,\s*{_INITIAL})*\s*\}})\s*")
"""The initializers that need no Lark: one value, or a flat list."""


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
        if leaf[0] not in _NOT_A_NAME:
            return Name(leaf)
        if kind_of(leaf) not in "IMFG":
            raise Rejected
        return Imm(literals.decode(leaf), leaf)


class Kinds(dict[str, str]):
    """Leaf to its kind."""

    def __missing__(self, leaf: str) -> str:
        self[leaf] = kind = kind_of(leaf)
        return kind


_INT = re.compile(terminal("INT"))
_FLOAT = re.compile(terminal("FLOAT"))


def kind_of(leaf: str) -> str:
    """What a leaf is to the grammar: N name, D name with a suffix, S string, I integer, M negative integer, F float,
    G negative float, A initializer, ? none of these."""
    first = leaf[0]
    if first not in _NOT_A_NAME:
        return "D" if "." in leaf else "N"
    if first == '"':
        return "S"
    if first == "=":
        return "A" if _INITIALIZER.fullmatch(leaf) else "?"
    if len(leaf) > literals.MAX_DIGITS:
        return "?"
    digits = leaf[1:] if first == "-" else leaf
    if _INT.fullmatch(digits):
        return "M" if first == "-" else "I"
    if _FLOAT.fullmatch(digits):
        return "G" if first == "-" else "F"
    return "?"
