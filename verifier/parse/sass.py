"""From the text of an nvdisasm listing to statements, fast.

Lines of the frequent kinds are recognized by one pattern each. Operands are remembered twice: by their text
within one listing, and by their shape (`R#`, `desc[UR#][R#.64+$]`) in a memo that ships with the package, so that
a common listing never imports Lark. Whatever a pattern or the memo does not know goes to
`verifier.parse.sass_lark`, which is the authority: an unknown operand shape is learned from it, an unknown line is
its to accept or to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from verifier.errors import InputError
from verifier.parse.sass_ast import (
    Banner,
    Guard,
    Indices,
    LineInfo,
    Operand,
    SassData,
    SassDirective,
    SassFile,
    SassInstruction,
    SassLabel,
    SassStatement,
    Symbol,
)
from verifier.parse.shapes import ShapeMemo, fingerprint, grammar_text
from verifier.parse.source import Source, Span

TEMPLATE_FORMAT = "sass-operand-template-1"
SEED = Path(__file__).with_name("sass_shapes.json")

Template = list[str | int]  # JSON text of an operand, with the number of a value where one goes

# Blanks are matched up to a non-blank, so that a line of blanks costs one look at each.
_INSTRUCTION = re.compile(
    r"[ \t]*(/\*([0-9a-f]+)\*/[ \t]+(?=[^ \t])(?:@(!?)(U?P[0-9T])[ ]+(?=[^ ]))?([A-Z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r'(?:[ ]+(?=[^ ])([^;\n(]*(?:\((?!\*)[^;\n(]*)*))?(?:\(\*"([^"\n]*)"\*\))?[ ]*;)'
    r"[ \t]*(?:/\* 0x([0-9a-f]{16}) \*/[ \t]*\n[ \t]*/\* 0x([0-9a-f]{16}) \*/)?[ \t\r]*(?:\n|\Z)"
)
_LINE_INFO = re.compile(
    r'[ \t]*(//## File "([^"\n\\]*)", line ([0-9]+)(?: inlined at "([^"\n\\]*)", line ([0-9]+))?)[ \t\r]*(?:\n|\Z)'
)
_LABEL = re.compile(r'[ \t]*(([^\s:;,"/]+):)[ \t\r]*(?:\n|\Z)')
_BANNER = re.compile(r"[ \t]*(//(?!##)[^\n]*)(?:\n|\Z)")
_DIRECTIVE = re.compile(r"[ \t]*((?:/\*([0-9a-f]+)\*/[ \t]*)?(\.[a-z_0-9]+)(?:[ \t]+(?=[^ \t])([^\n]*))?)(?:\n|\Z)")
_BLANK = re.compile(r"[ \t\f\r]*(?:\n|\Z)")
_ARGUMENT = re.compile(r'((?:"(?:\\.|[^"\\\n])*"|[^,"\n])+)(?:,|\Z)')
_SEPARATOR = re.compile(r" *, *| +")
_NUMBER = re.compile(
    r"(0x[0-9a-f]+)(?!\w)"  # an integer
    r"|(?<=[RPB])([0-9]+)(?!\w)"  # the number of a register
    r"|(?<![\w.])([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?!\w)"  # a float
)
_SYMBOL = re.compile(r'`\(([^`,;*"\]\n]*)\)\Z')
_INDICES = re.compile(r"\{([0-9](?:,[0-9])*)\}\Z")
_RELOCATION = re.compile(r'([0-9a-z]+@[a-z]+)\(([^`,;*"\]\n]*)\)\Z')

_MARKER = 7_310_000
_MARKERS = re.compile(r"(731[0-9]{4}(?:\.5)?)")
_OPERAND = msgspec.json.Decoder(Operand)


class UnknownShape(Exception):
    """The memo cannot rebuild an operand: the whole line goes to Lark."""


@lru_cache(maxsize=1)
def operand_memo() -> ShapeMemo[Template]:
    """The shipped table of operand shapes, valid for the grammar it was made from."""
    return ShapeMemo(Template, memo_fingerprint(), seed=SEED, valid=_is_sound)


def memo_fingerprint() -> str:
    """What the shipped table depends on."""
    return fingerprint(grammar_text("sass"), TEMPLATE_FORMAT)


def shape_of(text: str) -> tuple[str, list[str]]:
    """The shape of an operand's text, and the numbers taken out of it as JSON texts.

    `$` stands for an integer, `#` for the number of a register, `%` for a float.
    """
    values: list[str] = []

    def take(found: re.Match[str]) -> str:
        integer, index, real = found.groups()
        values.append(index or (str(int(integer, 16)) if integer else repr(float(real))))
        return "#" if index else "$" if integer else "%"

    return _NUMBER.sub(take, text), values


def learn_operand(memo: ShapeMemo[Template], text: str) -> Operand:
    """Parse one operand with Lark and remember its shape."""
    from verifier.parse.sass_lark import parse_operands  # costs an import and a grammar: only for shapes never met

    operands = parse_operands(text)
    if operands is None or len(operands) != 1:
        raise UnknownShape(text)
    shape, values = shape_of(text)
    template = _make_template(text)
    if template is not None and _rebuild(template, values) == operands[0]:
        memo.learn(shape, template)
    return operands[0]


def _make_template(text: str) -> Template | None:
    """Parse `text` with telltale numbers in the place of its own, and see where they come out."""
    from verifier.parse.sass_lark import parse_operands

    markers: list[str] = []

    def mark(found: re.Match[str]) -> str:
        number = _MARKER + len(markers)
        markers.append(f"{number}.5" if found[3] else str(number))
        return hex(number) if found[1] else markers[-1]

    operands = parse_operands(_NUMBER.sub(mark, text))
    if operands is None or len(operands) != 1:
        return None
    template: Template = []
    for part in _MARKERS.split(msgspec.json.encode(operands[0]).decode()):
        template.append(markers.index(part) if part in markers else part)
    return template if _is_sound(shape_of(text)[0], template) else None


def parse_sass(source: Source, memo: ShapeMemo[Template] | None = None) -> SassFile:
    """Statements of a listing. ParseError at the first line that is not SASS, InputError when there is no code."""
    statements = tuple(_statements(source, _Operands(memo or operand_memo())))
    if not any(isinstance(statement, SassInstruction) for statement in statements):
        raise InputError("no instruction in this SASS listing", where=source.name, do="make it with `nvdisasm -c -hex`")
    return SassFile(source, statements)


class _Operands(dict[str, Operand]):
    """Operands of one listing by their text."""

    def __init__(self, memo: ShapeMemo[Template]) -> None:
        super().__init__()
        self._memo = memo

    def __missing__(self, text: str) -> Operand:
        if found := _SYMBOL.match(text):
            operand: Operand = Symbol(found[1])
        elif found := _RELOCATION.match(text):
            operand = Symbol(found[2], found[1])
        elif found := _INDICES.match(text):
            operand = Indices(tuple(map(int, found[1].split(","))))
        elif " " in text:
            raise UnknownShape(text)
        else:
            shape, values = shape_of(text)
            template = self._memo.table.get(shape)
            operand = learn_operand(self._memo, text) if template is None else _rebuild(template, values)
        self[text] = operand
        return operand


def _statements(source: Source, operands: _Operands) -> Iterator[SassStatement]:
    text = source.text
    position, size = 0, len(text)
    guards: dict[tuple[str, str], Guard] = {}
    match_instruction = _INSTRUCTION.match
    look_up = operands.__getitem__
    while position < size:
        found = match_instruction(text, position)
        if found is None:
            statement, position = _other_line(source, position)
            yield from statement
            continue
        _, offset, negated, predicate, opcode, rest, note, low, high = found.groups()
        guard = None
        if predicate:
            guard = guards.get((negated, predicate))
            if guard is None:
                guard = guards[negated, predicate] = Guard(predicate, bool(negated))
        try:
            values = tuple(map(look_up, rest.rstrip().split(", "))) if rest else ()
        except UnknownShape:
            separated = _separated(rest, look_up)
            if separated is None:
                yield from _by_lark(source, position, found.end())
                position = found.end()
                continue
            values = separated
        words = (int(low, 16), int(high, 16)) if low else None
        yield SassInstruction(Span(*found.span(1)), int(offset, 16), guard, opcode, values, note, words)
        position = found.end()


def _separated(rest: str, look_up: Callable[[str], Operand]) -> tuple[Operand, ...] | None:
    """Operands where a blank separates some of them: ``RET.REL.NODEC R2 `(k)``, `-INF ,`."""
    head, tick, symbol = rest.strip().partition("`(")
    parts = _SEPARATOR.split(head.strip())
    if tick:
        parts.append(tick + symbol)
    try:
        return tuple(look_up(part) for part in parts)
    except UnknownShape:
        return None


def _other_line(source: Source, position: int) -> tuple[list[SassStatement], int]:
    """Statements of the line at `position` that is no plain instruction, and where the next line starts."""
    text = source.text
    if found := _BLANK.match(text, position):
        return [], found.end()
    if found := _LINE_INFO.match(text, position):
        inlined = (found[4], int(found[5])) if found[4] is not None else None
        return [LineInfo(Span(*found.span(1)), found[2], int(found[3]), inlined)], found.end()
    if found := _BANNER.match(text, position):
        comment = found[1].rstrip()
        return [Banner(_span(found.start(1), comment), comment)], found.end()
    if found := _LABEL.match(text, position):
        return [SassLabel(Span(*found.span(1)), found[2])], found.end()
    if found := _DIRECTIVE.match(text, position):
        args = _arguments((found[4] or "").rstrip())
        if args is not None:
            return [_directive(found, args)], found.end()
    end = _end_of_line(text, position)
    return _by_lark(source, position, end), end


def _arguments(text: str) -> tuple[str, ...] | None:
    """`text` split at the commas outside quotes; None when an argument is missing or a quote is open."""
    args = tuple([argument.strip() for argument in _ARGUMENT.findall(text)])
    commas = len(args) - 1 if args else 0
    complete = sum(map(len, _ARGUMENT.findall(text))) + commas == len(text)
    return args if complete and "" not in args else None


def _directive(found: re.Match[str], args: tuple[str, ...]) -> SassDirective | SassData:
    span = _span(found.start(1), found[1].rstrip())
    if found[2] is None:
        return SassDirective(span, found[3], args)
    return SassData(span, int(found[2], 16), found[3], args)


def _span(start: int, text: str) -> Span:
    return Span(start, start + len(text))


def _by_lark(source: Source, start: int, end: int) -> list[SassStatement]:
    from verifier.parse.sass_lark import parse_lines  # see learn_operand

    return parse_lines(source, start, end)


def _end_of_line(text: str, position: int) -> int:
    """End of the line, or of the pair of lines when an encoding follows the instruction."""
    end = text.find("\n", position)
    if end != -1 and "/* 0x" in text[position:end]:
        end = text.find("\n", end + 1)
    return len(text) if end == -1 else end + 1


def _rebuild(template: Template, values: list[str]) -> Operand:
    return _OPERAND.decode("".join([part if isinstance(part, str) else values[part] for part in template]))


def _is_sound(shape: str, template: Template) -> bool:
    """Whether each number of the shape is used once and the template makes an operand of small numbers."""
    slots = sorted(part for part in template if isinstance(part, int))
    if slots != list(range(sum(shape.count(mark) for mark in "#$%"))):
        return False
    try:
        _rebuild(template, ["1"] * len(slots))
    except msgspec.MsgspecError:
        return False
    return True
