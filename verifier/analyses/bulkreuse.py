"""Whether anybody writes to shared memory that a pending bulk store still reads.

From each bulk store the paths of its thread are followed, with numbers for loop counters, until the store is complete.
What the warp writes on the way is compared with the source of the store; where the thread meets others at a barrier, so
is what they may write until they meet again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from verifier.analyses.bulkgroups import Goal, StoreWalk
from verifier.analyses.conditions import conditions_of
from verifier.analyses.counters import Counters, Numbers
from verifier.analyses.facts import KernelFacts
from verifier.analyses.footprints import bytes_of, extent
from verifier.analyses.threads import Thread
from verifier.analyses.visibility import SIGNALS, WAITS, Receiver, Rendezvous, writes_shared
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.program import AddressExpr
from verifier.model.streams import Stream
from verifier.model.values import Value

_LEAST_BYTES = 16  # of a bulk copy (PTX ISA 9.4, 9.7.10.28.4.1)
_LAST_BYTES = 1 << 18  # the last object may reach to the end of shared memory
_STATE_LIMIT = 1_000
_NESTING = 4  # branches around a wait that are looked at
_BULK_WRITES = frozenset({Kind.BULK_LOAD, Kind.CLC_CANCEL})


_Write = tuple[Event, tuple[int, ...], int]  # (event, addresses, bytes at each); no address: it has no number


class Reuse(msgspec.Struct, frozen=True):
    """`path` leads from the store to `write`, or to a barrier behind which `writer` does it."""

    path: tuple[Event, ...]
    writer: Stream
    write: Event


class Source(msgspec.Struct, frozen=True):
    """Bytes [start, end) that a store reads."""

    start: int
    end: int

    def meets(self, starts: tuple[int, ...], width: int) -> bool:
        return any(start < self.end and start + width > self.start for start in starts)


class Reuses:
    """Answers for the bulk stores of one kernel."""

    def __init__(self, facts: KernelFacts, model: KernelModel) -> None:
        self._model = model
        self._rendezvous = Rendezvous(facts, model)
        self._steers = {id(s): frozenset(self._steering(s)) for s in model.streams}
        self._counters = {id(s): Counters(s, [*self._addresses(s), *self._steers[id(s)]]) for s in model.streams}
        self._starts = sorted(set(self._known_starts()))
        self.unresolved: Event | None = None
        self.possible: tuple[Stream, Event] | None = None
        self._found: tuple[Stream, Event] | None = None
        self._met: dict[tuple[int, int], frozenset[int]] = {}
        self._after: dict[tuple[int, int, int, Numbers], frozenset[_Write]] = {}

    def of(self, thread: Thread, store: Event) -> Reuse | None:
        """A write to the source of `store` while it is under way; None when none is certain.

        Then `possible` is a write that may be one, and `unresolved` an access whose address has no number; both may be
        None. Raises `bulkgroups.PathLimit`.
        """
        stream = thread.flow.stream
        counters = self._counters[id(stream)]
        self.possible = None
        reaching = counters.reaching(store)
        self.unresolved = None if reaching else store
        walk = StoreWalk(thread, store, counters, self._steers[id(stream)])
        for numbers in reaching:
            source = self._source(stream, store, numbers)
            if source is None:
                self.unresolved = store
                return None
            path = walk.find(self._goal(thread, source), numbers)
            if path is not None:
                assert self._found is not None
                return Reuse(path, *self._found)
        if walk.doubted:
            self.possible = self._found
        return None

    def _goal(self, thread: Thread, source: Source) -> Goal:
        return lambda event, numbers: self._reuses(thread, event, numbers, source)

    # what is compared

    def _source(self, stream: Stream, store: Event, numbers: Numbers) -> Source | None:
        if store.source is None:
            return None
        lanes = self._counters[id(stream)].number(stream.address(store.instr, store.source), numbers)
        if lanes is None or len(set(lanes)) > 1:
            return None
        return Source(lanes[0], lanes[0] + self._length(stream, store, lanes[0]))

    def _length(self, stream: Stream, store: Event, start: int) -> int:
        """Bytes a store reads: as its operand says, else up to where the next known object begins."""
        if store.size is not None:
            known = stream.value(store.instr, store.size).constant
            return known if known is not None else _LEAST_BYTES
        return extent(self._starts, start) or _LAST_BYTES

    def _written(self, stream: Stream, event: Event, numbers: Numbers) -> tuple[tuple[int, ...], int] | None:
        """(addresses, bytes at each) that an event writes in shared memory; None when they have no number."""
        assert event.address is not None
        lanes = self._counters[id(stream)].number(stream.address(event.instr, event.address), numbers)
        if lanes is None:
            return None
        size = _LEAST_BYTES if event.kind in _BULK_WRITES else bytes_of(stream, event)
        return None if size is None else (tuple(sorted(set(lanes))), size)

    def _addresses(self, stream: Stream) -> list[Value]:
        return [stream.address(e.instr, expr) for e in self._rendezvous.flow(stream).events for expr in _places(e)]

    def _steering(self, stream: Stream) -> Iterator[Value]:
        """Predicates on which it hangs whether the stream waits for its stores, or meets those that do."""
        cfg, conditions = stream.cfg, conditions_of(stream)
        for event in self._rendezvous.flow(stream).select(lambda e: e.kind in (Kind.BULK_WAIT, Kind.CTA_SYNC)):
            edges = cfg.predecessors[cfg.block_of[event.instr]]
            for _ in range(_NESTING):
                if len(edges) != 1:
                    break
                predicate = conditions.guard(edges[0])
                if predicate is not None:
                    yield predicate
                edges = cfg.predecessors[edges[0].src]

    def _known_starts(self) -> Iterator[int]:
        """Where stages and barriers begin: sources and destinations of bulk copies, for all values of counters."""
        for stream in self._model.streams:
            counters = self._counters[id(stream)]
            for event in self._rendezvous.flow(stream).events:
                expr = event.source if event.kind is Kind.BULK_STORE else event.address
                if event.kind is Kind.BARRIER_INIT:
                    expr = event.barrier
                elif event.kind not in (Kind.BULK_STORE, Kind.BULK_LOAD):
                    continue
                if expr is not None:
                    value = stream.address(event.instr, expr)
                    for numbers in counters.reaching(event):
                        yield from set(counters.number(value, numbers) or ())

    # the thread's own path

    def _reuses(self, thread: Thread, event: Event, numbers: Numbers, source: Source) -> bool:
        stream = thread.flow.stream
        if _writes(event):
            return self._hits(stream, event, numbers, source) and self._note(stream, event)
        if event.kind in SIGNALS and thread.runs(event) is not False:
            return self._others_reuse(stream, event, numbers, source)
        return False

    def _hits(self, stream: Stream, event: Event, numbers: Numbers, source: Source) -> bool:
        written = self._written(stream, event, numbers)
        if written is None:
            self.unresolved = event
            return False
        return source.meets(*written)

    def _note(self, writer: Stream, write: Event) -> bool:
        self._found = (writer, write)
        return True

    # what others do between two barriers

    def _others_reuse(self, stream: Stream, signal: Event, numbers: Numbers, source: Source) -> bool:
        for receiver in self._rendezvous.candidates(stream, signal):
            if receiver.stream is stream and len(stream.members) == 1:
                continue  # nobody but the warp itself, whose own path is followed
            if receiver.wait is not signal and self._is_over(stream, signal, receiver):
                continue
            starts = [numbers]  # where they meet at one instruction, counters have the same numbers
            if receiver.wait is not signal:
                starts = self._counters[id(receiver.stream)].reaching(receiver.wait)
            after = [self._writes_after(stream, receiver, known) for known in starts]
            self.unresolved = next((e for writes in after for e, at, _ in writes if not at), self.unresolved)
            each = [frozenset(e for e, at, width in writes if source.meets(at, width)) for writes in after]
            some = frozenset[Event]().union(*each)
            always = frozenset.intersection(*each) if each else frozenset()
            if always and receiver.certain:
                return self._note(receiver.stream, min(always, key=lambda e: e.instr))
            if some:
                self.possible = (receiver.stream, min(some, key=lambda e: e.instr))
        return False

    def _is_over(self, stream: Stream, signal: Event, receiver: Receiver) -> bool:
        """Whether the receiver has left its wait behind for good when the signal is given, as they have met since."""
        mine, theirs = self._rendezvous.flow(stream), self._rendezvous.flow(receiver.stream)
        return any(
            mine.always_before(gate, signal)
            and receiver.stream.runs(gate)
            and theirs.find_path(gate, lambda e: e is receiver.wait, lambda e: False) is None
            for gate in mine.select(lambda e: e.kind is Kind.CTA_SYNC and e is not signal and e is not receiver.wait)
        )

    def _gates(self, sender: Stream, stream: Stream) -> frozenset[int]:
        """Waits of `stream` that `sender` takes part in: they meet again there."""
        key = (id(sender), id(stream))
        if key not in self._met:
            events = self._rendezvous.flow(sender).events
            signals = frozenset(e.instr for e in events if e.kind in SIGNALS)
            waits = [e for e in self._rendezvous.flow(stream).events if e.kind in WAITS]
            found = (w.instr for w in waits if self._rendezvous.signalled_by(signals, sender, stream, w))
            self._met[key] = frozenset(found)
        return self._met[key]

    def _writes_after(self, sender: Stream, receiver: Receiver, numbers: Numbers) -> frozenset[_Write]:
        """What a receiver may write before it meets the sender again."""
        key = (id(sender), id(receiver.stream), receiver.wait.instr, numbers)
        found = self._after.get(key)
        if found is None:
            gates = self._gates(sender, receiver.stream)
            found = self._after[key] = frozenset(self._walk_writes(receiver, numbers, gates))
        return found

    def _walk_writes(self, receiver: Receiver, numbers: Numbers, gates: frozenset[int]) -> Iterator[_Write]:
        flow = self._rendezvous.flow(receiver.stream)
        counters = self._counters[id(receiver.stream)]
        conditions, steering = conditions_of(receiver.stream), self._steers[id(receiver.stream)]
        first = (flow.cfg.block_of[receiver.wait.instr], numbers, False)
        queue = deque([(*first, receiver.wait.instr)])
        seen = {first}
        while queue and len(seen) < _STATE_LIMIT:
            block, known, doubt, after = queue.popleft()
            for event in flow.in_block.get(block, ()):
                if event.instr <= after:
                    continue
                if event.instr in gates:
                    break
                if _writes(event):
                    yield event, *((None if doubt else self._written(receiver.stream, event, known)) or ((), 0))
            else:
                for edge in flow.cfg.successors[block]:
                    asks = conditions.guard(edge)
                    skips = asks is not None and asks in steering and counters.lacks(asks, known)
                    state = (edge.dst, counters.cross(edge, known), doubt or skips)
                    if counters.takes(edge, known) is not False and state not in seen:
                        seen.add(state)
                        queue.append((*state, -1))


def _writes(event: Event) -> bool:
    """Whether the CTA's own shared memory is written: by threads, or by a copy that they ask for."""
    return writes_shared(event) or event.kind in _BULK_WRITES


def _places(event: Event) -> list[AddressExpr]:
    expr = event.source if event.kind is Kind.BULK_STORE else event.address if _writes(event) else None
    return [] if expr is None else [expr]
