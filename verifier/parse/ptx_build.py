"""Grammar callbacks for statements: they emit syntax trees in the order of the text."""

from __future__ import annotations

import msgspec
from lark import Token

from verifier.parse.ptx_ast import (
    BranchTargets,
    Directive,
    FileDecl,
    FunctionHeader,
    Guard,
    Instruction,
    Label,
    Loc,
    Param,
    Pointer,
    RegDecl,
    ScopeBegin,
    ScopeEnd,
    VarDecl,
)
from verifier.parse.ptx_leaves import end_of, start_of
from verifier.parse.ptx_operands import Children, Operands
from verifier.parse.ptx_print import render_directive, render_param

MAX_TARGETS = 65536
"""Most labels that the `<n>` form of a branch target may stand for."""


class Listed(msgspec.Struct):
    """Parameters, and where their list ends."""

    params: tuple[Param, ...]
    end: int


class Performed(msgspec.Struct):
    """A directive of a function header, and where it ends."""

    name: str
    values: tuple[int, ...]
    end: int


class _Attributes(msgspec.Struct):
    items: tuple[str, ...]


class _Align(msgspec.Struct):
    bytes: int


class _Head(msgspec.Struct):
    start: int
    end: int
    kind: str
    name: str
    linkage: tuple[str, ...]
    returns: tuple[Param, ...]
    attributes: tuple[str, ...]


