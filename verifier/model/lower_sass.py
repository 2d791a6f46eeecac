"""A SASS listing -> functions in the common form: labels to indices, integer work to `isa.compute`.

Each instruction keeps its statement as `origin`; `model.sass_operands` reads addresses from it and
`parse.control` its scoreboards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.errors import InputError
from verifier.findings import Location
from verifier.isa.sass_ops import Part, decode
from verifier.model.lower_sass_alu import lower_assigns
from verifier.model.program import NEXT, UNKNOWN_CALLEE, Assign, Const, Flow, FlowKind, Function, Guard, Instr, Reg
from verifier.model.sass_operands import Machine
from verifier.model.sass_spills import is_spill, lower_spill, stack_is_fixed
from verifier.parse import sass_ast as ast
from verifier.parse.cubin import CubinInfo, KernelInfo
from verifier.parse.source import Source

_PTX_FILE = ".nv_debug_ptx_txt"
_ENTRY = "STO_CUDA_ENTRY"
_TARGETS = "BRANCH_TARGETS "
_EXITS = frozenset({"EXIT", "RET", "KILL"})
_INDIRECT = frozenset({"BRX", "JMX"})
_COMPUTES = frozenset({Part.PLAIN, Part.CONTROL, Part.NOP, Part.SLEEP})
_MAYBE = frozenset({"DIV", "ANY", "CONV"})  # BRA forms that branch on the state of the warp
_INSTRUCTION_BYTES = 16
_CONSTANT_PREDICATES = ("PT", "UPT")


class _Body:
    """One function of the listing: instructions with their locations, labels to instruction numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[tuple[ast.SassInstruction, Location]] = []
        self.labels: dict[str, int] = {}
        self.offsets: dict[int, int] = {}

    def add(self, statement: ast.SassInstruction, location: Location) -> None:
        self.offsets[statement.offset] = len(self.instructions)
        self.instructions.append((statement, location))


class _Lines:
    """The line comments that hold for the next instruction."""

    def __init__(self) -> None:
        self._ptx: int | None = None
        self._file: str | None = None
        self._line: int | None = None
        self._fresh = True

    def move(self, info: ast.LineInfo) -> None:
        """Of a chain of inlined places the first is where the code stands."""
        if info.file.startswith(_PTX_FILE):
            self._ptx = info.line
        elif self._fresh:
            self._file, self._line, self._fresh = info.file, info.line, False

    def at(self, offset: int) -> Location:
        self._fresh = True
        return Location(ptx_line=self._ptx, sass_offset=offset, file=self._file, line=self._line)


def lower_sass(file: ast.SassFile, cubin: CubinInfo | None = None) -> tuple[Function, ...]:
    """All functions of a listing, kernels and the device functions they call alike.

    What the listing does not say (block and cluster size, the letter of the architecture) comes from `cubin`. Raises
    InputError when the listing names no target or a branch leaves its function.
    """
    arch = cubin.arch if cubin else _target(file)
    kernels = {kernel.name: kernel for kernel in cubin.kernels} if cubin else {}
    bodies = list(_bodies(file))
    calls = _Calls(bodies)
    return tuple(_lower_body(body, arch, kernels.get(body.name), calls, file.source) for body in bodies)


def entry_names(file: ast.SassFile) -> tuple[str, ...]:
    """Names of the kernels of a listing, in order."""
    return tuple(
        s.args[0]
        for s in file.statements
        if isinstance(s, ast.SassDirective) and s.name == ".other" and any(_ENTRY in arg for arg in s.args[1:])
    )


def unknown_opcodes(function: Function) -> dict[str, int]:
    """Opcodes that the table does not know, with their number of occurrences."""
    counts: dict[str, int] = {}
    for instr in function.instrs:
        if not decode(instr.opcode).known:
            counts[instr.opcode] = counts.get(instr.opcode, 0) + 1
    return counts


def _target(file: ast.SassFile) -> str:
    for statement in file.statements:
        if isinstance(statement, ast.SassDirective) and statement.name == ".target" and statement.args:
            return statement.args[0]
    raise InputError(
        "no .target in this listing", where=file.source.name, do="give the whole output of nvdisasm -c -hex"
    )


def _bodies(file: ast.SassFile) -> Iterator[_Body]:
    functions = {
        s.args[0]
        for s in file.statements
        if isinstance(s, ast.SassDirective) and s.name == ".type" and s.args[1:] == ("@function",)
    }
    body = _Body("")
    lines = _Lines()
    for statement in file.statements:
        if isinstance(statement, ast.SassInstruction):
            body.add(statement, lines.at(statement.offset))
        elif isinstance(statement, ast.LineInfo):
            lines.move(statement)
        elif isinstance(statement, ast.SassLabel):
            if statement.name in functions:
                if body.instructions:
                    yield body
                body, lines = _Body(statement.name), _Lines()
            body.labels[statement.name] = len(body.instructions)
    if body.instructions:
        yield body


