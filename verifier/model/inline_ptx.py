"""Calls of PTX functions followed: the body of the callee takes the place of the call.

A kernel is proved as one piece of code, so what a `.func` does must stand where it is called. Each call site gets its
own copy of the callee's registers, labels and parameters; a parameter is carried over by a register for each element
that both sides access alike. What is not followed (no body here, an indirect call, a recursion, too much
code) stays a call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import msgspec

from verifier.findings import Location
from verifier.isa import ptx_ops
from verifier.model.program import Reg, Sym
from verifier.model.ptx_bodies import FunctionBody, Scope
from verifier.parse import ptx_ast as ast

MAX_INSTRUCTIONS = 100_000
_RETURN = "$return"
_AFTER = "$after"
_STACK = "$stack"

Element = tuple[int, int]  # (byte offset, width in bits) of one access to a parameter
Variable = tuple[int, str]  # (id of the scope that declares it, name)


class Call(msgspec.Struct, frozen=True):
    """The operands of a call. `target` is the name of a function, or a register."""

    target: str
    returned: tuple[ast.Operand, ...] = ()
    passed: tuple[ast.Operand, ...] = ()


def call_of(statement: ast.Instruction) -> Call:
    """`call (returned), target, (passed), targets`, where all but the target may be missing."""
    operands = list(statement.operands)
    returned: tuple[ast.Operand, ...] = ()
    passed: tuple[ast.Operand, ...] = ()
    if operands and isinstance(operands[0], ast.Args):
        returned = operands.pop(0).items  # type: ignore[union-attr]
    names = [operand.text for operand in operands if isinstance(operand, ast.Name)]
    for operand in operands:
        if isinstance(operand, ast.Args):
            passed = operand.items
    return Call(names[0] if names else "", returned, passed)


def inline(entry: FunctionBody, functions: Mapping[str, FunctionBody]) -> FunctionBody:
    """The body of `entry` with every call that can be followed replaced by what it calls; `functions` by name."""
    if not any(_is_call(statement) for statement, _, _ in entry.instructions):
        return entry
    inliner = _Inliner(entry, functions)
    inliner.emit(entry, "")
    return inliner.result


def _is_call(statement: ast.Instruction) -> bool:
    return ptx_ops.decode(statement.opcode).family == "call"


class _Inliner:
    """Writes one body, instance by instance."""

    def __init__(self, entry: FunctionBody, functions: Mapping[str, FunctionBody]) -> None:
        self.result = FunctionBody(entry.header)
        self._functions = functions
        self._active: list[str] = []
        self._instances = 0

    def emit(self, body: FunctionBody, instance: str) -> Scope:
        """Append a copy of `body`, all of whose registers get the suffix `instance`; returns its outermost scope."""
        self._active.append(body.header.name)
        copies = _copies(body, instance)
        self._declare(body, instance)
        elements = _elements(body)
        out = self.result.instructions
        places: list[int] = []
        for statement, scope, location in body.instructions:
            places.append(len(out))
            site = _Site(statement, scope, copies[id(scope)], location, elements, instance)
            if _is_call(statement):
                self._call(site, self._callee(statement))
            else:
                out.extend((line, site.own, location) for line in _rewritten(site, body))
        places.append(len(out))
        for scope in body.scopes:
            copies[id(scope)].labels.update({name: places[at] for name, at in scope.labels.items()})
        self._active.pop()
        return copies[id(body.root)]

    def _declare(self, body: FunctionBody, instance: str) -> None:
        """Variables and tables of a body; one storage for all instances of a function."""
        known = {item.name for item in self.result.objects}
        renamed = [
            msgspec.structs.replace(o, name=_own_name(body, o.name) if instance else o.name) for o in body.objects
        ]
        self.result.objects += [item for item in renamed if item.name not in known or not instance]
        self.result.tables.update({name + instance: labels for name, labels in body.tables.items()})
        self.result.has_vectors = self.result.has_vectors or body.has_vectors

    def _callee(self, statement: ast.Instruction) -> FunctionBody | None:
        """The function that a call can be replaced by."""
        call = call_of(statement)
        callee = self._functions.get(call.target)
        if callee is None or callee.header.name in self._active:
            return None
        fits = len(call.passed) == len(callee.header.params) and len(call.returned) == len(callee.header.returns)
        room = len(self.result.instructions) + len(callee.instructions) < MAX_INSTRUCTIONS
        return callee if fits and room else None

    def _call(self, site: _Site, callee: FunctionBody | None) -> None:
        out = self.result.instructions
        call, bridge = call_of(site.statement), Scope(site.own, site.own.suffix)
        write = _Writer(site, bridge)
        if callee is None:
            out.append((site.statement, site.own, site.location))
            for operand in call.returned:
                write.unknown(site.variable(operand))
            out += write.lines
            return
        self._instances += 1
        instance = f"@{self._instances}"
        formals = _elements(callee)
        if site.statement.guard is not None:
            write.skip(site.statement.guard)
        for formal, operand in zip(callee.header.params, call.passed, strict=True):
            write.passed(callee, formal, operand, formals, instance)
        for formal in callee.header.returns:
            write.unknown(_Place(formals.get((id(callee.root), formal.name), frozenset()), formal.name, instance))
        out += write.lines
        root = self.emit(callee, instance)
        root.labels[_RETURN] = len(out)
        after = _Writer(site, bridge)
        for formal, operand in zip(callee.header.returns, call.returned, strict=True):
            after.returned(callee, formal, operand, formals, instance)
        out += after.lines
        bridge.labels[_AFTER] = len(out)


class _Place(msgspec.Struct, frozen=True):
    """A parameter variable as registers: one for each of its elements."""

    elements: frozenset[Element]
    name: str
    suffix: str  # of the scope and the instance

    def register(self, element: Element) -> Reg:
        return Reg(f"{self.name}+{element[0]}.{element[1]}{self.suffix}")


class _Site:
    """One statement of one instance."""

    def __init__(
        self,
        statement: ast.Instruction,
        scope: Scope,
        own: Scope,
        location: Location,
        elements: Mapping[Variable, frozenset[Element]],
        instance: str,
    ) -> None:
        self.statement = statement
        self.own = own
        self.location = location
        self._scope = scope
        self._elements = elements
        self._instance = instance

    def variable(self, operand: ast.Operand) -> _Place | None:
        """The parameter variable that an operand names; None when it names none. Without elements: not followed."""
        text = operand.text if isinstance(operand, ast.Name) else ""
        home = _home(self._scope, text)
        if home is None:
            return None
        return _Place(self._elements.get((id(home), text), frozenset()), text, home.suffix + self._instance)


class _Writer:
    """Makes the instructions that carry parameters into a callee and back."""

    def __init__(self, site: _Site, bridge: Scope) -> None:
        self.lines: list[tuple[ast.Instruction, Scope, Location]] = []
        self._site = site
        self._bridge = bridge

    def skip(self, guard: ast.Guard) -> None:
        """The call does not happen where its guard does not hold."""
        self._add("bra", (ast.Name(_AFTER),), ast.Guard(guard.name, not guard.negated))

    def passed(
        self,
        callee: FunctionBody,
        formal: ast.Param,
        operand: ast.Operand,
        formals: Mapping[Variable, frozenset[Element]],
        instance: str,
    ) -> None:
        source = self._site.variable(operand)
        for element, target in _targets(callee, formal, formals, instance):
            if source is not None:
                self._move(target, source.register(element) if element in source.elements else None, element[1])
            else:
                whole = element == (0, _width(formal.type))
                self._move(target, operand if whole else None, element[1])

    def returned(
        self,
        callee: FunctionBody,
        formal: ast.Param,
        operand: ast.Operand,
        formals: Mapping[Variable, frozenset[Element]],
        instance: str,
    ) -> None:
        found = dict(_targets(callee, formal, formals, instance))
        target = self._site.variable(operand)
        if target is not None:
            for element in sorted(target.elements):
                self._move(target.register(element), found.get(element), element[1])
        elif isinstance(operand, ast.Name):
            width = _width(formal.type)
            self._move(operand, found.get((0, width)), width)

    def unknown(self, place: _Place | None) -> None:
        """Something not known stands in a variable."""
        if place is not None:
            for element in sorted(place.elements):
                self._move(place.register(element), None, element[1])

    def _move(self, target: Reg | ast.Name, source: Reg | ast.Operand | None, width: int) -> None:
        if source is None:
            self._bridge.cache[_STACK] = Sym(_STACK, "local")
            self._add(f"ld.param.b{width}", (self._operand(target), ast.Address(ast.Name(_STACK), 0)))
        else:
            self._add(f"mov.b{width}", (self._operand(target), self._operand(source)))

    def _operand(self, item: Reg | ast.Operand) -> ast.Operand:
        """A register of another scope gets a name here."""
        if not isinstance(item, Reg):
            return item
        self._bridge.cache[f"${item.name}"] = item
        return ast.Name(f"${item.name}")

    def _add(self, opcode: str, operands: tuple[ast.Operand, ...], guard: ast.Guard | None = None) -> None:
        line = ast.Instruction(self._site.statement.span, guard, opcode, operands)
        self.lines.append((line, self._bridge, self._site.location))


def _targets(
    callee: FunctionBody, formal: ast.Param, formals: Mapping[Variable, frozenset[Element]], instance: str
) -> list[tuple[Element, Reg]]:
    """The registers that stand for a parameter inside an instance of its function."""
    if formal.space == "reg":
        return [((0, _width(formal.type)), Reg(formal.name + instance))]
    place = _Place(formals.get((id(callee.root), formal.name), frozenset()), formal.name, instance)
    return [(element, place.register(element)) for element in sorted(place.elements)]


def _width(type_name: str) -> int:
    return ptx_ops.width_of(type_name.lstrip("."))


def _own_name(body: FunctionBody, name: str) -> str:
    """A variable of a function, told from variables of its callers."""
    return f"{name}@{body.header.name}"


def _copies(body: FunctionBody, instance: str) -> dict[int, Scope]:
    """Scope by scope (outer ones first), the scopes of an instance."""
    found: dict[int, Scope] = {}
    for scope in body.scopes:
        copy = Scope(found[id(scope.parent)] if scope.parent is not None else None, scope.suffix + instance)
        copy.names, copy.ranges, copy.vectors = scope.names, scope.ranges, scope.vectors
        copy.cache = {name: symbol for name, symbol in _renamed(body, instance) if not _is_register(copy, name)}
        found[id(scope)] = copy
    return found


def _renamed(body: FunctionBody, instance: str) -> Iterator[tuple[str, Sym]]:
    """Names of variables and parameters that mean something else in an instance."""
    if instance:
        yield from ((item.name, Sym(_own_name(body, item.name), item.space)) for item in body.objects)
        for formal in (*body.header.params, *body.header.returns):
            yield formal.name, Sym(_own_name(body, formal.name), "local")


def _is_register(scope: Scope | None, name: str) -> bool:
    while scope is not None and not scope.declares(name):
        scope = scope.parent
    return scope is not None


def _home(scope: Scope | None, name: str) -> Scope | None:
    """The scope that declares a parameter variable."""
    while scope is not None and name not in scope.params:
        scope = scope.parent
    return scope


def _rewritten(site: _Site, body: FunctionBody) -> Iterator[ast.Instruction]:
    """A statement that is no call, as it stands in an instance of `body`."""
    statement = site.statement
    family = ptx_ops.decode(statement.opcode).family
    inside = site.own.suffix.partition("@")[1]
    if inside and family == "ret":
        yield msgspec.structs.replace(statement, opcode="bra", operands=(ast.Name(_RETURN),))
        return
    if inside and family == "brx.idx":
        table = statement.operands[1]
        name = f"{table.text}@{site.own.suffix.partition('@')[2]}" if isinstance(table, ast.Name) else ""
        yield msgspec.structs.replace(statement, operands=(statement.operands[0], ast.Name(name)))
        return
    access = _access(statement)
    place = site.variable(access.base) if access is not None else None
    if access is None or place is None or not place.elements:
        yield statement
        return
    for element, item in zip(access.elements, access.items, strict=True):
        register = place.register(element)
        site.own.cache[f"${register.name}"] = register
        operands = (item, ast.Name(f"${register.name}"))
        yield msgspec.structs.replace(
            statement, opcode=access.move, operands=operands if access.reads else operands[::-1]
        )


class _Access(msgspec.Struct, frozen=True):
    """`ld.param` or `st.param` of a named variable: what moves, and the move of one element."""

    base: ast.Name
    elements: tuple[Element, ...]
    items: tuple[ast.Operand, ...]
    reads: bool
    move: str


def _access(statement: ast.Instruction) -> _Access | None:
    op = ptx_ops.decode(statement.opcode)
    if op.family not in ("ld", "st") or not any(word.startswith("param") for word in op.words):
        return None
    reads = op.family == "ld"
    place, data = (statement.operands[1], statement.operands[0]) if reads else statement.operands[:2]
    if not isinstance(place, ast.Address) or not isinstance(place.base, ast.Name):
        return None
    if isinstance(data, ast.Vector) != any(word in ("v2", "v4", "v8") for word in op.words):
        return None  # a vector register
    kind = next((word for word in reversed(op.words) if ptx_ops.is_type(word)), "b32")
    width = ptx_ops.width_of(kind)
    items = data.items if isinstance(data, ast.Vector) else (data,)
    elements = tuple((place.offset + index * width // 8, width) for index in range(len(items)))
    narrow = reads and kind.startswith("s") and width < 32
    return _Access(place.base, elements, items, reads, f"cvt.s32.{kind}" if narrow else f"mov.b{width}")


def _elements(body: FunctionBody) -> dict[Variable, frozenset[Element]]:
    """The elements of each parameter variable that its body only loads, stores and passes, and never in two ways."""
    found: dict[Variable, set[Element]] = {}
    spoiled: set[Variable] = set()
    for statement, scope, _ in body.instructions:
        access = _access(statement)
        if access is not None:
            home = _home(scope, access.base.text)
            if home is not None:
                found.setdefault((id(home), access.base.text), set()).update(access.elements)
        elif not _is_call(statement):
            spoiled.update(_named(statement, scope))
    return {
        variable: frozenset(elements)
        for variable, elements in found.items()
        if variable not in spoiled and not _overlap(elements)
    }


def _named(statement: ast.Instruction, scope: Scope) -> Iterator[Variable]:
    """Parameter variables whose address an instruction takes."""
    for operand in statement.operands:
        base = operand.base if isinstance(operand, (ast.Address, ast.Sum)) else operand
        home = _home(scope, base.text) if isinstance(base, ast.Name) else None
        if home is not None and isinstance(base, ast.Name):
            yield id(home), base.text


def _overlap(elements: set[Element]) -> bool:
    ordered = sorted((offset, offset + width // 8) for offset, width in elements)
    return any(end > start for (_, end), (start, _) in itertools.pairwise(ordered))
