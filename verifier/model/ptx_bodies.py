"""PTX statements -> bodies of functions: instructions with the scope each stands in, labels, declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.findings import Location
from verifier.isa import ptx_ops
from verifier.model.program import Arg, ObjectDecl
from verifier.parse import ptx_ast as ast
from verifier.parse.source import Source


class Scope:
    """Registers, labels and variables declared between one pair of braces."""

    def __init__(self, parent: Scope | None, suffix: str) -> None:
        self.parent = parent
        self.suffix = suffix
        self.names: set[str] = set()
        self.ranges: list[tuple[str, int]] = []
        self.vectors: dict[str, tuple[str, ...]] = {}  # vector registers: name -> names of the elements
        self.labels: dict[str, int] = {}
        self.params: set[str] = set()  # `.param` variables, which only calls use
        self.cache: dict[str, Arg] = {}

    def declares(self, name: str) -> bool:
        if name in self.names:
            return True
        for prefix, count in self.ranges:
            tail = name[len(prefix) :]
            if name.startswith(prefix) and tail.isdigit() and int(tail) < count:
                return True
        return False


class FunctionBody:
    """The statements of one definition, with the scope each instruction stands in."""

    def __init__(self, header: ast.FunctionHeader) -> None:
        self.header = header
        self.root = Scope(None, "")
        self.instructions: list[tuple[ast.Instruction, Scope, Location]] = []
        self.objects: list[ObjectDecl] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.scopes = [self.root]
        self.has_vectors = False


class Locations:
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


def bodies_of(statements: Sequence[ast.Statement], locations: Locations) -> Iterator[FunctionBody]:
    body: FunctionBody | None = None
    scope: Scope | None = None
    scopes = 0
    for statement in statements:
        if isinstance(statement, ast.FunctionHeader):
            if statement.is_definition:
                body, scope, scopes = FunctionBody(statement), None, 0
                _declare_formals(body)
                locations.reset()
        elif body is None:
            continue
        elif isinstance(statement, ast.ScopeBegin):
            if scope is not None:
                body.scopes.append(Scope(scope, f"#{scopes}"))
            scope = body.scopes[-1]
            scopes += 1
        elif isinstance(statement, ast.ScopeEnd):
            scope = scope.parent if scope else None
            if scope is None:
                yield body
                body = None
        elif scope is not None:
            _collect(statement, body, scope, locations)


def _collect(statement: ast.Statement, body: FunctionBody, scope: Scope, locations: Locations) -> None:
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
        _declare_variable(statement, body, scope)
    elif isinstance(statement, ast.BranchTargets):
        body.tables[statement.name] = statement.targets


def _declare_formals(body: FunctionBody) -> None:
    """Parameters of a `.func`: variables, or registers in the older form."""
    if body.header.kind == "func":
        for formal in (*body.header.params, *body.header.returns):
            (body.root.names if formal.space == "reg" else body.root.params).add(formal.name)


def _declare_variable(statement: ast.VarDecl, body: FunctionBody, scope: Scope) -> None:
    """A `.param` variable of a body is a thread's own, not a parameter of the kernel."""
    item = declared(statement)
    if statement.space == "param":
        scope.params.add(statement.name)
        item = ObjectDecl(item.name, "local", item.size, item.align)
    body.objects.append(item)


def _declare(statement: ast.RegDecl, scope: Scope) -> None:
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


def spell_out(operand: ast.Operand, scope: Scope) -> ast.Operand:
    """A vector register as an operand stands for the vector of its elements."""
    if not isinstance(operand, ast.Name):
        return operand
    level: Scope | None = scope
    while level is not None:
        if operand.text in level.vectors:
            return ast.Vector(tuple(ast.Name(element) for element in level.vectors[operand.text]))
        if level.declares(operand.text):
            break
        level = level.parent
    return operand


def declared(decl: ast.VarDecl) -> ObjectDecl:
    return ObjectDecl(decl.name, decl.space, size_of(decl.type, decl.dims), decl.align or 1)


def size_of(type_name: str, dims: tuple[int | None, ...]) -> int | None:
    size = ptx_ops.width_of(type_name.lstrip(".")) // 8
    for dim in dims:
        if dim is None:
            return None
        size *= dim
    return size
