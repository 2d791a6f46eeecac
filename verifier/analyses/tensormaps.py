"""Tensor maps of a kernel: where each lives, and what may change it while the kernel runs."""

from __future__ import annotations

import enum

from verifier.analyses.acquired import AcquireWalk, map_address
from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.rewriting import atoms
from verifier.analyses.visibility import SIGNALS, WAITS, Rendezvous, acquires_map, names_map
from verifier.isa.proxies import MAP_BYTES
from verifier.isa.scopes import includes
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.ssa import SsaValue
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value, add

_MERGED = frozenset({"phi", "def", "iter"})
_SEARCH_LIMIT = 200
POINTER_BYTES = 8


class Home(enum.Enum):
    """Where a tensor map lives. What the host passes as a parameter is written before the launch, for all proxies."""

    PARAMETER = "a kernel parameter"
    CONSTANT = "constant memory"
    MEMORY = "global memory"
    UNKNOWN = "not known"


def home(model: KernelModel, stream: Stream, address: Value) -> Home:
    """Told by the objects and pointers that the address is made of, also through merges and selects."""
    homes = {found for symbol in atoms(address) if (found := _home_of(model, stream, symbol)) is not None}
    return homes.pop() if len(homes) == 1 else Home.UNKNOWN


def _home_of(model: KernelModel, stream: Stream, symbol: Symbol) -> Home | None:
    """None for a symbol that is no pointer: an index, a coordinate."""
    if symbol.kind == "sym":
        spaces = {"param": Home.PARAMETER, "const": Home.CONSTANT, "global": Home.MEMORY}
        return spaces.get(str(symbol.key[1]), Home.UNKNOWN)
    if symbol.kind == "ld_param":
        return Home.MEMORY if symbol.key[1] == 64 else None
    if symbol.kind in _MERGED and isinstance(symbol.key[1], int):
        return _merged_home(model, stream, stream.ssa.values[symbol.key[1]])
    return None


def _merged_home(model: KernelModel, stream: Stream, root: SsaValue) -> Home | None:
    """Home of the pointers that a merge or a loaded 64-bit word brings in; narrower words are indices."""
    homes: set[Home] = set()
    work, seen = [root], {root.id}
    while work and len(seen) < _SEARCH_LIMIT:
        value = work.pop()
        if value.assign is not None and _loads_pointer(model, value):
            homes.add(Home.MEMORY)
        for incoming in (value.incoming or {}).values():
            found = stream.evaluator.value(incoming)
            for symbol in atoms(found):
                if symbol.kind in _MERGED and isinstance(symbol.key[1], int):
                    inner = stream.ssa.values[symbol.key[1]]
                    if inner.id not in seen:
                        seen.add(inner.id)
                        work.append(inner)
                elif (of := _home_of(model, stream, symbol)) is not None:
                    homes.add(of)
    if not homes:
        return None
    return homes.pop() if len(homes) == 1 else Home.UNKNOWN


def _loads_pointer(model: KernelModel, value: SsaValue) -> bool:
    event = model.event_at(value.instr)
    return event is not None and event.kind is Kind.LOAD and event.width == POINTER_BYTES * len(event.registers)


class Acquires:
    """What each stream has acquired at each use of a map."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._model = model
        self._rendezvous = Rendezvous(facts, model)
        self._flows = {id(s): facts.flow(model, s) for s in model.streams}
        self._walks: dict[int, AcquireWalk] = {}
        if not any(self._changes_map(flow, e) for flow in self._flows.values() for e in flow.events):
            self._flows = {key: _without_narrow(flow) for key, flow in self._flows.items()}

    def walk(self, stream: Stream) -> AcquireWalk:
        """The finished walk over a stream. Raises `acquired.PathLimit` or `rewriting.TooDeep`."""
        found = self._first(stream)
        if not found.bare and not found.odd:
            return found
        adopted = self._adopted(stream)
        if not adopted:
            return found
        again = AcquireWalk(self._flows[id(stream)], self._changes(stream), adopted)
        again.run()
        return again

    def _first(self, stream: Stream) -> AcquireWalk:
        found = self._walks.get(id(stream))
        if found is None:
            found = AcquireWalk(self._flows[id(stream)], self._changes(stream), {})
            found.run()  # kept only when finished: half a walk would count as one that found nothing
            self._walks[id(stream)] = found
        return found

    def _adopted(self, stream: Stream) -> dict[int, frozenset[Value]]:
        """Barrier -> maps with fixed addresses that another warp of the CTA has acquired when it arrives there."""
        found: dict[int, frozenset[Value]] = {}
        for other in self._model.streams:
            if other is stream or not any(e.kind is Kind.PROXY_FENCE for e in self._flows[id(other)].events):
                continue
            for instr, acquired in self._first(other).at_sync.items():
                fixed = frozenset(v for v in acquired if _is_fixed(v))
                if fixed and instr in stream.instructions:
                    found[instr] = found.get(instr, frozenset()) | fixed
        return found

    def _changes(self, stream: Stream) -> dict[int, tuple[Value, ...] | None]:
        """Events of a stream after which maps may differ from what it acquired before."""
        flow = self._flows[id(stream)]
        found: dict[int, tuple[Value, ...] | None] = {}
        for event in flow.events:
            if event.kind is Kind.GRID_WAIT:
                found[event.instr] = None  # only now is the work of earlier kernels complete
            elif self._changes_map(flow, event):
                found[event.instr] = (map_address(flow, event),)
        for other in self._model.streams:
            if other is not stream:
                for wait in self._news(other, stream):
                    found[wait.instr] = None
        return found

    def _changes_map(self, flow: EventFlow, event: Event) -> bool:
        """A map in global memory is replaced or copied over, or an ordinary store hits one that is used."""
        if event.kind in (Kind.MAP_WRITE, Kind.MAP_COPY):
            return not in_shared(event)
        if event.kind is not Kind.STORE or event.space not in ("global", None) or event.address is None:
            return False
        to = map_address(flow, event)
        for use in flow.events:
            if names_map(use):
                distance = add(to, map_address(flow, use), -1).constant
                if distance is not None and 0 <= distance < MAP_BYTES:
                    return True
        return False

    def _news(self, sender: Stream, stream: Stream) -> list[Event]:
        """Waits of `stream` through which it may learn of a map that `sender` has changed."""
        flow = self._flows[id(sender)]
        writes = [e for e in flow.events if self._changes_map(flow, e)]
        if not writes:
            return []
        after = flow.may_reach(writes, lambda e: False)
        signals = frozenset(e.instr for e in flow.events if e.kind in SIGNALS and after.get(e.instr))
        waits = [e for e in self._flows[id(stream)].events if e.kind in WAITS]
        return [w for w in waits if self._rendezvous.signalled_by(signals, sender, stream, w)]


def _without_narrow(flow: EventFlow) -> EventFlow:
    """The events less those acquires that do not reach an earlier kernel, which wrote the maps."""
    return EventFlow(flow.stream, [e for e in flow.events if not acquires_map(e) or includes(e.scope, "gpu")])


def _is_fixed(value: Value) -> bool:
    """Whether all warps of a CTA compute the same number at any time."""
    return all(s.kind in ("sym", "ld_param") or (s.kind == "sreg" and s.uniform) for s in atoms(value))
