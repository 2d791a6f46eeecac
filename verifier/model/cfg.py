"""Control flow of one function: blocks, edges with the guard under which they are taken, dominators, loops.

A `Cfg` is also what one warp's stream is: the same blocks with the infeasible edges left out. Graph algorithms are
rustworkx's. Block indices are positions in `blocks`; the virtual exit block is the last one and is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec
import rustworkx

from verifier.model.program import FlowKind, Function, Guard, Instr


class Block(msgspec.Struct, frozen=True):
    """Instructions [start, end) of the function."""

    index: int
    start: int
    end: int


class Edge(msgspec.Struct, frozen=True):
    """Control may go from block `src` to `dst` for lanes in which `guard` holds (all lanes when None)."""

    src: int
    dst: int
    guard: Guard | None = None


class Loop(msgspec.Struct, frozen=True):
    """A natural loop: its header and all its blocks. Irreducible cycles appear with the block entered first."""

    header: int
    blocks: frozenset[int]


class Cfg:
    """Blocks and the edges among them. `entry` is 0; `exit` is the virtual exit block."""

    def __init__(self, blocks: Sequence[Block], edges: Iterable[Edge]) -> None:
        self.blocks = tuple(blocks)
        self.edges = tuple(edges)
        self.entry = 0
        self.exit = len(self.blocks) - 1
        self.successors: list[list[Edge]] = [[] for _ in self.blocks]
        self.predecessors: list[list[Edge]] = [[] for _ in self.blocks]
        for edge in self.edges:
            self.successors[edge.src].append(edge)
            self.predecessors[edge.dst].append(edge)

    def restrict(self, edges: Iterable[Edge]) -> Cfg:
        """The same blocks with only these edges."""
        return Cfg(self.blocks, edges)

    @cached_property
    def block_of(self) -> list[int]:
        """Block index of each instruction index."""
        result = [0] * (self.blocks[-1].end if self.blocks else 0)
        for block in self.blocks:
            for index in range(block.start, block.end):
                result[index] = block.index
        return result

    @cached_property
    def reachable(self) -> frozenset[int]:
        seen = {self.entry}
        stack = [self.entry]
        while stack:
            for edge in self.successors[stack.pop()]:
                if edge.dst not in seen:
                    seen.add(edge.dst)
                    stack.append(edge.dst)
        return frozenset(seen)

    @cached_property
    def graph(self) -> rustworkx.PyDiGraph[int, None]:
        graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
        graph.add_nodes_from(range(len(self.blocks)))
        graph.add_edges_from_no_data([(e.src, e.dst) for e in self.edges if e.src in self.reachable])
        return graph

    @cached_property
    def dominator(self) -> dict[int, int]:
        """Immediate dominator of each reachable block; the entry is its own."""
        return dict(rustworkx.immediate_dominators(self.graph, self.entry))

    @cached_property
    def post_dominator(self) -> dict[int, int]:
        """Immediate post-dominator of each block from which the exit can be reached; the exit is its own."""
        reverse = self.graph.copy()
        reverse.reverse()
        return dict(rustworkx.immediate_dominators(reverse, self.exit))

    def dominates(self, above: int, below: int) -> bool:
        if above == below:
            return True
        enter, leave = self._span.get(above, (0, -1))
        return enter <= self._span.get(below, (-1, -1))[0] <= leave

    @cached_property
    def _span(self) -> dict[int, tuple[int, int]]:
        """(own number, largest number below) of each block in a walk down the dominator tree from 0 on."""
        below: dict[int, list[int]] = {}
        for block, parent in self.dominator.items():
            if block != parent:
                below.setdefault(parent, []).append(block)
        order: list[int] = []
        stack = [self.entry]
        while stack:
            order.append(stack.pop())
            stack += below.get(order[-1], ())
        size = dict.fromkeys(order, 1)
        for block in reversed(order[1:]):
            size[self.dominator[block]] += size[block]
        return {block: (number, number + size[block] - 1) for number, block in enumerate(order)}

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Natural loops, one per header, outermost first; cycles without a dominating header follow."""
        bodies: dict[int, set[int]] = {}
        for edge in self.edges:
            if edge.src in self.reachable and self.dominates(edge.dst, edge.src):
                body = bodies.setdefault(edge.dst, {edge.dst})
                self._grow(body, edge.src)
        covered = set().union(*bodies.values()) if bodies else set()
        for component in rustworkx.strongly_connected_components(self.graph):
            members = set(component)
            if len(members) > 1 and not members <= covered:
                bodies.setdefault(min(members), set()).update(members)
        found = [Loop(header, frozenset(body)) for header, body in bodies.items()]
        return tuple(sorted(found, key=lambda loop: (-len(loop.blocks), loop.header)))

    def _grow(self, body: set[int], tail: int) -> None:
        stack = [tail]
        while stack:
            block = stack.pop()
            if block not in body:
                body.add(block)
                stack += [e.src for e in self.predecessors[block] if e.src in self.reachable]

    def loops_of(self, block: int) -> tuple[Loop, ...]:
        """Loops that contain `block`, outermost first."""
        return tuple(loop for loop in self.loops if block in loop.blocks)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Reachable blocks in reverse post-order: a block before its successors, back edges apart."""
        seen: set[int] = {self.entry}
        result: list[int] = []
        stack: list[tuple[int, int]] = [(self.entry, 0)]
        while stack:
            block, position = stack.pop()
            targets = self.successors[block]
            if position < len(targets):
                stack.append((block, position + 1))
                target = targets[position].dst
                if target not in seen:
                    seen.add(target)
                    stack.append((target, 0))
            else:
                result.append(block)
        return tuple(reversed(result))


def build_cfg(function: Function) -> Cfg:
    """Blocks end at branches and exits and begin at branch targets. Falling off the end is an exit."""
    instrs = function.instrs
    starts = sorted(_leaders(instrs) | {0})
    ends = [*starts[1:], len(instrs)]
    blocks = [Block(i, start, end) for i, (start, end) in enumerate(zip(starts, ends, strict=True))]
    blocks.append(Block(len(blocks), len(instrs), len(instrs)))
    at = {block.start: block.index for block in blocks[:-1]}
    at[len(instrs)] = len(blocks) - 1
    edges: dict[tuple[int, int, Guard | None], Edge] = {}
    for block in blocks[:-1]:
        last = instrs[block.end - 1] if block.end > block.start else None
        for edge in _edges(block, last, at, len(blocks) - 1):
            edges[(edge.src, edge.dst, edge.guard)] = edge
    return Cfg(blocks, edges.values())


def _leaders(instrs: Sequence[Instr]) -> set[int]:
    leaders: set[int] = set()
    for instr in instrs:
        if instr.flow.kind in (FlowKind.BRANCH, FlowKind.INDEXED, FlowKind.EXIT, FlowKind.TRAP):
            leaders.update(target for target in instr.flow.targets if target < len(instrs))
            if instr.index + 1 < len(instrs):
                leaders.add(instr.index + 1)
    return leaders


def _edges(block: Block, last: Instr | None, at: dict[int, int], exit_block: int) -> list[Edge]:
    following = at[block.end]
    if last is None or last.flow.kind in (FlowKind.NEXT, FlowKind.CALL):
        return [Edge(block.index, following)]
    guard = last.guards[0] if last.guards else None
    if last.flow.kind in (FlowKind.EXIT, FlowKind.TRAP):
        edges = [Edge(block.index, exit_block, guard)]
    else:
        edges = [Edge(block.index, at[target], guard) for target in last.flow.targets]
        if not edges:  # an indirect branch whose targets are not given could go anywhere it is not seen
            edges = [Edge(block.index, exit_block, guard)]
    if guard is not None:
        # With several guards the branch is not taken when any one fails: only one guard can be negated exactly.
        opposite = Guard(guard.reg, not guard.negated) if len(last.guards) == 1 else None
        edges.append(Edge(block.index, following, opposite))
    return edges
