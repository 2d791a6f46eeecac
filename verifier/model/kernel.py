"""One kernel in one instruction set: function, control flow, values, streams, roles, events and barriers together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from verifier.launch import LaunchFacts
from verifier.model.barriers import Barriers
from verifier.model.cfg import build_cfg
from verifier.model.events import Event, Kind, in_shared
from verifier.model.places import Place, place_of
from verifier.model.program import AddressExpr, FlowKind, Function, Instr
from verifier.model.roles import Role, name_roles
from verifier.model.spaces import resolve_spaces
from verifier.model.ssa import Ssa
from verifier.model.streams import Shape, Stream, build_streams
from verifier.model.values import Lanes, Symbol, Value


class KernelModel:
    """Everything rules may ask about a kernel's code. Parts are computed on first use and kept."""

    def __init__(self, function: Function, lift: Callable[[Function], tuple[Event, ...]], launch: LaunchFacts) -> None:
        self.function = function
        self.launch = launch
        self.cfg = build_cfg(function)
        self.ssa = Ssa(function, self.cfg)
        self.events = resolve_spaces(function, self.ssa, lift(function))
        self.shape = _shape(function, launch, any(e.has("cta_group::2") for e in self.events))
        self.streams = build_streams(function, self.cfg, self.ssa, self.shape)
        self._places: dict[tuple[int, int, AddressExpr | None], Place] = {}
        self._event_at = {event.instr: event for event in self.events}
        self._name_tmem_base()

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        return name_roles(self.streams, self.events)

    @cached_property
    def barriers(self) -> Barriers:
        return Barriers(self.streams, self.events)

    @cached_property
    def _role_names(self) -> dict[int, str]:
        return {id(stream): role.name for role in self.roles for stream in role.streams}

    def role_of(self, stream: Stream) -> str:
        return self._role_names.get(id(stream), "all")

    def event_at(self, instr: int) -> Event | None:
        return self._event_at.get(instr)

    def place(self, stream: Stream, event: Event, expr: AddressExpr | None) -> Place:
        """Where an operand of `event` points for the stream's warps (kept: rules ask for the same ones)."""
        key = (id(stream), event.instr, expr)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = place_of(stream, event.instr, expr)
        return place

    @cached_property
    def in_cluster(self) -> bool:
        """Whether a peer CTA may exist: the cluster is larger than one, or not known and the code asks for it."""
        if self.shape.cluster is not None:
            x, y, z = self.shape.cluster
            return x * y * z > 1
        kinds = {e.kind for e in self.events}
        return bool(kinds & {Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT}) or any(
            e.has("cta_group::2") or e.has("multicast::cluster") for e in self.events
        )

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """What had to be assumed about the launch, for the report."""
        notes = []
        if self.shape.block is None:
            notes.append("block size not known: all warps are taken to run the same stream (--block)")
        elif self.shape.block_is_bound:
            notes.append(f"block size taken from .maxntid, an upper bound: {self.shape.block}")
        if self.shape.cluster is None and self.in_cluster:
            pairs = ", CTA pairs along x" if self.shape.paired else ""
            notes.append(f"cluster size not known: any size is assumed{pairs} (--cluster)")
        return tuple(notes)

    @cached_property
    def unfollowed(self) -> Instr | None:
        """A call of code that is not seen and may synchronize, or a branch into the unknown, that some warp comes to:
        with it nothing about the kernel can be proved or denied."""
        instrs = self.function.instrs
        blind = [i for i in instrs if i.flow.callee or (i.flow.kind is FlowKind.INDEXED and not i.flow.targets)]
        return next((i for i in blind if any(stream.comes_to(i.index) for stream in self.streams)), None)

    def _name_tmem_base(self) -> None:
        """Forward the TMEM base through shared memory: a load from the slot that alloc wrote is the base itself."""
        slots = {
            (place.base, place.offset)
            for event in self.events
            if event.kind is Kind.TMEM_ALLOC
            for stream in self.streams
            if stream.runs(event)
            and (place := place_of(stream, event.instr, event.address)).resolved
            and not place.stage
        }
        if not slots:
            return
        loads = [e for e in self.events if e.kind is Kind.LOAD and in_shared(e) and e.width == 4]
        for stream in self.streams:
            found = self._slot_loads(stream, loads, slots)
            for evaluator in stream.evaluators:
                evaluator.known.update(found)
                evaluator.forget()

    def _slot_loads(
        self, stream: Stream, loads: list[Event], slots: set[tuple[Symbol | None, Lanes]]
    ) -> dict[int, Value]:
        base = stream.evaluator.table.value("tmem", uniform=True, align=32)
        found: dict[int, Value] = {}
        for event in loads:
            if not stream.runs(event):
                continue
            place = place_of(stream, event.instr, event.address)
            if (place.base, place.offset) in slots and not place.stage:
                written = self.ssa.writes[event.instr]
                found.update({written[reg].id: base for reg in event.registers if reg in written})
        return found


def _shape(function: Function, launch: LaunchFacts, paired: bool) -> Shape:
    block = launch.block or function.block
    bound = block is None and function.max_block is not None
    return Shape(
        block=block or function.max_block,
        cluster=launch.cluster or function.cluster,
        block_is_bound=bound,
        paired=paired,
    )
