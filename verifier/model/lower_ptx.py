"""PTX statements -> the common form: names resolved by scope, labels to indices, integer work to `isa.compute`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from verifier.errors import InputError
from verifier.findings import Location
from verifier.isa import ptx_ops
from verifier.model.lower_alu import lower_assigns
from verifier.model.program import (
    NEXT,
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
from verifier.parse import ptx_ast as ast
from verifier.parse.source import Source

_EXITS = {"ret": FlowKind.EXIT, "exit": FlowKind.EXIT, "trap": FlowKind.TRAP}


class _Scope:
    """Registers, labels and variables declared between one pair of braces."""

    def __init__(self, parent: _Scope | None, suffix: str) -> None:
        self.parent = parent
        self.suffix = suffix
        self.names: set[str] = set()
        self.ranges: list[tuple[str, int]] = []
        self.vectors: dict[str, tuple[str, ...]] = {}  # vector registers: name -> names of the elements
        self.labels: dict[str, int] = {}
        self.cache: dict[str, Arg] = {}

    def declares(self, name: str) -> bool:
        if name in self.names:
            return True
        for prefix, count in self.ranges:
            tail = name[len(prefix) :]
            if name.startswith(prefix) and tail.isdigit() and int(tail) < count:
                return True
        return False


class _FunctionBody:
    """The statements of one definition, with the scope each instruction stands in."""

    def __init__(self, header: ast.FunctionHeader) -> None:
        self.header = header
        self.root = _Scope(None, "")
        self.instructions: list[tuple[ast.Instruction, _Scope, Location]] = []
        self.objects: list[ObjectDecl] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.has_vectors = False


class _Locations:
    """Turns spans and the latest `.loc` into locations."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files: dict[int, str] = {}
        self._file: str | None = None
        self._line: int | None = None

    def declare(self, statement: ast.FileDecl) -> None:
        self._files[statement.index] = statement.path

    def move(self, loc: ast.Loc) -> None:
        self._file = self._files.get(loc.file)
        self._line = loc.line or None

    def reset(self) -> None:
        self._file = self._line = None

    def at(self, offset: int) -> Location:
        return Location(ptx_line=self._source.line_of(offset), file=self._file, line=self._line)


def lower_ptx(file: ast.PtxFile) -> tuple[Function, ...]:
    """All function definitions of a file; kernels (`.entry`) and device functions (`.func`) alike.

    Raises InputError when a branch names a label that is not in scope, or the file names no target.
    """
    arch = _target(file)
    locations = _Locations(file.source)
    for statement in file.statements:
        if isinstance(statement, ast.FileDecl):
            locations.declare(statement)
    module_objects = tuple(_objects(file.statements))
    return tuple(_lower_body(body, arch, module_objects, file.source) for body in _bodies(file.statements, locations))


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
            yield _object(statement)


def _object(decl: ast.VarDecl) -> ObjectDecl:
    return ObjectDecl(decl.name, decl.space, _size(decl.type, decl.dims), decl.align or 1)


def _size(type_name: str, dims: tuple[int | None, ...]) -> int | None:
    size = ptx_ops.width_of(type_name.lstrip(".")) // 8
    for dim in dims:
        if dim is None:
            return None
        size *= dim
    return size


def _bodies(statements: Sequence[ast.Statement], locations: _Locations) -> Iterator[_FunctionBody]:
    body: _FunctionBody | None = None
    scope: _Scope | None = None
    scopes = 0
    for statement in statements:
        if isinstance(statement, ast.FunctionHeader):
            if statement.is_definition:
                body, scope, scopes = _FunctionBody(statement), None, 0
                locations.reset()
        elif body is None:
            continue
        elif isinstance(statement, ast.ScopeBegin):
            scope = body.root if scope is None else _Scope(scope, f"#{scopes}")
            scopes += 1
        elif isinstance(statement, ast.ScopeEnd):
            scope = scope.parent if scope else None
            if scope is None:
                yield body
                body = None
        elif scope is not None:
            _collect(statement, body, scope, locations)


