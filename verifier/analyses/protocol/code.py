"""A kernel's slice as closures: steps of each block and how control leaves it."""

from __future__ import annotations

from collections.abc import Callable

from verifier.analyses.protocol import control
from verifier.analyses.protocol.alu import Step, compute_step
from verifier.analyses.protocol.drift import Drift
from verifier.analyses.protocol.effects import event_step
from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.flags import fenced
from verifier.analyses.protocol.invented import invented_places
from verifier.analyses.protocol.layout import Layout
from verifier.analyses.protocol.readers import load_uses
from verifier.analyses.protocol.slicing import HARD, Slice, Slicer
from verifier.analyses.protocol.values import Unknown, merge, pick
from verifier.model.cfg import Cfg
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.program import FlowKind, Instr, Reg

Leave = Callable[[Fiber], int]


class BlockCode:
    """Steps of one block, and `leave`, which gives the block that comes next."""

    __slots__ = ("leave", "steps")

    def __init__(self, steps: tuple[Step, ...], leave: Leave) -> None:
        self.steps = steps
        self.leave = leave


class Code:
    """The compiled slice of one kernel; runs share it. `exit` is the block in which threads end."""

    def __init__(self, model: KernelModel) -> None:
        self.model = model
        self.cfg = without_traps(model)
        self.slice: Slice = Slicer(model, self.cfg).run()
        self.layout = Layout()
        self.exit = self.cfg.exit
        self.events = {e.instr: e for e in model.events}
        self.spins = _spins(self)
        self.polls = _polls(self)
        self.fenced = fenced(model.events)
        self.looped = _looped(self)
        self.heads = _heads(self)
        self.tested = frozenset(  # of these, the ones that may leave their loop at once
            loop.header
            for loop in self.cfg.loops
            if loop.header in self.heads and any(e.dst not in loop.blocks for e in self.cfg.successors[loop.header])
        )
        loads = (self.events[i] for i in self.slice.values if i in self.events)
        self.reads_memory = any(e.kind is Kind.LOAD and (e.space or "global") == "global" for e in loads)
        self.invented = invented_places(self)
        self.drift = Drift(self)
        self.hard = self._hard_blocks()
        self.feasible = self.hard & {self.cfg.block_of[i] for s in model.streams for i in s.instructions}
        self._regions = control.Regions(self.cfg, self.hard)
        self.joins = self._join_slots()
        self._uses = load_uses(model, self.cfg)
        self.blocks = [self._block(index) for index in range(len(self.cfg.blocks))]

    def _hard_blocks(self) -> frozenset[int]:
        blocks = self.cfg.block_of
        kept = (e.instr for e in self.model.events if e.kind in HARD and e.instr in self.slice.keep)
        return self.slice.endless.union(blocks[instr] for instr in kept)

    def _join_slots(self) -> dict[int, tuple[int, ...]]:
        """Block -> slots of the registers that may differ between the ways into it."""
        kept = {a.dst for i in self.slice.keep for a in self.model.function.instrs[i].assigns}
        return {
            block.index: tuple(self.layout.slot(Reg(reg)) for reg in self.model.ssa.phis(block.index) if reg in kept)
            for block in self.cfg.blocks
        }

    def _block(self, index: int) -> BlockCode:
        block = self.cfg.blocks[index]
        if index in self.slice.endless:
            stays = control.Endless(block.end - 1)
            return BlockCode((lambda fiber: stays,), control.go(index))
        steps: list[Step] = []
        for position in range(block.start, block.end):
            if position in self._uses:
                steps.append(_complete_loads(self._uses[position]))
            if position in self.slice.keep:
                steps += self._steps(self.model.function.instrs[position])
        return BlockCode(tuple(steps), self._leave(index))

    def _steps(self, instr: Instr) -> list[Step]:
        event = self.events.get(instr.index)
        if instr.flow.kind is not FlowKind.NEXT and instr.flow.kind is not FlowKind.CALL:
            return []
        steps = self._unguarded(instr, event)
        if not instr.guards:
            return steps
        guard = instr.guards[0]
        slot = self.layout.slot(Reg(guard.reg))
        written = tuple(self.layout.slot(Reg(a.dst)) for a in instr.assigns)
        hard = event is not None and event.kind in HARD
        return [_guarded(step, slot, guard.negated, written, hard, instr) for step in steps]

    def _unguarded(self, instr: Instr, event: Event | None) -> list[Step]:
        if event is not None:
            step = event_step(self, instr, event)
            if step is not None:
                return [step]
        wanted = instr.index in self.slice.values
        return [compute_step(self.layout, assign, instr) for assign in instr.assigns] if wanted else []

    def _leave(self, index: int) -> Leave:
        block = self.cfg.blocks[index]
        if index == self.exit:
            return lambda fiber: index
        last = self.model.function.instrs[block.end - 1] if block.end > block.start else None
        if last is None or last.flow.kind in (FlowKind.NEXT, FlowKind.CALL):
            return control.go(self._successor(index, None))
        if not last.guards:
            return self._unconditional(index, last)
        join = self.cfg.post_dominator.get(index)
        if last.flow.kind is FlowKind.TRAP:
            return control.go(self._successor(index, None))
        if last.index not in self.slice.keep and join is not None:
            return control.go(join)
        guard = last.guards[0]
        taken = self.exit if last.flow.kind is FlowKind.EXIT else self._successor(index, last.flow.targets[0])
        branch = control.Branch(
            block=index,
            predicate=self.layout.slot(Reg(guard.reg)),
            negated=guard.negated,
            taken=taken,
            other=self._successor(index, None),
            join=join,
            line=last.location.ptx_line,
        )
        return control.branch(branch, self.joins, self._regions)

    def _unconditional(self, index: int, last: Instr) -> Leave:
        if last.flow.kind is FlowKind.EXIT:
            return control.go(self.exit)
        if last.flow.kind is FlowKind.BRANCH:
            return control.go(self._successor(index, last.flow.targets[0]))
        reason = "a trap is reached" if last.flow.kind is FlowKind.TRAP else "an indirect branch"
        return control.stop(f"{reason} at PTX line {last.location.ptx_line}")

    def _successor(self, index: int, target: int | None) -> int:
        """Block that starts at instruction `target` (None: the next one)."""
        start = self.cfg.blocks[index].end if target is None else target
        return self.cfg.block_of[start] if start < len(self.model.function.instrs) else self.exit


