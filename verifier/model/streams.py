"""Splits a kernel into the instruction streams of its warps.

A kernel is one entry that branches on its warp index. For each warp of the block (and each CTA rank of the cluster,
where the code asks for it) the branch predicates are evaluated and infeasible edges dropped; warps left with the same
edges share a `Stream`. A lane-dependent or unknown branch keeps both sides, with its guard.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from verifier.model.cfg import Cfg, Edge
from verifier.model.evaluator import Evaluator, ThreadContext
from verifier.model.events import Event
from verifier.model.program import NEXT, AddressExpr, Arg, Function, Reg, SReg
from verifier.model.ssa import Ssa
from verifier.model.values import WARP, SymbolTable, Value, add, collapse, spread

MAX_WARPS = 32
MAX_RANKS = 16
_RANK_SREGS = frozenset(
    f"cluster_{name}" for name in ("ctarank", "ctaid.x", "ctaid.y", "ctaid.z", "nctarank")
) | frozenset(f"cluster_nctaid.{axis}" for axis in "xyz")


class Shape(msgspec.Struct, frozen=True):
    """Launch shape the streams are computed for. `block` or `cluster` None: not known, nothing is assumed.

    `block_is_bound` says that `block` is only an upper bound (`.maxntid`). `paired`: of an unknown cluster it is known
    that CTAs work in pairs (cta_group::2), even and odd along x.
    """

    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    block_is_bound: bool = False
    paired: bool = False


class Stream:
    """What a set of warps executes: one control-flow graph, evaluated for the first member.

    `by_rank` has an evaluator for each CTA rank among the members, `by_warp` one for each warp of the first rank; the
    first member's is the first of both.
    """

    def __init__(
        self, function: Function, cfg: Cfg, ssa: Ssa, members: list[tuple[int, int]], evaluators: list[Evaluator]
    ):
        self.function = function
        self.cfg = cfg
        self.ssa = ssa
        self.members = tuple(members)  # (CTA rank, warp)
        self.evaluator = evaluators[0]
        first_of_rank: dict[int, Evaluator] = {}
        for evaluator in evaluators:
            first_of_rank.setdefault(evaluator.context.rank, evaluator)
        self.by_rank = tuple(first_of_rank.values())
        self.by_warp = tuple(e for e in evaluators if e.context.rank == self.evaluator.context.rank)

    @property
    def warps(self) -> tuple[int, ...]:
        return tuple(sorted({warp for _, warp in self.members}))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for rank, _ in self.members}))

    def shares_cta(self, other: Stream) -> bool:
        """Whether some CTA has warps of both streams."""
        return not set(self.ranks).isdisjoint(other.ranks)

    @property
    def evaluators(self) -> tuple[Evaluator, ...]:
        """One for each warp and each rank that can see different values."""
        return (*self.by_warp, *self.by_rank[1:])

    @property
    def knows_rank(self) -> bool:
        """Whether the CTA's rank in the cluster is a number here."""
        return "cluster_ctarank" in self.evaluator.context.sregs

    @cached_property
    def instructions(self) -> frozenset[int]:
        """Indices of the instructions that these warps can execute."""
        blocks = self.cfg.blocks
        return frozenset(i for b in self.cfg.reachable for i in range(blocks[b].start, blocks[b].end))

    def value(self, instr: int, arg: Arg, evaluator: Evaluator | None = None) -> Value:
        """Value of an operand just before instruction `instr`, for the first member unless said otherwise."""
        evaluator = evaluator or self.evaluator
        ssa = self.ssa.reads[instr].get(arg.name) if isinstance(arg, Reg) else None
        return evaluator.arg(arg) if ssa is None else evaluator.value(ssa)

    def address(self, instr: int, expr: AddressExpr, evaluator: Evaluator | None = None) -> Value:
        total = Value(expr.offset)
        for term in expr.terms:
            total = add(total, self.value(instr, term, evaluator))
        return total

    def truth(self, instr: int) -> bool | None:
        """Whether the guards of an instruction hold: in all lanes, in none, or None for some or unknown."""
        verdicts = []
        for guard in self.function.instrs[instr].guards:
            constant = self.value(instr, Reg(guard.reg)).constant
            verdicts.append(None if constant is None else bool(constant & 1) != guard.negated)
        if any(v is False for v in verdicts):
            return False
        return True if all(verdicts) else None

    def runs(self, event: Event) -> bool:
        """Whether some of these warps can execute the event at all."""
        return self.comes_to(event.instr)

    def comes_to(self, instr: int) -> bool:
        """Whether some of these warps can execute an instruction at all."""
        return instr in self.instructions and self.truth(instr) is not False


def build_streams(function: Function, cfg: Cfg, ssa: Ssa, shape: Shape) -> tuple[Stream, ...]:
    """Streams of a kernel, ordered by their first member. Cost grows with warps x ranks."""
    table = SymbolTable()
    aligns = {o.name: o.align for o in function.objects if o.space != "param"}
    groups: dict[frozenset[Edge], tuple[list[tuple[int, int]], list[Evaluator]]] = {}
    for context in _contexts(function, shape, table):
        evaluator = Evaluator(table, context, aligns)
        edges = _explore(function, cfg, ssa, evaluator)
        members, evaluators = groups.setdefault(edges, ([], []))
        members.append((context.rank, context.warp))
        evaluators.append(evaluator)
    streams = []
    for edges, (members, evaluators) in groups.items():
        own = cfg.restrict(e for e in cfg.edges if e in edges)
        streams.append(Stream(function, own, ssa, members, evaluators))
    return tuple(streams)


