"""Static single assignment over the registers of one function, kept beside the instructions.

Each read of a register is linked to the one value it can see; where control joins, a phi merges. A definition under
a guard keeps the value it may leave in place (`old`). Construction after Cytron et al., "Efficiently Computing
Static Single Assignment Form" (TOPLAS 1991), with phis only for registers that live across blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import rustworkx

from verifier.model.cfg import Cfg
from verifier.model.program import Arg, Assign, Function, Reg


class SsaValue:
    """One value of one register. Exactly one of: an assignment, a phi (`incoming`), or an undefined start."""

    __slots__ = ("args", "assign", "block", "guards", "id", "incoming", "instr", "old", "reg")

    def __init__(self, id_: int, reg: str, block: int) -> None:
        self.id = id_
        self.reg = reg
        self.block = block
        self.instr = -1
        self.assign: Assign | None = None
        self.args: tuple[SsaValue | Arg, ...] = ()
        self.guards: tuple[tuple[SsaValue, bool], ...] = ()  # (predicate, negated), all of which must hold
        self.old: SsaValue | None = None
        self.incoming: dict[int, SsaValue] | None = None  # predecessor block -> value, for a phi

    def __repr__(self) -> str:
        return f"{self.reg}.{self.id}"


class Ssa:
    """`reads[i][reg]` is the value instruction i sees in `reg`; `writes[i][reg]` the value it leaves there."""

    def __init__(self, function: Function, cfg: Cfg) -> None:
        self.values: list[SsaValue] = []
        self.reads: list[dict[str, SsaValue]] = [{} for _ in function.instrs]
        self.writes: list[dict[str, SsaValue]] = [{} for _ in function.instrs]
        self.users: dict[int, list[int]] = defaultdict(list)  # value id -> instructions that read it
        self._phis: dict[int, dict[str, SsaValue]] = defaultdict(dict)
        self._function = function
        self._cfg = cfg
        self._undefined: dict[str, SsaValue] = {}
        self._place_phis()
        self._rename()

    def _new(self, reg: str, block: int) -> SsaValue:
        value = SsaValue(len(self.values), reg, block)
        self.values.append(value)
        return value

    def phis(self, block: int) -> dict[str, SsaValue]:
        return self._phis.get(block, {})

    def _place_phis(self) -> None:
        defined_in, upward = self._summary()
        frontier = rustworkx.dominance_frontiers(self._cfg.graph, self._cfg.entry)
        for reg, blocks in defined_in.items():
            if reg not in upward:
                continue
            work = list(blocks)
            placed: set[int] = set()
            while work:
                for join in frontier.get(work.pop(), ()):
                    if join not in placed:
                        placed.add(join)
                        self._phis[join][reg] = self._phi(reg, join)
                        work.append(join)

    def _phi(self, reg: str, block: int) -> SsaValue:
        value = self._new(reg, block)
        value.incoming = {}
        return value

    def _summary(self) -> tuple[dict[str, set[int]], set[str]]:
        """(blocks that define each register, registers that some block reads before defining them)."""
        defined_in: dict[str, set[int]] = defaultdict(set)
        upward: set[str] = set()
        for index in self._cfg.order:
            block = self._cfg.blocks[index]
            local: set[str] = set()
            for instr in self._function.instrs[block.start : block.end]:
                upward.update(reg for reg in instr.uses if reg not in local)
                for assign in instr.assigns:
                    if instr.guards and assign.dst not in local:
                        upward.add(assign.dst)
                    local.add(assign.dst)
                    defined_in[assign.dst].add(index)
        return defined_in, upward

    def _rename(self) -> None:
        children: dict[int, list[int]] = defaultdict(list)
        for block, parent in self._cfg.dominator.items():
            if block != parent:
                children[parent].append(block)
        stacks: dict[str, list[SsaValue]] = defaultdict(list)
        pushed: dict[int, list[str]] = {}
        for step, block in _dominator_walk(self._cfg.entry, children):
            if step == "leave":
                for reg in pushed.pop(block):
                    stacks[reg].pop()
            else:
                pushed[block] = self._enter(block, stacks)

    def _enter(self, block: int, stacks: dict[str, list[SsaValue]]) -> list[str]:
        pushed: list[str] = []
        for reg, phi in self._phis.get(block, {}).items():
            stacks[reg].append(phi)
            pushed.append(reg)
        bounds = self._cfg.blocks[block]
        for index in range(bounds.start, bounds.end):
            self._visit(index, block, stacks, pushed)
        for edge in self._cfg.successors[block]:
            for reg, phi in self._phis.get(edge.dst, {}).items():
                assert phi.incoming is not None
                phi.incoming[block] = self._top(reg, stacks)
        return pushed

    def _visit(self, index: int, block: int, stacks: dict[str, list[SsaValue]], pushed: list[str]) -> None:
        instr = self._function.instrs[index]
        reads = self.reads[index]
        for reg in instr.uses:
            if reg not in reads:
                value = reads[reg] = self._top(reg, stacks)
                self.users[value.id].append(index)
        guards = tuple((reads[g.reg], g.negated) for g in instr.guards)
        fresh = []
        for assign in instr.assigns:
            value = self._new(assign.dst, block)
            value.instr = index
            value.assign = assign
            value.args = tuple(self._operand(arg, reads, stacks) for arg in assign.args)
            value.guards = guards
            value.old = self._top(assign.dst, stacks) if guards else None
            fresh.append(value)
        for value in fresh:
            self.writes[index][value.reg] = value
            stacks[value.reg].append(value)
            pushed.append(value.reg)

    def _operand(self, arg: Arg, reads: dict[str, SsaValue], stacks: dict[str, list[SsaValue]]) -> SsaValue | Arg:
        if not isinstance(arg, Reg):
            return arg
        value = reads.get(arg.name)
        return value if value is not None else self._top(arg.name, stacks)

    def _top(self, reg: str, stacks: dict[str, list[SsaValue]]) -> SsaValue:
        stack = stacks.get(reg)
        if stack:
            return stack[-1]
        if reg not in self._undefined:
            self._undefined[reg] = self._new(reg, self._cfg.entry)
        return self._undefined[reg]


def _dominator_walk(entry: int, children: dict[int, list[int]]) -> Iterator[tuple[str, int]]:
    """("enter", b) and ("leave", b) of a depth-first walk, without recursion."""
    stack: list[tuple[str, int]] = [("enter", entry)]
    while stack:
        step, block = stack.pop()
        yield step, block
        if step == "enter":
            stack.append(("leave", block))
            stack += [("enter", child) for child in children[block]]