def without_traps(model: KernelModel) -> Cfg:
    """The control flow with no way out through a trap: what guards one decides nothing else."""
    cfg = model.cfg
    instrs = model.function.instrs
    traps = {b.index for b in cfg.blocks if b.end > b.start and instrs[b.end - 1].flow.kind is FlowKind.TRAP}
    return cfg.restrict(e for e in cfg.edges if not (e.src in traps and e.dst == cfg.exit))


def _complete_loads(sites: tuple[int, ...]) -> Step:
    def step(fiber: Fiber) -> None:
        for site in sites:
            fiber.warp.finish_load(site)

    return step


def _guarded(step: Step, slot: int, negated: bool, written: tuple[int, ...], hard: bool, instr: Instr) -> Step:
    """Run `step` in the lanes in which the predicate holds."""
    line = instr.location.ptx_line

    def run(fiber: Fiber) -> object:
        predicate = fiber.regs[slot]
        if isinstance(predicate, int):
            return step(fiber) if (predicate & 1) != negated else None
        if isinstance(predicate, Unknown):
            if hard:
                raise control.Undecided(f"whether the instruction at PTX line {line} runs: {predicate.why}")
            return _maybe(step, fiber, written, predicate)
        return _some_lanes(step, fiber, written, slot, negated)

    return run


def _maybe(step: Step, fiber: Fiber, written: tuple[int, ...], why: Unknown) -> object:
    """An access that may happen counts; a value that may be written is unknown."""
    before = [fiber.regs[slot] for slot in written]
    outcome = step(fiber)
    for slot, old in zip(written, before, strict=True):
        if fiber.regs[slot] is not old and fiber.regs[slot] != old:
            fiber.regs[slot] = why
    return outcome


def _some_lanes(step: Step, fiber: Fiber, written: tuple[int, ...], slot: int, negated: bool) -> object:
    everyone = fiber.lanes
    predicate = fiber.regs[slot]
    active = tuple(lane for lane in everyone if _holds(pick(predicate, lane), negated))
    if not active:
        return None
    before = [fiber.regs[place] for place in written]
    fiber.lanes = active
    outcome = step(fiber)
    fiber.lanes = everyone
    for place, old in zip(written, before, strict=True):
        fiber.regs[place] = merge(old, fiber.regs[place], active, everyone)
    return outcome


def _holds(bit: object, negated: bool) -> bool:
    if isinstance(bit, int):
        return bool(bit & 1) != negated
    raise control.Undecided(f"a predicate that is unknown in some lanes: {bit}")


def _looped(code: Code) -> frozenset[int]:
    """Kept events inside a loop that is more than the retry of a wait."""
    loops = [loop for loop in code.cfg.loops if any(_works(code, block) for block in loop.blocks)]
    inside = {block for loop in loops for block in loop.blocks}
    return frozenset(i for i in code.slice.keep if i in code.events and code.cfg.block_of[i] in inside)


def _heads(code: Code) -> frozenset[int]:
    """Headers of loops that lie in no other loop and do more than retry a wait."""
    loops = [loop for loop in code.cfg.loops if any(_works(code, block) for block in loop.blocks)]
    return frozenset(loop.header for loop in loops if not any(loop.header in o.blocks and o is not loop for o in loops))


def _works(code: Code, index: int) -> bool:
    block = code.cfg.blocks[index]
    return any(i in code.slice.keep and i in code.events and i not in code.spins for i in range(block.start, block.end))


def _spins(code: Code) -> frozenset[int]:
    """Waits that are tried again until they succeed: a cycle leads back to them on which nothing else happens."""
    return frozenset(e.instr for e in code.model.events if e.kind is Kind.BARRIER_WAIT and _comes_back(code, e.instr))


def _polls(code: Code) -> frozenset[int]:
    """Strong accesses of shared memory in a loop in which nothing else happens."""
    found: set[int] = set()
    for loop in code.cfg.loops:
        inside = [
            code.events[i]
            for block in loop.blocks
            for i in range(code.cfg.blocks[block].start, code.cfg.blocks[block].end)
            if i in code.slice.keep and i in code.events
        ]
        if all(e.kind in (Kind.LOAD, Kind.ATOMIC) and in_shared(e) and e.sem != "weak" for e in inside):
            found.update(e.instr for e in inside)
    return frozenset(found)


def _comes_back(code: Code, instr: int) -> bool:
    cfg, events = code.cfg, code.events
    home = cfg.block_of[instr]

    def quiet(start: int, end: int) -> bool:
        return not any(i in code.slice.keep and i in events for i in range(start, end))

    if not quiet(instr + 1, cfg.blocks[home].end) or not quiet(cfg.blocks[home].start, instr):
        return False
    seen: set[int] = set()
    stack = [e.dst for e in cfg.successors[home]]
    while stack:
        block = stack.pop()
        if block == home:
            return True
        if block not in seen and quiet(cfg.blocks[block].start, cfg.blocks[block].end):
            seen.add(block)
            stack += [e.dst for e in cfg.successors[block]]
    return False
