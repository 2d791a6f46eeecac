"""PTX statements -> the common form: names resolved by scope, labels to indices, integer work to `isa.compute`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from verifier.errors import InputError
from verifier.findings import Location
from verifier.isa import ptx_ops
from verifier.isa.calls import SYSTEM_CALLS, Callee
from verifier.model.inline_ptx import call_of, inline
from verifier.model.lower_alu import lower_assigns
from verifier.model.program import (
    NEXT,
    UNKNOWN_CALLEE,
    Arg,
    Flow,
    FlowKind,
    Function,
    Guard,
    Instr,
    ObjectDecl,
    Reg,
    SReg,
    Sym,
)
from verifier.model.ptx_bodies import FunctionBody, Locations, Scope, bodies_of, declared, size_of, spell_out
from verifier.parse import ptx_ast as ast
from verifier.parse.source import Source

_EXITS = {"ret": FlowKind.EXIT, "exit": FlowKind.EXIT, "trap": FlowKind.TRAP}


def lower_ptx(file: ast.PtxFile, *, follow: bool = True) -> tuple[Function, ...]:
    """All function definitions of a file; kernels (`.entry`) and device functions (`.func`) alike.

    `follow`: what a kernel calls stands in the place of the call, as far as it can be followed. Raises
    InputError when a branch names a label that is not in scope, or the file names no target.
    """
    arch = _target(file)
    locations = Locations(file.source)
    for statement in file.statements:
        if isinstance(statement, ast.FileDecl):
            locations.declare(statement)
    module_objects = tuple(_objects(file.statements))
    bodies = list(bodies_of(file.statements, locations))
    functions = {body.header.name: body for body in bodies if body.header.kind == "func"}
    if follow:
        bodies = [inline(body, functions) if body.header.kind == "entry" else body for body in bodies]
    return tuple(_lower_body(body, arch, module_objects, file.source) for body in bodies)


def entry_names(file: ast.PtxFile) -> tuple[str, ...]:
    """Names of the kernels that the file defines, in order."""
    return tuple(
        s.name for s in file.statements if isinstance(s, ast.FunctionHeader) and s.kind == "entry" and s.is_definition
    )


def _target(file: ast.PtxFile) -> str:
    for statement in file.statements:
        if isinstance(statement, ast.Directive) and statement.name == ".target" and statement.args:
            return statement.args[0].rstrip(",")
    raise InputError("no .target directive", where=file.source.name, do="is this a complete PTX file?")


def _objects(statements: Sequence[ast.Statement]) -> Iterator[ObjectDecl]:
    """Variables at module scope (outside every brace)."""
    depth = 0
    for statement in statements:
        if isinstance(statement, ast.ScopeBegin):
            depth += 1
        elif isinstance(statement, ast.ScopeEnd):
            depth -= 1
        elif isinstance(statement, ast.VarDecl) and depth == 0:
            yield declared(statement)


class _Resolver:
    """Resolves the names of one scope of one function."""

    def __init__(self, spaces: dict[str, str], name: str) -> None:
        self._spaces = spaces
        self._name = name  # of the file, for messages

    def resolve(self, scope: Scope, text: str) -> Arg:
        arg = scope.cache.get(text)
        if arg is None:
            arg = scope.cache[text] = self._resolve(scope, text)
        return arg

    def _resolve(self, scope: Scope, text: str) -> Arg:
        level: Scope | None = scope
        while level is not None:
            if level.declares(text):
                return Reg(text + level.suffix)
            level = level.parent
        if text in self._spaces:
            return Sym(text, self._spaces[text])
        if text.startswith("%") and ptx_ops.is_special_register(text[1:]):
            return SReg(text[1:])
        if text.startswith("%"):
            raise InputError(f"{text} is not declared", where=self._name, do="assemble the file with ptxas to see why")
        return Sym(text, "code")


def _lower_body(body: FunctionBody, arch: str, module_objects: tuple[ObjectDecl, ...], source: Source) -> Function:
    header = body.header
    params = tuple(
        ObjectDecl(p.name, "param", size_of(p.type, p.dims), p.align or 1)
        for p in (*header.params, *header.returns)
        if p.space != "reg"
    )
    objects = (*module_objects, *body.objects, *params)
    resolver = _Resolver({o.name: o.space for o in objects}, source.name)
    _end_with_return(body, source)
    instrs = tuple(
        _lower_instruction(index, statement, scope, location, resolver, body, source)
        for index, (statement, scope, location) in enumerate(body.instructions)
    )
    directives = dict(header.directives)
    return Function(
        name=header.name,
        isa="ptx",
        arch=arch,
        instrs=instrs,
        max_block=_dim3(directives.get(".maxntid")),
        block=_dim3(directives.get(".reqntid")),
        cluster=_dim3(directives.get(".reqnctapercluster")),
        objects=objects,
    )


def _end_with_return(body: FunctionBody, source: Source) -> None:
    """Running off the end of a function returns: write that down, so that every path ends in an exit."""
    last = body.instructions[-1][0] if body.instructions else None
    if last is None or last.guard is not None or last.opcode.split(".")[0] not in ("ret", "exit", "trap", "bra"):
        span = last.span if last is not None else body.header.span
        location = Location(ptx_line=source.line_of(span.end - 1))
        body.instructions.append((ast.Instruction(span, None, "ret", ()), body.root, location))


def _dim3(values: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    if not values:
        return None
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _lower_instruction(
    index: int,
    statement: ast.Instruction,
    scope: Scope,
    location: Location,
    resolver: _Resolver,
    body: FunctionBody,
    source: Source,
) -> Instr:
    op = ptx_ops.decode(statement.opcode)
    if body.has_vectors:
        operands = tuple(spell_out(operand, scope) for operand in statement.operands)
        statement = msgspec.structs.replace(statement, operands=operands)

    def name(text: str) -> Arg:
        return resolver.resolve(scope, text)

    flow = _flow(op, statement, scope, resolver, body, source)
    guards: tuple[Guard, ...] = ()
    if statement.guard is not None:
        guard = name(statement.guard.name)
        if not isinstance(guard, Reg):
            raise _invalid(f"guard {statement.guard.name} is no register in scope", statement, source)
        guards = (Guard(guard.name, statement.guard.negated),)
    assigns, uses = lower_assigns(op, statement.operands, name)
    used = (*uses, *(g.reg for g in guards))
    return Instr(index, statement.opcode, guards, assigns, used, flow, location, Resolved(statement, op, name))


class Resolved:
    """The PTX statement behind an instruction, its decoded opcode, and the names of its scope."""

    __slots__ = ("arg", "op", "statement")

    def __init__(self, statement: ast.Instruction, op: ptx_ops.PtxOp, arg: object) -> None:
        self.statement = statement
        self.op = op
        self.arg = arg


def _flow(
    op: ptx_ops.PtxOp,
    statement: ast.Instruction,
    scope: Scope,
    resolver: _Resolver,
    body: FunctionBody,
    source: Source,
) -> Flow:
    if op.family in _EXITS:
        return Flow(_EXITS[op.family])
    if op.family == "bra":
        return Flow(FlowKind.BRANCH, (_label(statement.operands[0], scope, statement, source),))
    if op.family == "brx.idx":
        table = statement.operands[1]
        names = body.tables.get(table.text, ()) if isinstance(table, ast.Name) else ()
        targets = tuple(_label(ast.Name(n), scope, statement, source) for n in names)
        index = (
            resolver.resolve(scope, operand.text) if isinstance(operand := statement.operands[0], ast.Name) else None
        )
        if isinstance(index, Reg) and targets:
            return Flow(FlowKind.INDEXED, targets, index, tuple(range(len(targets))))
        return Flow(FlowKind.INDEXED, targets)
    if op.family == "call":
        target = call_of(statement).target
        known = SYSTEM_CALLS.get(target)
        if known is Callee.ENDS:
            return Flow(FlowKind.TRAP)
        called = isinstance(resolver.resolve(scope, target), Reg)
        return Flow(FlowKind.CALL, callee="" if known else UNKNOWN_CALLEE if called else target)
    return NEXT


def _label(operand: ast.Operand, scope: Scope, statement: ast.Instruction, source: Source) -> int:
    text = operand.text if isinstance(operand, ast.Name) else ""
    level: Scope | None = scope
    while level is not None:
        if text in level.labels:
            return level.labels[text]
        level = level.parent
    raise _invalid(f"branch to {text or 'an operand'} which is no label in scope", statement, source)


def _invalid(what: str, statement: ast.Instruction, source: Source) -> InputError:
    start = statement.span.start
    where = f"{source.name}:{source.line_of(start)}:{source.column_of(start)}"
    return InputError(what, where=where, do="the file is not valid PTX; assemble it with ptxas to see why")
