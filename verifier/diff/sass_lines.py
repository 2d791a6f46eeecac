"""A kernel's machine code, with the functions that it calls, as lines to compare.

Physical registers are reused, so a slot is not a register but a web: definitions and uses that belong together.
Put aside, because assembler and scheduler choose them: addresses, return addresses, `.reuse`, control words, the
numbers of scoreboards and of convergence barriers, and the padding behind a function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import msgspec

from verifier.diff.lines import Effect, Line, LineKind, Listing, loop_depths
from verifier.isa.sass_ops import Part, SassOp, decode
from verifier.model.cfg import Cfg, build_cfg
from verifier.model.program import FlowKind, Function, Instr
from verifier.model.sass_operands import split
from verifier.model.ssa import Ssa, SsaValue
from verifier.parse import sass_ast as ast

Roles = Callable[[Instr], tuple[str, ...]]  # who executes an instruction

_CONSTANTS = ("RZ", "URZ", "PT", "UPT")
_REUSE = "reuse"
_BYTES = 16
_ENDS = (FlowKind.BRANCH, FlowKind.INDEXED, FlowKind.EXIT, FlowKind.TRAP)
_CLOCKS = ("SR_CLOCK", "SR_GLOBALTIMER", "SR_VIRTCFG")
_SPIN_ROOTS = ("MOV", "UMOV", "PLOP3", "UPLOP3")
_SPIN_PARTS = frozenset({Part.BARRIER_WAIT, Part.SLEEP, Part.CACHE_INVALIDATE, Part.CONTROL, Part.NOP})
_QUIET = frozenset(
    {
        Part.LOAD, Part.STORE, Part.WARP_SYNC, Part.COLLECTIVE, Part.BULK_PREFETCH, Part.CACHE_CONTROL, Part.SLEEP,
        Part.NOP, Part.CONTROL, Part.PLAIN, Part.UNKNOWN,
    }
)  # fmt: skip


class MachineCode(msgspec.Struct, frozen=True):
    """The functions of a listing by name, and the byte offset within its function at which each label stands."""

    functions: Mapping[str, Function]
    labels: Mapping[str, int]


def machine_code(file: ast.SassFile, functions: Iterable[Function]) -> MachineCode:
    """Everything in a listing that `sass_listing` needs; `functions` is what `lower_sass` made of it."""
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for statement in file.statements:
        if isinstance(statement, ast.SassLabel):
            waiting.append(statement.name)
        elif isinstance(statement, ast.SassInstruction):
            labels.update(dict.fromkeys(waiting, statement.offset))
            waiting.clear()
    return MachineCode({function.name: function for function in functions}, labels)


def sass_listing(name: str, code: MachineCode, roles: Roles) -> Listing:
    """Lines of kernel `name`; `roles` says who executes an instruction."""
    lines: list[Line] = []
    registers: dict[str, str] = {}
    for number, function in enumerate(_called(name, code.functions)):
        writer = _Writer(function, f"{number}." if number else "", roles, code)
        lines += writer.lines()
        registers.update(writer.registers)
    return Listing("sass", lines, registers)


def _called(name: str, functions: Mapping[str, Function]) -> list[Function]:
    """The kernel and the functions that it calls, directly or not, in the order in which they are found."""
    found = [functions[name]]
    for function in found:
        for instr in function.instrs:
            for operand in _statement(instr).operands if decode(instr.opcode).root == "CALL" else ():
                callee = functions.get(operand.text) if isinstance(operand, ast.Symbol) else None
                if callee is not None and callee not in found:
                    found.append(callee)
    return found


def _statement(instr: Instr) -> ast.SassInstruction:
    assert isinstance(instr.origin, ast.SassInstruction)
    return instr.origin


class _Webs:
    """Definitions and uses that belong together: SSA values joined by phis and by predicated writes."""

    def __init__(self, ssa: Ssa) -> None:
        self._parent = list(range(len(ssa.values)))
        for value in ssa.values:
            for other in (*(value.incoming or {}).values(), *([value.old] if value.old else [])):
                self._parent[self._find(other.id)] = self._find(value.id)

    def _find(self, item: int) -> int:
        while self._parent[item] != item:
            self._parent[item] = self._parent[self._parent[item]]
            item = self._parent[item]
        return item

    def of(self, value: SsaValue) -> int:
        return self._find(value.id)


class _Counted(msgspec.Struct):
    """Instructions of a function without its padding, and those that have a label."""

    instrs: Sequence[Instr]
    targets: frozenset[int]
    offsets: dict[int, int]  # byte offset -> instruction
    returns: frozenset[int]  # byte offsets behind calls


def _count(function: Function, labels: Mapping[str, int]) -> _Counted:
    instrs = function.instrs
    end = len(instrs)
    while end and _is_padding(instrs[end - 1]):
        end -= 1
    offsets = {_statement(instr).offset: instr.index for instr in instrs[:end]}
    calls = {_statement(i).offset + _BYTES for i in instrs[:end] if decode(i.opcode).root == "CALL"}
    returns = frozenset(calls & offsets.keys())
    named = {labels[o.text] for i in instrs[:end] for o in _statement(i).operands if _names_label(o, labels)}
    jumps = {target for instr in instrs[:end] for target in instr.flow.targets}
    places = {offsets[offset] for offset in returns | (named & offsets.keys())}
    return _Counted(instrs[:end], frozenset(jumps | places), offsets, returns)


def _names_label(operand: ast.Operand, labels: Mapping[str, int]) -> TypeGuard[ast.Symbol]:
    return isinstance(operand, ast.Symbol) and not operand.relocation and operand.text in labels


def _is_padding(instr: Instr) -> bool:
    return instr.opcode == "NOP" or (instr.flow.kind is FlowKind.TRAP and decode(instr.opcode).root == "BRA")


class _Writer:
    """Writes the lines of one function; `space` keeps its names apart from those of other functions."""

    def __init__(self, function: Function, space: str, roles: Roles, code: MachineCode) -> None:
        self._function = function
        self._space = space
        self._roles = roles
        self._functions = code.functions
        self._labels = code.labels
        self._cfg: Cfg = build_cfg(function)
        self._ssa = Ssa(function, self._cfg)
        self._webs = _Webs(self._ssa)
        self._code = _count(function, code.labels)
        self._depths = loop_depths(self._cfg, lambda instr: _spins(function.instrs[instr]))
        self.registers: dict[str, str] = {}
        self._slots: list[str] = []

    def lines(self) -> Iterator[Line]:
        block = 0
        for instr in self._code.instrs:
            if instr.index in self._code.targets:
                block += 1
                yield self._label(instr, block)
            yield self._instruction(instr, block)
            block += instr.flow.kind in _ENDS

    def _label(self, instr: Instr, block: int) -> Line:
        return Line(
            kind=LineKind.LABEL,
            key="label",
            slots=(self._target(instr.index),),
            opcode="label",
            pattern="label:",
            text="label:",
            location=instr.location,
            effect=Effect.ORDERED,
            block=block,
            depth=self._depths[self._cfg.block_of[instr.index]],
            roles=self._roles(instr),
        )

    def _target(self, index: int) -> str:
        return f"l:{self._space}{index}"

    def _instruction(self, instr: Instr, block: int) -> Line:
        op = decode(instr.opcode)
        statement = _statement(instr)
        self._slots = []
        key = (instr.opcode, self._guard(statement, instr), *self._operands(op, statement, instr))
        reads, writes = self._effects(op, instr)
        self._slots += [*reads, *writes]
        return Line(
            kind=LineKind.INSTRUCTION,
            key=(*key, len(self._slots)),
            slots=tuple(self._slots),
            reads=reads,
            writes=writes,
            opcode=instr.opcode,
            pattern=_pattern(statement),
            text=_text(statement),
            location=instr.location,
            effect=_effect(op, statement),
            block=block,
            depth=self._depths[self._cfg.block_of[instr.index]],
            roles=self._roles(instr),
            synchronizes=op.part not in _QUIET or op.root == "ELECT",
            steers=instr.flow.kind is FlowKind.BRANCH or op.part in (Part.NOP, Part.CONTROL),
            closed=instr.flow.kind in _ENDS and not instr.guards,
        )

    def _effects(self, op: SassOp, instr: Instr) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Webs read and written. What a call may clobber is not said by the call, but by the function called."""
        reads = tuple(self._read(instr, name) for name in instr.uses if _is_tracked(name))
        if op.root == "CALL":
            return reads, ()
        writes = (assign.dst for assign in instr.assigns if _is_tracked(assign.dst))
        return reads, tuple(self._written(instr, name) for name in writes)

    def _guard(self, statement: ast.SassInstruction, instr: Instr) -> Hashable:
        guard = statement.guard
        return guard and (guard.negated, self._register(instr, guard.name, written=False))

    def _operands(self, op: SassOp, statement: ast.SassInstruction, instr: Instr) -> Iterator[Hashable]:
        results = len(split(op, statement.operands).results)
        for position, operand in enumerate(statement.operands):
            yield self._operand(operand, instr, position < results)
        if op.root in ("BRX", "JMX"):
            self._slots += [self._target(target) for target in instr.flow.targets]

    def _operand(self, operand: ast.Operand, instr: Instr, written: bool) -> Hashable:
        o = operand
        if isinstance(o, ast.Register):
            return self._register(instr, o.name, written), o.prefix, tuple(s for s in o.suffixes if s != _REUSE)
        if isinstance(o, ast.Immediate):
            return self._immediate(o, instr)
        if isinstance(o, ast.Word):
            return o.text.rstrip("0123456789") if o.text.startswith("SB") else o.text, o.prefix, o.suffixes
        if isinstance(o, ast.Symbol):
            return self._symbol(o, instr)
        if isinstance(o, ast.Indices):
            return o.items
        head = self._operand(o.head, instr, False) if o.head is not None else None
        terms = tuple(self._operand(term, instr, False) for term in o.terms)
        return "[", o.kind, head, terms, o.offset, o.prefix, tuple(s for s in o.suffixes if s != _REUSE)

    def _immediate(self, operand: ast.Immediate, instr: Instr) -> Hashable:
        """A number; where it is the address to which a call returns, a label."""
        if instr.flow.targets:
            self._slots += [self._target(target) for target in instr.flow.targets]
            return "label"
        if isinstance(operand.value, int) and operand.value in self._code.returns:
            self._slots.append(self._target(self._code.offsets[operand.value]))
            return "label"
        value = operand.value.hex() if isinstance(operand.value, float) else operand.value
        return "number", value, operand.prefix, operand.suffixes

    def _symbol(self, operand: ast.Symbol, instr: Instr) -> Hashable:
        if instr.flow.targets and not operand.relocation:
            self._slots += [self._target(target) for target in instr.flow.targets]
            return "label"
        if operand.text not in self._functions:
            return self._place(operand)
        self._slots.append(f"s:{operand.text}")
        return "function", operand.relocation

    def _place(self, operand: ast.Symbol) -> Hashable:
        """A label that is no branch target (where lanes meet again, for one), or a name from elsewhere."""
        at = self._code.offsets.get(self._labels[operand.text]) if _names_label(operand, self._labels) else None
        if at is None:
            return "external", operand.text, operand.relocation
        self._slots.append(self._target(at))
        return "label"

    def _register(self, instr: Instr, name: str, written: bool) -> Hashable:
        if name in _CONSTANTS:
            return name
        kind = name.rstrip("0123456789")
        if _is_tracked(name):
            self._slots.append(self._written(instr, name) if written else self._read(instr, name))
        return kind

    def _read(self, instr: Instr, name: str) -> str:
        return self._web(name, self._ssa.reads[instr.index].get(name))

    def _written(self, instr: Instr, name: str) -> str:
        return self._web(name, self._ssa.writes[instr.index].get(name))

    def _web(self, name: str, value: SsaValue | None) -> str:
        # Code that nothing reaches has no values: its registers are compared by name.
        slot = f"r:{self._space}{name}" if value is None else f"r:{self._space}#{self._webs.of(value)}"
        self.registers[slot] = name
        return slot


