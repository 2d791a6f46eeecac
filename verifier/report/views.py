"""Views of a kernel as the verifier sees it: roles, control flow, barriers, the skeleton of synchronization.

Each view is a pure function from a model to lines of text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import AddressExpr, Const, Guard
from verifier.model.roles import Role
from verifier.model.streams import Stream
from verifier.report.text import place

View = Callable[[KernelModel], Iterator[str]]

# What everybody has and says nothing about what a warp is for.
_COMMONPLACE = frozenset({Kind.LOAD, Kind.STORE, Kind.EXIT, Kind.COLLECTIVE, Kind.WARP_SYNC})


def streams(model: KernelModel) -> Iterator[str]:
    """Each role: its warps, how much code they run, and what they do."""
    roles = model.roles
    name_width = max((len(role.name) for role in roles), default=0)
    warp_width = max((len(warps_text(role.warps)) for role in roles), default=0)
    for role in roles:
        code = frozenset().union(*(stream.instructions for stream in role.streams))
        loops = {loop.header for stream in role.streams for loop in stream.cfg.loops}
        own = [event for event in _events(model, role) if event.kind not in _COMMONPLACE]
        counts = Counter(event.kind.value for event in own)
        does = ", ".join(f"{number} {kind}" for kind, number in counts.most_common())
        yield (
            f"{role.name:{name_width}}  {warps_text(role.warps):{warp_width}}  {len(code)} instructions, "
            f"{_many(len(loops), 'loop')}{_variants(role)}"
        )
        yield f"{'':{name_width}}  {does or 'nothing that synchronizes'}"


def cfg(model: KernelModel) -> Iterator[str]:
    """The blocks of each role: instructions, lines, depth of loops, successors with their guards."""
    instrs = model.function.instrs
    for role in model.roles:
        for stream in role.streams:
            graph = stream.cfg
            yield f"{role.name}, {warps_text(stream.warps)}{_ranks(stream)}"
            for index in sorted(graph.reachable):
                block = graph.blocks[index]
                if index == graph.exit:
                    continue
                depth = len(graph.loops_of(index))
                header = " loop header" if any(loop.header == index for loop in graph.loops) else ""
                first, last = instrs[block.start].location, instrs[block.end - 1].location
                targets = ", ".join(
                    ("exit" if edge.dst == graph.exit else f"B{edge.dst}") + _guard_text(edge.guard)
                    for edge in graph.successors[index]
                )
                yield f"  B{index:<4} {place(first)} .. {place(last)}  depth {depth}{header} -> {targets or 'nowhere'}"


def skeleton(model: KernelModel) -> Iterator[str]:
    """What synchronizes in each role, in the order of the code, indented by the depth of loops."""
    for role in model.roles:
        for stream in role.streams:
            yield f"{role.name}, {warps_text(stream.warps)}{_ranks(stream)}"
            for event in model.events:
                if event.kind in _COMMONPLACE or not stream.runs(event):
                    continue
                depth = len(stream.cfg.loops_of(stream.cfg.block_of[event.instr]))
                operand = _operand(model, stream, event)
                some = "" if stream.truth(event.instr) is True else " (some lanes)"
                yield f"  {'  ' * depth}{event.kind.value}{operand}{some}  [{place(event.location)}]  {event.opcode}"


VIEWS: dict[str, View] = {"streams": streams, "cfg": cfg, "skeleton": skeleton}


def heading(model: KernelModel) -> str:
    """Instruction set, size, and the launch shape that the streams were computed for."""
    shape = model.shape
    block = "block unknown" if shape.block is None else f"block {_dims(shape.block)}"
    if shape.block_is_bound:
        block += " at most"
    cluster = "cluster unknown" if shape.cluster is None else f"cluster {_dims(shape.cluster)}"
    return f"{model.function.isa.upper()}: {len(model.function.instrs)} instructions, {block}, {cluster}"


def agreement(ptx: KernelModel, sass: KernelModel) -> str:
    """Whether PTX and SASS give the same warps the same roles."""
    left = [(role.name, role.warps) for role in ptx.roles]
    right = [(role.name, role.warps) for role in sass.roles]
    if left == right:
        return "PTX and SASS agree on the roles"
    return "PTX and SASS DISAGREE on the roles"


def warps_text(warps: Sequence[int]) -> str:
    """`warps 0-3, 6`."""
    parts: list[str] = []
    start = previous = None
    for warp in [*warps, None]:
        if previous is not None and warp != previous + 1:
            parts.append(f"{start}" if start == previous else f"{start}-{previous}")
            start = warp
        elif start is None:
            start = warp
        previous = warp
    return f"warp{'' if len(warps) == 1 else 's'} {', '.join(parts)}"


def _events(model: KernelModel, role: Role) -> list[Event]:
    return [event for event in model.events if any(stream.runs(event) for stream in role.streams)]


def _operand(model: KernelModel, stream: Stream, event: Event) -> str:
    expr: AddressExpr | None = event.barrier or event.address
    if expr is None:
        return f" {event.number.value}" if isinstance(event.number, Const) else ""
    named = model.barriers.of(stream, event) if event.barrier is not None else []
    if named:
        return f" {' or '.join(use.barrier.name for use in named)}{' in a peer CTA' if named[0].remote else ''}"
    return f" {model.place(stream, event, expr)}"


def _guard_text(guard: Guard | None) -> str:
    return f" if {'not ' if guard.negated else ''}{guard.reg}" if guard else ""


def _variants(role: Role) -> str:
    return f", {len(role.streams)} variants" if len(role.streams) > 1 else ""


def _ranks(stream: Stream) -> str:
    return f", CTA rank {', '.join(map(str, stream.ranks))}" if len(stream.ranks) > 1 or stream.ranks[0] else ""


def _dims(dims: tuple[int, int, int]) -> str:
    return "x".join(map(str, dims))


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