def _collect(statement: ast.Statement, body: _FunctionBody, scope: _Scope, locations: _Locations) -> None:
    if isinstance(statement, ast.Instruction):
        body.instructions.append((statement, scope, locations.at(statement.span.start)))
    elif isinstance(statement, ast.Label):
        scope.labels[statement.name] = len(body.instructions)
    elif isinstance(statement, ast.Loc):
        locations.move(statement)
    elif isinstance(statement, ast.RegDecl):
        _declare(statement, scope)
        body.has_vectors = body.has_vectors or bool(scope.vectors)
    elif isinstance(statement, ast.VarDecl):
        body.objects.append(_object(statement))
    elif isinstance(statement, ast.BranchTargets):
        body.tables[statement.name] = statement.targets


def _declare(statement: ast.RegDecl, scope: _Scope) -> None:
    """A vector register (`.reg .v4 .b32 x`) is its elements: x.x, x.y, x.z, x.w."""
    lanes = {"v2": "xy", "v4": "xyzw"}.get(statement.type.partition(".")[0], "")
    for name, count in statement.names:
        if count is not None:
            scope.ranges.append((name, count))
            continue
        scope.names.add(name)
        if lanes:
            scope.vectors[name] = tuple(f"{name}.{lane}" for lane in lanes)
            scope.names.update(scope.vectors[name])


def _spell_out(operand: ast.Operand, scope: _Scope) -> ast.Operand:
    """A vector register as an operand stands for the vector of its elements."""
    if not isinstance(operand, ast.Name):
        return operand
    level: _Scope | None = scope
    while level is not None:
        if operand.text in level.vectors:
            return ast.Vector(tuple(ast.Name(element) for element in level.vectors[operand.text]))
        if level.declares(operand.text):
            break
        level = level.parent
    return operand


class _Resolver:
    """Resolves the names of one scope of one function."""

    def __init__(self, spaces: dict[str, str], name: str) -> None:
        self._spaces = spaces
        self._name = name  # of the file, for messages

    def resolve(self, scope: _Scope, text: str) -> Arg:
        arg = scope.cache.get(text)
        if arg is None:
            arg = scope.cache[text] = self._resolve(scope, text)
        return arg

    def _resolve(self, scope: _Scope, text: str) -> Arg:
        level: _Scope | None = scope
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


def _lower_body(body: _FunctionBody, arch: str, module_objects: tuple[ObjectDecl, ...], source: Source) -> Function:
    header = body.header
    params = tuple(
        ObjectDecl(p.name, "param", _size(p.type, p.dims), p.align or 1) for p in (*header.params, *header.returns)
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


def _end_with_return(body: _FunctionBody, source: Source) -> None:
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
    scope: _Scope,
    location: Location,
    resolver: _Resolver,
    body: _FunctionBody,
    source: Source,
) -> Instr:
    op = ptx_ops.decode(statement.opcode)
    if body.has_vectors:
        operands = tuple(_spell_out(operand, scope) for operand in statement.operands)
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
    scope: _Scope,
    resolver: _Resolver,
    body: _FunctionBody,
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
    return Flow(FlowKind.CALL) if op.family == "call" else NEXT


def _label(operand: ast.Operand, scope: _Scope, statement: ast.Instruction, source: Source) -> int:
    text = operand.text if isinstance(operand, ast.Name) else ""
    level: _Scope | None = scope
    while level is not None:
        if text in level.labels:
            return level.labels[text]
        level = level.parent
    raise _invalid(f"branch to {text or 'an operand'} which is no label in scope", statement, source)


def _invalid(what: str, statement: ast.Instruction, source: Source) -> InputError:
    start = statement.span.start
    where = f"{source.name}:{source.line_of(start)}:{source.column_of(start)}"
    return InputError(what, where=where, do="the file is not valid PTX; assemble it with ptxas to see why")