def _is_tracked(name: str) -> bool:
    """Not constants, and not convergence barriers, whose numbers say nothing."""
    return name not in _CONSTANTS and not name.startswith("B")


def _spins(instr: Instr) -> bool:
    op = decode(instr.opcode)
    return op.part in _SPIN_PARTS or op.root in _SPIN_ROOTS


def _effect(op: SassOp, statement: ast.SassInstruction) -> Effect:
    if op.part is Part.PLAIN:
        clock = any(isinstance(o, ast.Word) and o.text.startswith(_CLOCKS) for o in statement.operands)
        return Effect.ORDERED if clock else Effect.PURE
    return Effect.READ if op.part is Part.LOAD and not op.has("STRONG") else Effect.ORDERED


def _text(statement: ast.SassInstruction) -> str:
    guard = f"@{'!' if statement.guard.negated else ''}{statement.guard.name} " if statement.guard else ""
    return f"{guard}{statement.opcode} {', '.join(map(_shown, statement.operands))}".rstrip()


def _pattern(statement: ast.SassInstruction) -> str:
    guard = f"@{'!' if statement.guard.negated else ''}{_stem(statement.guard.name)} " if statement.guard else ""
    return f"{guard}{statement.opcode} {', '.join(_shown(o, abstract=True) for o in statement.operands)}".rstrip()


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _shown(operand: ast.Operand, abstract: bool = False) -> str:
    """An operand as text, as nvdisasm writes it; `abstract` without the numbers of registers."""
    o = operand
    if isinstance(o, ast.Indices):
        return f"{{{','.join(map(str, o.items))}}}"
    if isinstance(o, ast.Symbol):
        return "`(label)" if abstract else f"{o.relocation}`({o.text})"
    end = "".join(f".{suffix}" for suffix in o.suffixes if suffix != _REUSE)
    if isinstance(o, ast.Register):
        text = _stem(o.name) if abstract else o.name
    elif isinstance(o, ast.Immediate):
        text = hex(o.value) if isinstance(o.value, int) else repr(o.value)
    elif isinstance(o, ast.Word):
        text = o.text
    else:
        text = _address(o, abstract)
    return f"{o.prefix}{text}{end}{'|' if o.prefix.endswith('|') else ''}"


def _address(address: ast.Address, abstract: bool) -> str:
    terms = [_shown(term, abstract) for term in address.terms]
    inner = "+".join([*terms, *([hex(address.offset)] if address.offset or not terms else [])])
    head = f"[{_shown(address.head, abstract)}]" if address.head is not None else ""
    return f"{address.kind}{head}[{inner}]"