class Builder(Operands):
    """All callbacks of the grammar; `out` holds the statements."""

    # module directives

    def _directive(self, children: Children, *args: str) -> None:
        self.out.append(Directive(self.between(children[0], children[-1]), children[0].value, args))

    def version(self, children: Children) -> None:
        self._directive(children, self.text_of(children[1]))

    def target(self, children: Children) -> None:
        self._directive(children, *(self.text_of(token) for token in children[1:]))

    def address_size(self, children: Children) -> None:
        self._directive(children, self.text_of(children[1]))

    def file_decl(self, children: Children) -> None:
        stamp = (self.int_of(children[3]), self.int_of(children[4])) if len(children) == 5 else None
        span = self.between(children[0], children[-1])
        self.out.append(FileDecl(span, self.int_of(children[1]), self.string_of(children[2]), stamp))

    def dwarf(self, children: Children) -> None:
        text = children[0].value.rstrip()
        start = start_of(children[0])
        self.out.append(Directive(self.span(start, start + len(text)), "@@DWARF", (text[len("@@DWARF") :].strip(),)))

    def alias(self, children: Children) -> None:
        self._directive(children, self.text_of(children[1]), self.text_of(children[2]))

    def pragma(self, children: Children) -> None:
        self._directive(children, *(self.string_of(token) for token in children[1:-1]))

    def section(self, children: Children) -> None:
        head, name, *items, close = children
        self.out.append(Directive(self.between(head, close), head.value, (name.value, *items)))

    def section_item(self, children: Children) -> str:
        item: str = children[0]
        return item

    def section_label(self, children: Children) -> str:
        return f"{children[0].value}:"

    def section_data(self, children: Children) -> str:
        kind, *values = children
        return f"{kind.value} {','.join(values)}"

    def section_number(self, children: Children) -> str:
        return "".join(token.value for token in children)

    section_symbol = section_number

    # functions

    def header_head(self, children: Children) -> _Head:
        words = [child for child in children if isinstance(child, Token)]
        returns = next((child.params for child in children if isinstance(child, Listed)), ())
        attributes = next((child.items for child in children if isinstance(child, _Attributes)), ())
        *linkage, kind, name = words
        return _Head(
            start_of(words[0]), end_of(name), kind.value[1:], self.text_of(name), _bare(linkage), returns, attributes
        )

    def header(self, children: Children) -> FunctionHeader:
        head, *rest = children
        listed = next((item.params for item in rest if isinstance(item, Listed)), ())
        directives = tuple((item.name, item.values) for item in rest if isinstance(item, Performed))
        return FunctionHeader(
            self.span(head.start, rest[-1].end if rest else head.end),
            head.kind,
            head.name,
            head.linkage,
            head.returns,
            listed,
            directives,
            False,
            head.attributes,
        )

    def prototype(self, children: Children) -> None:
        header, semicolon = children
        span = self.span(header.span.start - self._base, end_of(semicolon))
        self.out.append(msgspec.structs.replace(header, span=span))

    def definition_begin(self, children: Children) -> None:
        header, brace = children
        self.out.append(msgspec.structs.replace(header, is_definition=True))
        self.scope_begin([brace])

    def params(self, children: Children) -> Listed:
        return Listed(tuple(children[:-1]), end_of(children[-1]))

    def param(self, children: Children) -> Param:
        space, *rest = children
        align = next((item.bytes for item in rest if isinstance(item, _Align)), None)
        pointer = next((item for item in rest if isinstance(item, Pointer)), None)
        name = next(item for item in rest if isinstance(item, Token) and item.type in ("NAME", "SINK"))
        dims = tuple(item[0] for item in rest if isinstance(item, tuple))
        shown = "_" if name.type == "SINK" else self.text_of(name)
        return Param(_type(rest), shown, align, dims, pointer, space)

    def param_space(self, children: Children) -> str:
        return _bare(children)[0]

    def param_kind(self, children: Children) -> _Align | Token:
        kind: _Align | Token = children[0]
        return kind

    def param_pointer(self, children: Children) -> Pointer:
        space = next((item.value[1:] for item in children[1:] if isinstance(item, Token)), "")
        return Pointer(space, next((item.bytes for item in children if isinstance(item, _Align)), None))

    def header_directive(self, children: Children) -> Performed:
        values = tuple(self.int_of(token) for token in children[1:])
        return Performed(children[0].value, values, end_of(children[-1]))

    def header_pragma(self, children: Children) -> Performed:
        strings = ", ".join(token.value for token in children[1:-1])
        return Performed(f".pragma {strings}", (), end_of(children[-1]))

    # variables

    def reg_decl(self, children: Children) -> None:
        head, *kinds = children[:-1]
        names = tuple(item for item in kinds if isinstance(item, tuple))
        self.out.append(RegDecl(self.between(head, children[-1]), _type(kinds), names))

    def reg_name(self, children: Children) -> tuple[str, int | None]:
        return self.text_of(children[0]), self.int_of(children[1]) if len(children) == 2 else None

    def variable(self, children: Children) -> None:
        linkage = tuple(item for item in children if isinstance(item, Token) and item.type == "LINKAGE")
        space = next(item for item in children if isinstance(item, Token) and item.type in ("SPACE", "PARAM"))
        align = next((item.bytes for item in children if isinstance(item, _Align)), None)
        attributes = next((item.items for item in children if isinstance(item, _Attributes)), ())
        span = self.between(children[0], children[-1])
        shown = (_bare([space])[0], _bare(linkage), align, _type(children))
        for name, dims, initializer in (item for item in children if isinstance(item, tuple)):
            self.out.append(VarDecl(span, *shown, name, dims, initializer, attributes))

    def variable_kind(self, children: Children) -> _Align | _Attributes | Token:
        kind: _Align | _Attributes | Token = children[0]
        return kind

    def bank(self, children: Children) -> None:
        self.int_of(children[0])

    def align(self, children: Children) -> _Align:
        return _Align(self.int_of(children[1]))

    def attribute(self, children: Children) -> _Attributes:
        return _Attributes(tuple(children[1:-1]))

    def attribute_item(self, children: Children) -> str:
        return "".join(token.value for token in children)

    def declarator(self, children: Children) -> tuple[str, tuple[int | None, ...], str | None]:
        dims = tuple(item[0] for item in children if isinstance(item, tuple))
        initializer = self.initializer_of(children[-2], children[-1]) if type(children[-1]) is str else None
        return self.text_of(children[0]), dims, initializer

    def dimension(self, children: Children) -> tuple[int | None]:
        return (self.as_int(children[1], start_of(children[0])) if len(children) == 2 else None,)

    def initializer(self, children: Children) -> str:
        return "".join(str(item) for item in children)

    initial_list = initial_item = initial_number = initial_symbol = initial_mask = initializer

    # statements of a body

    def scope_begin(self, children: Children) -> None:
        self.out.append(ScopeBegin(self.between(children[0], children[0])))

    def scope_end(self, children: Children) -> None:
        self.out.append(ScopeEnd(self.between(children[0], children[0])))

    def label(self, children: Children) -> None:
        self.out.append(Label(self.between(*children), self.text_of(children[0])))

    def branch_targets(self, children: Children) -> None:
        label, _, _, *targets, end = children
        flat = tuple(name for target in targets for name in target)
        self.out.append(BranchTargets(self.between(label, end), self.text_of(label), flat))

    def branch_target(self, children: Children) -> tuple[str, ...]:
        name = self.text_of(children[0])
        if len(children) == 1:
            return (name,)
        token: Token = children[1]
        imm = self.number_at(start_of(token), token.value)
        self._known(imm)
        count = self.as_int(imm, start_of(token))
        if count > MAX_TARGETS:
            self.fail(start_of(token), f"more than {MAX_TARGETS} branch targets")
        return tuple(f"{name}{index}" for index in range(count))

    def call_targets(self, children: Children) -> None:
        label, _, directive, *names, end = children
        args = (self.text_of(label), *(self.text_of(name) for name in names))
        self.out.append(Directive(self.between(label, end), directive.value, args))

    def call_prototype(self, children: Children) -> None:
        label, _, directive, *rest, end = children
        shown = tuple(_show(item) for item in rest)
        self.out.append(Directive(self.between(label, end), directive.value, (self.text_of(label), *shown)))

    def loc(self, children: Children) -> None:
        head, file, line, column, *inlined = children
        where = (self.int_of(file), self.int_of(line), self.int_of(column))
        if not inlined:
            self.out.append(Loc(self.between(head, column), *where))
            return
        function, at, end = inlined[0]
        self.out.append(Loc(self.span(start_of(head), end), *where, at, function))

    def loc_inlined(self, children: Children) -> tuple[str, tuple[int, ...], int]:
        _, name, *shift = children[:-4]
        function = self.text_of(name)
        if shift:
            self._known(self.number_at(start_of(shift[1]), shift[1].value))
            function += "".join(token.value for token in shift)
        return function, tuple(self.int_of(token) for token in children[-3:]), end_of(children[-1])

    def instruction(self, children: Children) -> None:
        guard = None
        first, *operands, end = children
        start = first[0]
        if isinstance(first[1], Guard):
            guard = first[1]
            first, *operands = operands
        self.out.append(Instruction(self.span(start, end_of(end)), guard, first[1], tuple(operands)))

    call = instruction

    def guard(self, children: Children) -> tuple[int, Guard]:
        return start_of(children[0]), Guard(self.text_of(children[-1]), len(children) == 3)

    def opcode(self, children: Children) -> tuple[int, str]:
        text = children[0].value if len(children) == 1 else "".join(token.value for token in children)
        return start_of(children[0]), text

    call_opcode = opcode


def _bare(tokens: Children | tuple[Token, ...]) -> tuple[str, ...]:
    """Directive words without their dot."""
    return tuple(token.value[1:] for token in tokens)


def _type(children: Children) -> str:
    """The type of a declaration, a vector length in front: "v4.f32"."""
    words = [item for item in children if isinstance(item, Token) and item.type in ("VECTOR", "DATA_TYPE")]
    return ".".join(_bare(words))


def _show(item: Token | Listed | Performed) -> str:
    """A part of a `.callprototype`, as PTX writes it."""
    if isinstance(item, Performed):
        return render_directive(item.name, item.values)
    if isinstance(item, Listed):
        return f"({', '.join(map(render_param, item.params))})"
    return str(item.value)