def _lower_body(body: _Body, arch: str, kernel: KernelInfo | None, calls: _Calls, source: Source) -> Function:
    number = int("".join(c for c in arch if c.isdigit()) or 0)
    machine = Machine(number, kernel.constants if kernel else {})
    branches = _Branches(body, calls, source)
    instrs = [
        _lower_instruction(index, statement, location, machine, branches)
        for index, (statement, location) in enumerate(body.instructions)
    ]
    if instrs:
        instrs[0] = _with_constants(instrs)
    return Function(
        name=body.name,
        isa="sass",
        arch=arch,
        instrs=tuple(instrs),
        max_block=kernel.max_block if kernel else None,
        block=kernel.block if kernel else None,
        cluster=kernel.cluster if kernel else None,
    )


def _with_constants(instrs: Sequence[Instr]) -> Instr:
    """The first instruction also defines the constant predicates that guards of this function name."""
    named = sorted({g.reg for instr in instrs for g in instr.guards if g.reg in _CONSTANT_PREDICATES})
    first = instrs[0]
    defined = tuple(Assign(name, "mov", 1, (Const(1),)) for name in named)
    return Instr(
        first.index, first.opcode, first.guards, (*first.assigns, *defined), first.uses, first.flow, first.location,
        first.origin,
    )  # fmt: skip


def _lower_instruction(
    index: int, statement: ast.SassInstruction, location: Location, machine: Machine, branches: _Branches
) -> Instr:
    op = decode(statement.opcode)
    guards: tuple[Guard, ...] = (Guard(statement.guard.name, statement.guard.negated),) if statement.guard else ()
    flow = NEXT
    assigns: tuple[Assign, ...] = ()
    uses: tuple[str, ...] = ()
    if op.part in (Part.CONTROL, Part.WARP_SYNC):
        flow, more = branches.flow(index, statement)
        guards += more
        if flow.kind is FlowKind.CALL:
            assigns = branches.clobbers(statement)
    spill = lower_spill(statement) if branches.follows_spills and is_spill(statement) else None
    if spill is not None:
        assigns, uses = spill
    elif not assigns:
        assigns, uses = lower_assigns(op, statement.operands, machine)
    if guards:
        uses = (*uses, *(guard.reg for guard in guards))
    return Instr(index, statement.opcode, guards, assigns, uses, flow, location, statement)


class _Branches:
    """Control flow of one function."""

    def __init__(self, body: _Body, calls: _Calls, source: Source) -> None:
        self._body = body
        self._source = source
        self._calls = calls
        self.follows_spills = stack_is_fixed([statement for statement, _ in body.instructions])

    def flow(self, index: int, statement: ast.SassInstruction) -> tuple[Flow, tuple[Guard, ...]]:
        """(where control goes, guards that stand among the operands)."""
        root, *words = statement.opcode.split(".")
        if root in _EXITS:
            return Flow(FlowKind.EXIT), ()
        if root == "BPT":
            return (Flow(FlowKind.TRAP), ()) if "TRAP" in words else (NEXT, ())
        if root == "CALL":
            return self._call(statement), ()
        if root in _INDIRECT:
            return self._indirect(index, statement), ()
        if root in ("BRA", "JMP"):
            return self._branch(index, statement, words)
        target = statement.operands[-1] if statement.operands else None
        if root == "WARPSYNC" and isinstance(target, ast.Symbol):  # WARPSYNC.COLLECTIVE
            return Flow(FlowKind.INDEXED, (self._resolve(target, statement), index + 1)), ()
        return NEXT, ()

    def _call(self, statement: ast.SassInstruction) -> Flow:
        if self._calls.traps(statement):
            return Flow(FlowKind.TRAP)
        return Flow(FlowKind.CALL, callee="" if self._calls.silent(statement) else self._calls.name(statement))

    def _branch(
        self, index: int, statement: ast.SassInstruction, words: Sequence[str]
    ) -> tuple[Flow, tuple[Guard, ...]]:
        target = self._resolve(statement.operands[-1], statement)
        if target == index and statement.guard is None:
            return Flow(FlowKind.TRAP), ()  # the padding behind a function
        guards = tuple(
            Guard(operand.name, operand.prefix == "!")
            for operand in statement.operands[:-1]
            if isinstance(operand, ast.Register) and operand.name.startswith(("P", "UP"))
        )
        if _MAYBE.intersection(words) and not statement.guard:
            return Flow(FlowKind.INDEXED, (target, index + 1)), ()
        return Flow(FlowKind.BRANCH, (target,)), guards

    def _indirect(self, index: int, statement: ast.SassInstruction) -> Flow:
        """`BRX R2 -0x4f0`: R2 plus the offset of the next instruction minus 0x4f0 is where control goes."""
        targets = self._listed_targets(statement)
        base = statement.operands[0]
        step = statement.operands[1] if len(statement.operands) > 1 else None
        if not isinstance(base, ast.Register) or not isinstance(step, ast.Immediate):
            return Flow(FlowKind.INDEXED, targets)
        instructions = self._body.instructions
        following = statement.offset + _INSTRUCTION_BYTES + int(step.value)
        keys = tuple(instructions[target][0].offset - following & 0xFFFFFFFF for target in targets)
        return Flow(FlowKind.INDEXED, targets, Reg(base.name), keys)

    def _listed_targets(self, statement: ast.SassInstruction) -> tuple[int, ...]:
        """Targets that nvdisasm found; any label where it found none."""
        _, found, names = (statement.note or "").partition(_TARGETS)
        if found:
            return tuple(dict.fromkeys(self._resolve(ast.Symbol(name.strip()), statement) for name in names.split(",")))
        return tuple(sorted({at for at in self._body.labels.values() if at < len(self._body.instructions)}))

    def _resolve(self, operand: ast.Operand, statement: ast.SassInstruction) -> int:
        target: int | None = None
        if isinstance(operand, ast.Symbol):
            target = self._body.labels.get(operand.text)
        elif isinstance(operand, ast.Immediate):
            target = self._body.offsets.get(int(operand.value))
        if target is not None and target < len(self._body.instructions):
            return target
        start = statement.span.start
        raise InputError(
            f"a branch out of function {self._body.name}",
            where=f"{self._source.name}:{self._source.line_of(start)}:{self._source.column_of(start)}",
            do="give the whole output of nvdisasm; if it is whole, report this as a bug",
        )

    def clobbers(self, statement: ast.SassInstruction) -> tuple[Assign, ...]:
        """What is not known any more after a call."""
        return self._calls.clobbers(statement, self._body)


