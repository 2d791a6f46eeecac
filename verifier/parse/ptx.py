"""PTX text to statements.

`parse_ptx_reference` runs Lark over the whole file. `parse_ptx` gives the same result sooner: it cuts the text
into statements and operands, replaces their names and numbers by placeholders, and looks up what Lark made of a
text of that shape before. A shape never seen is given to Lark once. Where the cutting does not understand the
text, Lark takes over for the rest of the file, so that it alone decides what is PTX and what an error is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from sys import intern
from typing import cast

from verifier.errors import InputError, ParseError
from verifier.parse import ptx_text
from verifier.parse.ptx_ast import (
    Directive,
    FileDecl,
    FunctionHeader,
    Guard,
    Instruction,
    Label,
    Loc,
    Param,
    PtxFile,
    RegDecl,
    ScopeBegin,
    ScopeEnd,
    Statement,
)
from verifier.parse.ptx_literals import decode
from verifier.parse.ptx_shapes import PtxShapes, default_shapes
from verifier.parse.ptx_text import BLANKS, Rejected
from verifier.parse.source import Source, Span

PROBE = 1 << 18
"""Characters at the start of a huge text that are tried first."""

MAX_STATEMENT = 200_000
"""Most characters of a statement in a function body that Lark is asked to read."""

LONGEST_LITERAL = 5000
"""Characters that a number may have in the grammar, and some more."""

_CALLS = ("call", "call.uni")


def parse_ptx(source: Source, shapes: PtxShapes | None = None) -> PtxFile:
    """All statements of `source`. Raises `ParseError`, or `InputError` when there are none.

    `shapes` is the memo to use, by default the one that this process shares; `PtxShapes()` is an empty one.
    """
    known = default_shapes() if shapes is None else shapes
    if len(source.text) > 2 * PROBE:
        _probe(source, known)
    statements = _Reader(source, known).read()
    known.trim()
    if not statements:
        raise _empty(source)
    return PtxFile(source, tuple(statements))


def _probe(source: Source, shapes: PtxShapes) -> None:
    """Look at the start of a huge text, where most of what is no PTX fails, before doing anything with all of it."""
    start = Source(source.name, source.text[:PROBE])
    try:
        _Reader(start, shapes).read()
    except ParseError as error:
        middle = (start.line_of(PROBE // 2), start.column_of(PROBE // 2))
        if (error.line, error.column) < middle:
            parse_ptx_reference(source)


def parse_ptx_reference(source: Source) -> PtxFile:
    """The same by Lark alone."""
    from verifier.parse.ptx_lark import engine

    statements = tuple(engine().statements(source, source.text))
    if not statements:
        raise _empty(source)
    return PtxFile(source, statements)


def _empty(source: Source) -> InputError:
    return InputError("empty file: no PTX statement in it", where=source.name, do="pass the PTX that a compiler wrote")


class _Stuck(Exception):
    """The fast path ends at offset `at`."""

    def __init__(self, at: int) -> None:
        self.at = at


class _Reader:
    """The fast path over one text."""

    def __init__(self, source: Source, shapes: PtxShapes) -> None:
        self._source = source
        self._text = ptx_text.blank_comments(source.text)
        self._shapes = shapes
        self._out: list[Statement] = []
        self._depth = 0
        self._guards: dict[str, Guard] = {}

    def read(self) -> list[Statement]:
        at = 0
        try:
            while at < len(self._text):
                at = self._body(at) if self._depth else self._module_item(at)
        except _Stuck as stuck:
            at = stuck.at
            if self._out and isinstance(self._out[-1], (Directive, FileDecl, Loc)):
                at = self._out.pop().span.start  # has no end mark: what follows may have been meant for it
        else:
            if not self._depth:
                return self._out
        return self._out + self._rest(at)

    def _rest(self, at: int) -> list[Statement]:
        """Statements from offset `at` on, by Lark, which first has to be brought to this place."""
        from verifier.parse.ptx_lark import engine

        text = self._text[at:]
        depth = self._depth if text.strip(BLANKS) else min(self._depth, 2)
        way = f".func f()\n{'{' * depth}" if depth else "\n" * bool(at)  # else it would seem to start the file
        if depth and len(text) > MAX_STATEMENT and ";" not in text[:MAX_STATEMENT]:
            self._endless(way, at)
        return engine().statements(self._source, way + text, at - len(way))[1 + depth if depth else 0 :]

    def _endless(self, way: str, at: int) -> None:
        """Raise `ParseError`: no statement ends where one should, or there is an error in it before that."""
        from verifier.parse.ptx_lark import engine

        cut = at + MAX_STATEMENT
        near = cut - LONGEST_LITERAL  # an error behind this may come from the cut
        try:
            engine().statements(self._source, way + self._text[at:cut], at - len(way))
        except ParseError as error:
            if (error.line, error.column) < (self._source.line_of(near), self._source.column_of(near)):
                raise
        line, column = self._source.line_of(cut), self._source.column_of(cut)
        what = f"no ';' in {MAX_STATEMENT} characters"
        raise ParseError(what, file=self._source.name, line=line, column=column, expected=("';'",))

    # module level

    def _module_item(self, at: int) -> int:
        match = ptx_text.MODULE.match(self._text, at)
        if match is None or match.lastindex is None or match.lastindex > ptx_text.NOTHING:
            raise _Stuck(at)
        kind = match.lastindex
        start, end = match.span(kind)
        if kind == ptx_text.FUNCTION:
            return self._guarded(self._function, start)
        if kind == ptx_text.SECTION:
            return self._guarded(self._section, start)
        if kind != ptx_text.NOTHING:
            self._directive("m", start, end)
        return match.end()

    def _guarded(self, read: Callable[[int], int], start: int) -> int:
        try:
            return read(start)
        except Rejected:
            raise _Stuck(start) from None

    def _directive(self, kind: str, start: int, end: int) -> None:
        text = self._text[start:end]
        try:
            self._out.extend(cast("tuple[Statement, ...]", self._shapes.part(kind, text, Span(start, end))))
        except Rejected:
            self._alone(start, end)

    def _registers(self, start: int, end: int) -> bool:
        """Read a declaration of registers; False when this text is none, or not a plain one."""
        match = ptx_text.REGISTERS.fullmatch(self._text, start, end)
        if match is None:
            return False
        vector, kind, listed = match.group(1, 2, 3)
        found = ptx_text.COUNTED.findall(listed)
        if not all(not count or ptx_text.kind_of(count) == "I" for _, count in found):
            return False
        names = tuple((name, int(decode(count)) if count else None) for name, count in found)
        self._out.append(RegDecl(Span(start, end), f"{vector[1:]}{kind}" if vector else kind[1:], names))
        return True

    def _alone(self, start: int, end: int) -> None:
        """One statement by Lark, because its shape does not determine it."""
        from verifier.parse.ptx_lark import engine

        kind = "body" if self._depth else "file"
        try:
            self._out.extend(engine().statements(self._source, self._text[start:end], start, kind))
        except ParseError:
            raise _Stuck(start) from None

    def _function(self, start: int) -> int:
        match = ptx_text.HEADER.match(self._text, start)
        if match is None:
            raise Rejected
        linkage, kind, returns, name, params, directives, follows = match.groups()
        brace = match.start(7)
        defined = follows == "{"
        end = start + len(self._text[start:brace].rstrip(BLANKS)) if defined else brace + 1
        part = self._shapes.part
        self._out.append(
            FunctionHeader(
                Span(start, end),
                kind,
                name,
                tuple(word for word in linkage.replace(".", " ").split()),
                self._params(returns),
                self._params(params),
                tuple(
                    cast("tuple[str, tuple[int, ...]]", part("h", text))
                    for text in ptx_text.HEADER_DIRECTIVE.findall(directives)
                ),
                defined,
            )
        )
        if defined:
            self._out.append(ScopeBegin(Span(brace, brace + 1)))
            self._depth = 1
        return brace + 1

    def _params(self, text: str | None) -> tuple[Param, ...]:
        if text is None or not text[1:-1].strip(BLANKS):
            return ()
        return tuple(cast(Param, self._shapes.part("p", piece.strip(BLANKS))) for piece in text[1:-1].split(","))

    def _section(self, start: int) -> int:
        head = ptx_text.SECTION_HEAD.match(self._text, start)
        if head is None:
            raise Rejected
        items = [head[1]]
        for match in ptx_text.SECTION_ITEM.finditer(self._text, head.end()):
            label, kind, values, end, _ = match.groups()
            if label:
                items.append(f"{label}:")
            elif kind:
                items.append(f"{kind} {''.join(values.split())}")
            elif end:
                self._out.append(Directive(Span(start, match.end()), ".section", tuple(items)))
                return match.end()
            else:
                break
        raise Rejected

    # function bodies

    def _body(self, at: int) -> int:
        """Statements up to the end of the function; returns the offset behind it. Raises `_Stuck`."""
        shapes, append, split = self._shapes, self._out.append, ptx_text.LEAF.split
        common, objects = shapes.common, shapes.objects
        for match in ptx_text.BODY.finditer(self._text, at):
            if match.lastindex != ptx_text.INSTRUCTION:
                at = self._other(match)
                if not self._depth:
                    return at
                continue
            guard, opcode, text = match.group(1, 2, 3)
            text = text.strip(BLANKS)
            start, at = match.start(2 if guard is None else 1), match.end()
            parts = split(text)
            leaves = parts[1::2]
            build = common.get("\0".join(parts[::2])) if opcode not in _CALLS else None
            try:
                if build is None:
                    build = shapes.operands(text, opcode in _CALLS)
                    if build is None:
                        self._alone(start, at)
                        continue
                operands = build(leaves, [objects[leaf] for leaf in leaves], None)
            except Rejected:
                raise _Stuck(start) from None
            append(Instruction(Span(start, at), self._guard(guard) if guard else None, intern(opcode), operands))
        raise _Stuck(at)

    def _guard(self, text: str) -> Guard:
        guard = self._guards.get(text)
        if guard is None:
            name = text[1:].strip()
            guard = Guard(name.lstrip("!").strip(BLANKS), name.startswith("!"))
            self._guards[text] = guard
        return guard

    def _other(self, match: re.Match[str]) -> int:
        kind = match.lastindex or 0
        if kind == ptx_text.LABEL:
            self._out.append(Label(Span(match.start(kind), match.end()), match[kind]))
        elif kind == ptx_text.DIRECTIVE:
            start, end = match.span(kind)
            if not self._registers(start, end):
                self._directive("b", start, end)
        elif match[kind] == "{":
            self._depth += 1
            self._out.append(ScopeBegin(Span(*match.span(kind))))
        elif match[kind] == "}":
            self._depth -= 1
            self._out.append(ScopeEnd(Span(*match.span(kind))))
        else:
            raise _Stuck(match.start(kind))
        return match.end()
