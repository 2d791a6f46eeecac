"""The slice of a kernel that decides what its warps do to each other.

Kept are events (barriers, tensor memory, bulk copies, shared memory, exits), the instructions that compute their
operands, and the branches that decide whether they run. Data math drops out, and with it data-dependent branches.
A program dependence graph in the sense of Ferrante, Ottenstein and Warren (TOPLAS 1987), over SSA and post-dominance.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from verifier.model.cfg import Cfg
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.lower_alu import arg_of
from verifier.model.lower_ptx import Resolved
from verifier.model.program import AddressExpr, FlowKind, Instr, Reg
from verifier.model.ssa import SsaValue

# Events of the machine. A branch whose outcome is unknown must not decide whether one of HARD runs.
HARD = frozenset(
    {
        Kind.BARRIER_INIT,
        Kind.BARRIER_INVAL,
        Kind.BARRIER_ARRIVE,
        Kind.BARRIER_EXPECT,
        Kind.BARRIER_COMPLETE,
        Kind.BARRIER_WAIT,
        Kind.COPY_ARRIVE,
        Kind.BULK_LOAD,
        Kind.BULK_PEER,
        Kind.ASYNC_STORE,
        Kind.ASYNC_REDUCE,
        Kind.CLC_CANCEL,
        Kind.TMEM_COMMIT,
        Kind.TMEM_ALLOC,
        Kind.TMEM_DEALLOC,
        Kind.TMEM_MMA,
        Kind.TMEM_COPY,
        Kind.TMEM_SHIFT,
        Kind.CTA_SYNC,
        Kind.CTA_ARRIVE,
        Kind.CLUSTER_ARRIVE,
        Kind.CLUSTER_WAIT,
        Kind.EXIT,
    }
)
SOFT = frozenset(
    {
        Kind.TMEM_LOAD,
        Kind.TMEM_STORE,
        Kind.TMEM_WAIT_LOAD,
        Kind.TMEM_WAIT_STORE,
        Kind.BULK_STORE,
        Kind.BULK_COMMIT,
        Kind.BULK_WAIT,
        Kind.COPY_ASYNC,
        Kind.COPY_COMMIT,
        Kind.COPY_WAIT,
        Kind.WGMMA_MMA,
        Kind.WGMMA_COMMIT,
        Kind.WGMMA_WAIT,
    }
)
ACCESSES = frozenset({Kind.LOAD, Kind.STORE, Kind.ATOMIC})
_BY_THREADS = frozenset({Kind.COPY_ASYNC, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE})


class Slice(msgspec.Struct, frozen=True):
    """Instructions kept. `values` are loads whose result is computed, `data` stores whose data is forwarded.

    `endless` are blocks that no way leads out of and after which nothing that is kept happens.
    """

    keep: frozenset[int]
    values: frozenset[int]
    data: frozenset[int]
    endless: frozenset[int]


def writes_shared(event: Event) -> bool:
    """Whether it writes shared memory, without a barrier that it needs."""
    return event.kind is Kind.COPY_ASYNC or (event.kind in (Kind.STORE, Kind.ATOMIC) and in_shared(event))


def accesses_shared(event: Event) -> bool:
    """Whether it is an access of shared memory by a thread itself, or one that it starts with a single element."""
    return event.kind in _BY_THREADS or (event.kind in ACCESSES and in_shared(event))


def operand_registers(event: Event) -> set[str]:
    """Registers that an event's own operands are made of; data that it moves is not one of them."""
    regs: set[str] = set()
    for place in (event.address, event.source, event.barrier, *event.scales):
        if isinstance(place, AddressExpr):
            regs.update(term.name for term in place.terms if isinstance(term, Reg))
    for arg in (event.count, event.size, event.parity, event.mask, event.number):
        if isinstance(arg, Reg):
            regs.add(arg.name)
    return regs


def descriptors(event: Event, instr: Instr) -> set[str]:
    """Registers with the matrix descriptors of an MMA or a copy into tensor memory."""
    if event.kind in (Kind.TMEM_MMA, Kind.TMEM_COPY):
        return set(event.registers)
    if event.kind is not Kind.WGMMA_MMA:
        return set()
    resolved = instr.origin
    assert isinstance(resolved, Resolved)
    args = (arg_of(operand, resolved.arg) for operand in resolved.statement.operands[1:3])  # type: ignore[arg-type]
    return {arg.name for arg in args if isinstance(arg, Reg)}


def control_dependence(cfg: Cfg) -> dict[int, set[int]]:
    """Block -> blocks whose last branch decides whether it runs."""
    above = cfg.post_dominator
    depends: dict[int, set[int]] = defaultdict(set)
    for edge in cfg.edges:
        if edge.src not in cfg.reachable or len(cfg.successors[edge.src]) < 2:
            continue
        stop = above.get(edge.src)
        block: int | None = edge.dst
        seen: set[int] = set()
        while block is not None and block != stop and block not in seen:
            seen.add(block)
            depends[block].add(edge.src)
            following = above.get(block)
            block = None if following == block else following
    return depends


