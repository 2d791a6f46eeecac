"""What a PTX file says: statements and operands, each with its span. No meaning is attached yet.

Names are kept as written: `%r1`, `%tid.x`, `LAB_WAIT`, `__dynamic_shmem__`; whether a name is a register,
a symbol, a label or a special register is decided by `model.program`, which knows the scopes.

Nodes are immutable and form trees, so the garbage collector need not look at them (`gc=False`).
"""

from __future__ import annotations

import msgspec

from verifier.parse.source import Source, Span


class Name(msgspec.Struct, frozen=True, gc=False):
    text: str


class Imm(msgspec.Struct, frozen=True, gc=False):
    """A literal; `value` is the number it denotes (0f/0d literals are decoded to float)."""

    value: int | float
    text: str


class Sink(msgspec.Struct, frozen=True, gc=False):
    """The `_` operand."""


class Not(msgspec.Struct, frozen=True, gc=False):
    """`!%p`."""

    operand: Name


class Pair(msgspec.Struct, frozen=True, gc=False):
    """`first|second`, as in `elect.sync _|%p` and `shfl.sync.idx.b32 %r|%p`."""

    first: Name | Sink
    second: Name | Sink


class Sum(msgspec.Struct, frozen=True, gc=False):
    """`symbol+offset` outside brackets."""

    base: Name
    offset: int


class Element(msgspec.Struct, frozen=True, gc=False):
    """`array[index]` outside brackets; the index counts elements."""

    base: Name
    index: int | Name


class Vector(msgspec.Struct, frozen=True, gc=False):
    items: tuple[Operand, ...]


class Address(msgspec.Struct, frozen=True, gc=False):
    """`[base+offset, extra...]`; `extra` holds the coordinate vector of tensor operands."""

    base: Name | Imm
    offset: int
    extra: tuple[Operand, ...] = ()


class Args(msgspec.Struct, frozen=True, gc=False):
    """A parenthesised list, as in `call (ret), fn, (a, b);`."""

    items: tuple[Operand, ...]


Operand = Name | Imm | Sink | Not | Pair | Sum | Element | Vector | Address | Args


class Guard(msgspec.Struct, frozen=True, gc=False):
    """`@%p` or `@!%p`."""

    name: str
    negated: bool


class Instruction(msgspec.Struct, frozen=True, gc=False):
    span: Span
    guard: Guard | None
    opcode: str  # with all modifiers, as written: "mbarrier.try_wait.parity.shared::cta.b64"
    operands: tuple[Operand, ...]


class Label(msgspec.Struct, frozen=True, gc=False):
    span: Span
    name: str


class ScopeBegin(msgspec.Struct, frozen=True, gc=False):
    span: Span


class ScopeEnd(msgspec.Struct, frozen=True, gc=False):
    span: Span


class Loc(msgspec.Struct, frozen=True, gc=False):
    """`.loc file line column [, function_name ..., inlined_at file line column]`."""

    span: Span
    file: int
    line: int
    column: int
    inlined_at: tuple[int, int, int] | None = None
    function_name: str | None = None


class FileDecl(msgspec.Struct, frozen=True, gc=False):
    """`.file index "path" [, timestamp, size]`."""

    span: Span
    index: int
    path: str
    stamp: tuple[int, int] | None = None


class RegDecl(msgspec.Struct, frozen=True, gc=False):
    """`.reg .b32 %r<40>, x;`: names with the count of the `<n>` form, or None."""

    span: Span
    type: str
    names: tuple[tuple[str, int | None], ...]


class VarDecl(msgspec.Struct, frozen=True, gc=False):
    """A variable in a state space: `.shared .align 8 .b64 full[2];`. `dims` is () for a scalar; an open
    dimension (`[]`) is None. A declaration of several variables gives one of these each, with the same span.
    `initializer` is the text after `=` without blanks."""

    span: Span
    space: str  # "shared", "global", "const", "local", "param"
    linkage: tuple[str, ...]
    align: int | None
    type: str
    name: str
    dims: tuple[int | None, ...]
    initializer: str | None = None
    attributes: tuple[str, ...] = ()


class Pointer(msgspec.Struct, frozen=True, gc=False):
    """`.ptr .global .align 16`: what a parameter points to; `space` is "" when not said."""

    space: str
    align: int | None


class Param(msgspec.Struct, frozen=True, gc=False):
    type: str
    name: str
    align: int | None = None
    dims: tuple[int | None, ...] = ()
    pointer: Pointer | None = None
    space: str = "param"  # or "reg"


class FunctionHeader(msgspec.Struct, frozen=True, gc=False):
    """`.visible .entry name (params) .reqntid 192, 1, 1`. `directives` holds the performance directives (with
    their dot; a `.pragma` with its strings) and their integer arguments; `is_definition` is False for a prototype
    that ends in `;`. The body follows as statements between a ScopeBegin and its ScopeEnd."""

    span: Span
    kind: str  # "entry" or "func"
    name: str
    linkage: tuple[str, ...]
    returns: tuple[Param, ...]
    params: tuple[Param, ...]
    directives: tuple[tuple[str, tuple[int, ...]], ...]
    is_definition: bool
    attributes: tuple[str, ...] = ()


class BranchTargets(msgspec.Struct, frozen=True, gc=False):
    """`label: .branchtargets L0, L1;`."""

    span: Span
    name: str
    targets: tuple[str, ...]


class Directive(msgspec.Struct, frozen=True, gc=False):
    """Any other directive: `.version 8.8`, `.target sm_100a, debug`, `.pragma "nounroll";`.

    Strings are without quotes. A `.section` has its name and then one argument an item (`.b8 1,2`, `label:`);
    `.calltargets` and `.callprototype` have their label first."""

    span: Span
    name: str  # with its dot
    args: tuple[str, ...]


Statement = (
    Instruction
    | Label
    | ScopeBegin
    | ScopeEnd
    | Loc
    | FileDecl
    | RegDecl
    | VarDecl
    | FunctionHeader
    | BranchTargets
    | Directive
)


class PtxFile(msgspec.Struct, frozen=True, gc=False):
    """All statements of one file, in order."""

    source: Source
    statements: tuple[Statement, ...]
