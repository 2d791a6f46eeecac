"""A PTX kernel, with the device functions that it calls, as lines to compare.

Left out, because they decide nothing about the code: comments, `.loc`, `.file` and debug sections, `.reg` counts, and
labels that nothing refers to.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import msgspec

from verifier.diff.lines import Effect, Line, LineKind, Listing, loop_depths
from verifier.findings import Location
from verifier.isa.ptx_sync import PLAIN
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import Resolved, lower_ptx
from verifier.model.program import Arg, FlowKind, Function, Instr, Reg, SReg, Sym
from verifier.parse import ptx_ast as ast

_ENDS = (FlowKind.BRANCH, FlowKind.INDEXED, FlowKind.EXIT, FlowKind.TRAP)
_CLOCKS = ("clock", "globaltimer")
_TESTS = ("setp", "not")
_ELECT = "elect.sync"
_NAME_WIDTH = 32
# Events that say nothing about synchronization.
_ORDINARY = frozenset({Kind.LOAD, Kind.STORE, Kind.EXIT, Kind.COLLECTIVE, Kind.WARP_SYNC, Kind.SPILL, Kind.UNKNOWN})


class _Body(msgspec.Struct, frozen=True):
    """A definition and what stands in it beside instructions."""

    header: ast.FunctionHeader
    variables: list[ast.VarDecl]
    directives: list[ast.Directive]


def ptx_listing(file: ast.PtxFile, model: KernelModel, functions: Mapping[str, Function]) -> Listing:
    """Lines of the kernel of `model`; `functions` are those of `file` by name, as written (`written_functions`)."""
    model = _as_written(model, functions)
    module, bodies = _outline(file)
    defined = frozenset(bodies) | {name for body in bodies.values() for name in _labelled(body)}
    kernel = model.function
    writer = _Writer(file, bodies[kernel.name], kernel, model.events, defined, "")
    lines = [*writer.header(), *writer.body(_places(model))]
    for number, name in enumerate(_called(kernel, functions), 1):
        function = functions[name]
        writer = _Writer(file, bodies[name], function, lift_ptx(function), defined, f"{number}.")
        lines += [*writer.header(), *writer.body({})]
    used = {slot for line in lines for slot in line.slots}
    shared = [line for variable in module for line in [_variable(file, variable)] if used.intersection(line.slots)]
    return Listing("ptx", [*_target(file), *shared, *lines])


def written_functions(file: ast.PtxFile) -> dict[str, Function]:
    """The functions of a file by name, with their calls as they stand; none when nothing can be called."""
    calls = any(isinstance(s, ast.FunctionHeader) and s.kind == "func" for s in file.statements)
    return {function.name: function for function in lower_ptx(file, follow=False)} if calls else {}


def _as_written(model: KernelModel, functions: Mapping[str, Function]) -> KernelModel:
    """The kernel with its calls in place: each function is compared once, not at each place that calls it."""
    written = functions.get(model.function.name)
    if written is None or not any(instr.flow.kind is FlowKind.CALL for instr in written.instrs):
        return model
    return KernelModel(written, lift_ptx, model.launch)


def _outline(file: ast.PtxFile) -> tuple[list[ast.VarDecl], dict[str, _Body]]:
    """(variables at module scope, definitions by name)."""
    module: list[ast.VarDecl] = []
    bodies: dict[str, _Body] = {}
    depth = 0
    body: _Body | None = None
    for statement in file.statements:
        if isinstance(statement, ast.FunctionHeader) and statement.is_definition:
            body = bodies[statement.name] = _Body(statement, [], [])
        elif isinstance(statement, ast.ScopeBegin):
            depth += 1
        elif isinstance(statement, ast.ScopeEnd):
            depth -= 1
        elif isinstance(statement, ast.VarDecl):
            (body.variables if depth and body else module).append(statement)
        elif isinstance(statement, ast.Directive) and depth and body:
            body.directives.append(statement)
    return module, bodies


def _labelled(body: _Body) -> Iterator[str]:
    """Labels of `.calltargets` and `.callprototype`."""
    return (d.args[0] for d in body.directives if d.name in (".calltargets", ".callprototype") and d.args)


def _called(kernel: Function, functions: Mapping[str, Function]) -> list[str]:
    """Functions that the kernel calls, directly or not, in the order in which they are found."""
    found: dict[str, None] = {}
    waiting = [kernel]
    while waiting:
        for instr in waiting.pop().instrs:
            if instr.flow.kind is FlowKind.CALL and isinstance(instr.origin, Resolved):
                for name in _names(instr.origin.statement.operands):
                    if name in functions and name not in found:
                        found[name] = None
                        waiting.append(functions[name])
    return list(found)


def _names(operands: Sequence[ast.Operand]) -> Iterator[str]:
    return (operand.text for operand in operands if isinstance(operand, ast.Name))


def _places(model: KernelModel) -> dict[int, tuple[tuple[str, ...], int]]:
    """Instruction -> (roles that execute it, loops around it)."""
    roles: dict[int, list[str]] = {}
    for role in model.roles:
        for instr in frozenset().union(*(stream.instructions for stream in role.streams)):
            roles.setdefault(instr, []).append(role.name)
    depths = loop_depths(model.cfg, lambda instr: _spins(model.function.instrs[instr], model.event_at(instr)))
    return {instr: (tuple(names), depths[model.cfg.block_of[instr]]) for instr, names in roles.items()}


def _spins(instr: Instr, event: Event | None) -> bool:
    """Whether an instruction may be part of the retry of a wait."""
    return event.kind is Kind.BARRIER_WAIT if event is not None else _steers(instr)


def _steers(instr: Instr) -> bool:
    assert isinstance(instr.origin, Resolved)
    return instr.flow.kind is FlowKind.BRANCH or instr.origin.op.family in _TESTS


def _target(file: ast.PtxFile) -> Iterator[Line]:
    for statement in file.statements:
        if isinstance(statement, ast.Directive) and statement.name == ".target":
            yield _declaration(file, statement, ("target", *(arg.rstrip(",") for arg in statement.args)), ())


def _variable(file: ast.PtxFile, variable: ast.VarDecl) -> Line:
    v = variable
    key = ("variable", v.space, v.linkage, v.align, v.type, v.dims, v.initializer, v.attributes)
    return _declaration(file, v, key, (f"s:{v.name}",))


def _declaration(
    file: ast.PtxFile, statement: ast.Statement, key: Hashable, slots: tuple[str, ...], text: str = ""
) -> Line:
    span = statement.span
    shown = text or " ".join(file.source.text[span.start : span.end].split())
    return Line(
        kind=LineKind.DECLARATION,
        key=key,
        slots=slots,
        opcode=shown.partition(" ")[0],
        pattern=shown,
        text=shown,
        location=Location(ptx_line=file.source.line_of(span.start)),
        effect=Effect.ORDERED,
    )


class _Writer:
    """Writes the lines of one function. `space` keeps its registers and labels apart from those of other functions."""

    def __init__(
        self,
        file: ast.PtxFile,
        body: _Body,
        function: Function,
        events: Sequence[Event],
        defined: frozenset[str],
        space: str,
    ) -> None:
        self._file = file
        self._body = body
        self._function = function
        self._events = {event.instr: event for event in events}
        self._defined = defined
        self._space = space
        self._slots: list[str] = []
        self._volatile = False

    def header(self) -> Iterator[Line]:
        header = self._body.header
        yield _declaration(self._file, header, (header.kind,), (f"s:{header.name}",), f".{header.kind} {header.name}")
        for name, values in header.directives:
            text = f"{name} {', '.join(map(str, values))}".strip()
            yield _declaration(self._file, header, ("directive", name, values), (), text)
        for param in (*header.returns, *header.params):
            p = param
            key = ("param", p.space, p.type, p.align, p.dims, p.pointer)
            size = "".join(f"[{'' if dim is None else dim}]" for dim in p.dims)
            text = f".{p.space} {p.type}{size} {_tail(p.name)}"
            yield _declaration(self._file, header, key, (f"s:{p.name}",), text)
        for variable in self._body.variables:
            yield _variable(self._file, variable)

    def body(self, places: Mapping[int, tuple[tuple[str, ...], int]]) -> Iterator[Line]:
        """Labels, directives and instructions in order; `places` tells roles and loop depth of an instruction."""
        instrs = self._function.instrs
        targets = {target for instr in instrs for target in instr.flow.targets}
        directives = sorted(self._body.directives, key=lambda directive: directive.span.start, reverse=True)
        block = 0
        for instr in instrs:
            roles, depth = places.get(instr.index, ((), 0))
            if instr.index in targets:
                block += 1
                yield self._label(instr.index, instr.location, block, roles, depth)
            statement = self._statement(instr)
            while directives and directives[-1].span.start < statement.span.start:
                yield self._directive(directives.pop())
            yield self._instruction(instr, statement, block, roles, depth)
            block += instr.flow.kind in _ENDS
        if len(instrs) in targets:
            yield self._label(len(instrs), Location(), block + 1, (), 0)

    def _statement(self, instr: Instr) -> ast.Instruction:
        assert isinstance(instr.origin, Resolved)
        return instr.origin.statement

    def _label(self, index: int, location: Location, block: int, roles: tuple[str, ...], depth: int) -> Line:
        return Line(
            kind=LineKind.LABEL,
            key="label",
            slots=(self._target(index),),
            opcode="label",
            pattern="label:",
            text="label:",
            location=location,
            effect=Effect.ORDERED,
            block=block,
            depth=depth,
            roles=roles,
        )

    def _target(self, index: int) -> str:
        return f"l:{self._space}{index}"

    def _directive(self, directive: ast.Directive) -> Line:
        name, *args = (directive.name, *directive.args)
        labelled = args and args[0] in self._defined
        slots = (f"s:{args[0]}",) if labelled else ()
        return _declaration(self._file, directive, ("directive", name, *args[bool(labelled) :]), slots)

    def _instruction(
        self, instr: Instr, statement: ast.Instruction, block: int, roles: tuple[str, ...], depth: int
    ) -> Line:
        assert isinstance(instr.origin, Resolved)
        self._slots, self._volatile = [], False
        guard = self._guard(statement, instr)
        operands = tuple(self._operand(o, instr) for o in self._operands(statement, instr))
        event = self._events.get(instr.index)
        return Line(
            kind=LineKind.INSTRUCTION,
            key=(statement.opcode, guard, *operands),
            slots=tuple(self._slots),
            reads=tuple(self._register(name) for name in instr.uses),
            writes=tuple(self._register(assign.dst) for assign in instr.assigns),
            opcode=statement.opcode,
            pattern=self._pattern(statement),
            text=" ".join(self._file.source.text[statement.span.start : statement.span.end].rstrip("; \t").split()),
            location=instr.location,
            effect=self._effect(instr, event),
            block=block,
            depth=depth,
            roles=roles,
            event=event,
            synchronizes=instr.origin.op.family == _ELECT if event is None else event.kind not in _ORDINARY,
            steers=_steers(instr),
            closed=instr.flow.kind in _ENDS and not instr.guards,
        )

    def _guard(self, statement: ast.Instruction, instr: Instr) -> Hashable:
        if statement.guard is None:
            return None
        return statement.guard.negated, self._name(statement.guard.name, instr)

    def _operands(self, statement: ast.Instruction, instr: Instr) -> Sequence[ast.Operand]:
        """The operands without those that say where control goes, which become slots here."""
        if instr.flow.kind not in (FlowKind.BRANCH, FlowKind.INDEXED):
            return statement.operands
        self._slots += [self._target(target) for target in instr.flow.targets]
        return statement.operands[:1] if instr.flow.kind is FlowKind.INDEXED else ()

    def _register(self, name: str) -> str:
        return f"r:{self._space}{name}"

    def _effect(self, instr: Instr, event: Event | None) -> Effect:
        if event is not None:
            return Effect.READ if event.kind is Kind.LOAD and event.sem == "weak" else Effect.ORDERED
        assert isinstance(instr.origin, Resolved)
        op = instr.origin.op
        plain = op.family in PLAIN and not op.family.endswith(".sync") and instr.flow.kind is FlowKind.NEXT
        return Effect.PURE if plain and not self._volatile else Effect.ORDERED

    # keys of operands; the names in them go to self._slots

    def _operand(self, operand: ast.Operand, instr: Instr) -> Hashable:
        o = operand
        if isinstance(o, ast.Name):
            return self._name(o.text, instr)
        if isinstance(o, ast.Imm):
            return _number(o)
        if isinstance(o, ast.Sink):
            return "_"
        return self._compound(o, instr)

    def _compound(self, operand: ast.Operand, instr: Instr) -> Hashable:
        o = operand
        if isinstance(o, ast.Not):
            return "!", self._operand(o.operand, instr)
        if isinstance(o, ast.Pair):
            return "|", self._operand(o.first, instr), self._operand(o.second, instr)
        if isinstance(o, ast.Sum):
            return "+", self._operand(o.base, instr), o.offset
        if isinstance(o, ast.Element):
            return "[]", self._operand(o.base, instr), o.index
        if isinstance(o, ast.Address):
            return "[", self._operand(o.base, instr), o.offset, tuple(self._operand(e, instr) for e in o.extra)
        assert isinstance(o, ast.Vector | ast.Args)
        return type(o).__name__, tuple(self._operand(item, instr) for item in o.items)

    def _name(self, text: str, instr: Instr) -> Hashable:
        assert isinstance(instr.origin, Resolved)
        arg: Arg = instr.origin.arg(text)  # type: ignore[operator]
        if isinstance(arg, Reg):
            self._slots.append(self._register(arg.name))
            return "register"
        if isinstance(arg, SReg):
            self._volatile |= arg.name.startswith(_CLOCKS)
            return "special", arg.name
        assert isinstance(arg, Sym)
        if arg.space == "code" and arg.name not in self._defined:
            return "external", arg.name
        self._slots.append(f"s:{arg.name}")
        return "symbol", arg.space

    def _pattern(self, statement: ast.Instruction) -> str:
        guard = statement.guard
        head = f"@{'!' if guard.negated else ''}{_stem(guard.name)} " if guard else ""
        return f"{head}{statement.opcode} {', '.join(map(_abstract, statement.operands))}".rstrip()


def _number(imm: ast.Imm) -> Hashable:
    """An immediate by its value; floats by their bits, so that -0.0 differs from 0.0 and a NaN equals itself."""
    if isinstance(imm.value, float):
        return "float", imm.text.lower() if math.isnan(imm.value) else imm.value.hex()
    return "integer", imm.value


def _tail(name: str) -> str:
    """The end of a long name, which is where parameters differ."""
    return name if len(name) <= _NAME_WIDTH else f"...{name[3 - _NAME_WIDTH :]}"


def _stem(name: str) -> str:
    """`%rd17` -> `%rd`: the class of a register by the compilers' naming, for reading only."""
    return name.rstrip("0123456789") or name


def _abstract(operand: ast.Operand) -> str:
    o = operand
    if isinstance(o, ast.Name):
        return _stem(o.text)
    if isinstance(o, ast.Imm):
        return o.text
    if isinstance(o, ast.Sink):
        return "_"
    if isinstance(o, ast.Not):
        return f"!{_stem(o.operand.text)}"
    if isinstance(o, ast.Pair):
        return f"{_abstract(o.first)}|{_abstract(o.second)}"
    return _abstract_compound(o)


def _abstract_compound(operand: ast.Operand) -> str:
    o = operand
    if isinstance(o, ast.Sum):
        return f"{_stem(o.base.text)}{o.offset:+}"
    if isinstance(o, ast.Element):
        return f"{_stem(o.base.text)}[{o.index}]"
    if isinstance(o, ast.Address):
        offset = f"{o.offset:+}" if o.offset else ""
        return f"[{', '.join([_abstract(o.base) + offset, *map(_abstract, o.extra)])}]"
    assert isinstance(o, ast.Vector | ast.Args)
    inner = ", ".join(map(_abstract, o.items))
    return f"{{{inner}}}" if isinstance(o, ast.Vector) else f"({inner})"