class Slicer:
    """Grows a slice from its seeds until nothing is missing."""

    def __init__(self, model: KernelModel, cfg: Cfg) -> None:
        self._model = model
        self._cfg = cfg
        self._instrs = model.function.instrs
        self._events = {e.instr: e for e in model.events}
        self._depends = control_dependence(cfg)
        self._keep: set[int] = set()
        self._values: set[int] = set()
        self._data: set[int] = set()
        self._seen: set[int] = set()
        self._work: list[SsaValue] = []

    def run(self) -> Slice:
        seeds = [e for e in self._model.events if self._is_seed(e)]
        endless = self._endless({self._cfg.block_of[e.instr] for e in seeds})
        for event in seeds:
            if self._cfg.block_of[event.instr] in self._cfg.reachable:
                self._add_event(event)
        for block in endless:
            self._add(self._cfg.blocks[block].end - 1)
        while True:
            self._drain()
            if not self._forward():
                return Slice(frozenset(self._keep), frozenset(self._values), frozenset(self._data), endless)

    def _endless(self, seeds: set[int]) -> frozenset[int]:
        """Reachable blocks from which neither the end of the thread nor an event can be reached."""
        cfg = self._cfg
        going_on = (FlowKind.NEXT, FlowKind.BRANCH)
        leaving = {b.index for b in cfg.blocks if b.end > b.start and self._instrs[b.end - 1].flow.kind not in going_on}
        stack = [cfg.exit, *leaving, *seeds]
        seen = set(stack)
        while stack:
            for edge in cfg.predecessors[stack.pop()]:
                if edge.src not in seen:
                    seen.add(edge.src)
                    stack.append(edge.src)
        return frozenset(cfg.reachable - seen)

    def _is_seed(self, event: Event) -> bool:
        if event.kind in ACCESSES:
            return in_shared(event)
        if event.kind is Kind.EXIT:
            return self._instrs[event.instr].flow.kind is FlowKind.EXIT
        return event.kind in HARD or event.kind in SOFT

    def _add_event(self, event: Event) -> None:
        if event.instr in self._keep:
            return
        self._add(event.instr)
        self._need(event.instr, operand_registers(event))
        self._need(event.instr, descriptors(event, self._instrs[event.instr]))

    def _add(self, index: int) -> None:
        """Keep an instruction, its guards, and the branches it hangs on."""
        work = [index]
        while work:
            item = work.pop()
            if item in self._keep:
                continue
            self._keep.add(item)
            self._need(item, {g.reg for g in self._instrs[item].guards})
            for block in self._depends.get(self._cfg.block_of[item], ()):
                work.append(self._cfg.blocks[block].end - 1)

    def _need(self, index: int, regs: set[str]) -> None:
        reads = self._model.ssa.reads[index]
        self._work += [reads[reg] for reg in regs if reg in reads]

    def _drain(self) -> None:
        while self._work:
            value = self._work.pop()
            if value.id in self._seen:
                continue
            self._seen.add(value.id)
            if value.incoming is not None:
                self._work += value.incoming.values()
            elif value.assign is not None:
                self._define(value)

    def _define(self, value: SsaValue) -> None:
        if value.old is not None:
            self._work.append(value.old)
        event = self._events.get(value.instr)
        self._add(value.instr)
        self._values.add(value.instr)
        if event is not None:
            self._need(value.instr, operand_registers(event))
            return
        instr = self._instrs[value.instr]
        if not self._is_opaque(value):
            self._need(value.instr, set(instr.uses))

    @staticmethod
    def _is_opaque(value: SsaValue) -> bool:
        return value.assign is not None and value.assign.op == "opaque"

    def _forward(self) -> bool:
        """Add the data of stores that a kept load may read; False when there is nothing to add."""
        if not any(i in self._events and in_shared(self._events[i]) for i in self._values):
            return False
        grown = False
        for index in sorted(self._keep):
            event = self._events.get(index)
            if event is None or index in self._data or event.kind not in (Kind.STORE, Kind.ASYNC_STORE):
                continue
            if in_shared(event) and self._computable(index, event.registers):
                self._data.add(index)
                self._need(index, set(event.registers))
                grown = True
        return grown

    def _computable(self, index: int, regs: tuple[str, ...]) -> bool:
        """Whether the data is integer work over parameters, special registers and loads."""
        reads = self._model.ssa.reads[index]
        work = [reads[reg] for reg in regs if reg in reads]
        seen: set[int] = set()
        while work:
            value = work.pop()
            if value.id in seen:
                continue
            seen.add(value.id)
            if value.incoming is not None:
                work += value.incoming.values()
            elif value.assign is not None:
                event = self._events.get(value.instr)
                if event is not None and event.kind is Kind.TMEM_LOAD:
                    return False
                if event is None and self._is_opaque(value):
                    return False
                if event is None:
                    work += [arg for arg in value.args if isinstance(arg, SsaValue)]
                if value.old is not None:
                    work.append(value.old)
        return True