class _Calls:
    """What the functions of a listing do to the registers of their callers."""

    def __init__(self, bodies: Sequence[_Body]) -> None:
        self._bodies = {body.name: body for body in bodies}
        self._written: dict[str, frozenset[str] | None] = {}
        self._silent: dict[str, bool] = {}

    def name(self, statement: ast.SassInstruction) -> str:
        """What is called, for messages."""
        target = statement.operands[-1] if statement.operands else None
        return target.text if isinstance(target, ast.Symbol) else UNKNOWN_CALLEE

    def silent(self, statement: ast.SassInstruction) -> bool:
        """Whether the function called only computes, as slow paths of a division do: it touches no memory that others
        see, synchronizes with nobody and comes back."""
        body = self._callee(statement)
        if body is None:
            return False
        if body.name not in self._silent:
            self._silent[body.name] = False  # of a recursion nothing is known
            self._silent[body.name] = all(self._computes(line) for line, _ in body.instructions)
        return self._silent[body.name]

    def _computes(self, statement: ast.SassInstruction) -> bool:
        op = decode(statement.opcode)
        if op.root == "CALL":
            return self.traps(statement) or self.silent(statement)
        if op.root in _INDIRECT or op.root in ("EXIT", "KILL"):
            return False
        return op.part in _COMPUTES or (op.part in (Part.LOAD, Part.STORE) and op.row.space == "local")

    def traps(self, statement: ast.SassInstruction) -> bool:
        """Whether the function called begins with a trap, as the checks of tcgen05 do."""
        body = self._callee(statement)
        first = body.instructions[0][0] if body else None
        return first is not None and first.guard is None and first.opcode.startswith("BPT.TRAP")

    def clobbers(self, statement: ast.SassInstruction, caller: _Body) -> tuple[Assign, ...]:
        """The registers that the function called may write; all of the caller's when that is not in the listing."""
        body = self._callee(statement)
        names = self._writes(body.name) if body else None
        return tuple(Assign(name, "opaque", 32) for name in sorted(_registers(caller) if names is None else names))

    def _callee(self, statement: ast.SassInstruction) -> _Body | None:
        target = statement.operands[-1] if statement.operands else None
        return self._bodies.get(target.text) if isinstance(target, ast.Symbol) else None

    def _writes(self, name: str) -> frozenset[str] | None:
        """Registers that function `name` and its callees write, None when one of them is not in the listing."""
        if name not in self._written:
            self._written[name] = None  # of a recursion nothing is known
            body = self._bodies[name]
            names = set(_registers(body))
            for statement, _ in body.instructions:
                if statement.opcode.startswith("CALL"):
                    callee = self._callee(statement)
                    more = self._writes(callee.name) if callee else None
                    if more is None:
                        return None
                    names |= more
            self._written[name] = frozenset(names)
        return self._written[name]


def _registers(body: _Body) -> frozenset[str]:
    """Registers that a function names; more than it writes, which is on the safe side."""
    names: set[str] = set()
    for statement, _ in body.instructions:
        assigns, uses = lower_assigns(decode(statement.opcode), statement.operands, Machine(0))
        names.update(uses)
        names.update(assign.dst for assign in assigns)
    return frozenset(names)