def _explore(function: Function, cfg: Cfg, ssa: Ssa, evaluator: Evaluator) -> frozenset[Edge]:
    """Edges the warp can take: start from all, drop those whose predicate is decided, repeat until stable."""
    edges = frozenset(e for e in cfg.edges if e.src in cfg.reachable)
    while True:
        evaluator.feasible = {(e.src, e.dst) for e in edges}
        evaluator.forget()
        kept: set[Edge] = set()
        outgoing: dict[int, list[Edge]] = {}
        for edge in edges:
            outgoing.setdefault(edge.src, []).append(edge)
        seen = {cfg.entry}
        stack = [cfg.entry]
        while stack:
            block = stack.pop()
            for edge in outgoing.get(block, ()):
                if _feasible(function, cfg, ssa, evaluator, edge):
                    kept.add(edge)
                    if edge.dst not in seen:
                        seen.add(edge.dst)
                        stack.append(edge.dst)
        if len(kept) == len(edges):
            return edges
        edges = frozenset(kept)


def _feasible(function: Function, cfg: Cfg, ssa: Ssa, evaluator: Evaluator, edge: Edge) -> bool:
    if edge.guard is None:
        return _selected(function, cfg, ssa, evaluator, edge)
    last = cfg.blocks[edge.src].end - 1
    predicate = evaluator.value(ssa.reads[last][edge.guard.reg])
    if predicate.terms:
        return True
    if isinstance(predicate.lanes, int):
        return bool(predicate.lanes & 1) != edge.guard.negated
    return True


def _selected(function: Function, cfg: Cfg, ssa: Ssa, evaluator: Evaluator, edge: Edge) -> bool:
    """Whether an unguarded edge can be taken: all can, but those of an indexed branch whose index is known."""
    last = cfg.blocks[edge.src].end - 1
    flow = function.instrs[last].flow if cfg.blocks[edge.src].start <= last else NEXT
    if flow.selector is None:
        return True
    index = evaluator.value(ssa.reads[last][flow.selector.name])
    if index.terms or not set(spread(index.lanes)) <= set(flow.keys):
        return True
    chosen = {target for key, target in zip(flow.keys, flow.targets, strict=True) if key in spread(index.lanes)}
    return cfg.blocks[edge.dst].start in chosen


def _contexts(function: Function, shape: Shape, table: SymbolTable) -> list[ThreadContext]:
    ranks = range(1)
    if _asks_rank(function):
        ranks = range(min(_volume(shape.cluster), MAX_RANKS)) if shape.cluster else range(2 if shape.paired else 1)
    return [
        ThreadContext(warp, rank, {**_thread_sregs(shape, warp), **_rank_sregs(shape, rank, table)})
        for rank in ranks
        for warp in _warps(shape)
    ]


def _warps(shape: Shape) -> range:
    if shape.block is None:
        return range(1)
    return range(min((_volume(shape.block) + WARP - 1) // WARP, MAX_WARPS))


def _volume(dims: tuple[int, int, int] | None) -> int:
    return dims[0] * dims[1] * dims[2] if dims else 1


def _asks_rank(function: Function) -> bool:
    """Whether anything can differ between the CTAs of a cluster."""
    assigns = [assign for instr in function.instrs for assign in instr.assigns]
    names = {arg.name for assign in assigns for arg in assign.args if isinstance(arg, SReg)}
    if any(name in _RANK_SREGS or name.startswith("ctaid") for name in names):
        return True
    return any(assign.op == "mapa" for assign in assigns)


def _thread_sregs(shape: Shape, warp: int) -> dict[str, Value]:
    sregs = {"laneid": Value(tuple(range(WARP)))}
    if shape.block is None:
        return sregs
    x, y, _ = shape.block
    threads = [warp * WARP + lane for lane in range(WARP)]
    sregs["tid.x"] = Value(collapse(tuple(t % x for t in threads)))
    sregs["tid.y"] = Value(collapse(tuple(t // x % y for t in threads)))
    sregs["tid.z"] = Value(collapse(tuple(t // (x * y) for t in threads)))
    for axis, extent in zip("xyz", shape.block, strict=True):
        sregs[f"ntid.{axis}"] = Value(extent)
    return sregs


def _rank_sregs(shape: Shape, rank: int, table: SymbolTable) -> dict[str, Value]:
    if shape.cluster is None:
        return _pair_sregs(rank, table) if shape.paired else {}
    cx, cy, cz = shape.cluster
    position = {"x": rank % cx, "y": rank // cx % cy, "z": rank // (cx * cy)}
    sregs = {"cluster_ctarank": Value(rank), "cluster_nctarank": Value(cx * cy * cz)}
    for axis, extent in zip("xyz", shape.cluster, strict=True):
        sregs[f"cluster_ctaid.{axis}"] = Value(position[axis])
        sregs[f"cluster_nctaid.{axis}"] = Value(extent)
        cluster = table.get("sreg", f"clusterid.{axis}", uniform=True)
        sregs[f"ctaid.{axis}"] = Value(position[axis], ((cluster, extent),))
    return sregs


def _pair_sregs(parity: int, table: SymbolTable) -> dict[str, Value]:
    """Rank and x index of one CTA of a pair: known modulo 2 only."""
    rank = table.get("sreg", "cluster_ctarank/2", uniform=True)
    index = table.get("sreg", "ctaid.x/2", uniform=True)
    return {"cluster_ctarank": Value(parity, ((rank, 2),)), "ctaid.x": Value(parity, ((index, 2),))}
