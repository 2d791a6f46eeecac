"""A warp on the machine: lanes that run together, and what waits for them to come back.

A warp starts as one fiber. Where lanes part and both sides have something to do before they meet again, each side
becomes a fiber of its own, since hardware lets both make progress; where one side has nothing to do, it just waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.analyses.protocol.clocks import Clock, join
from verifier.analyses.protocol.values import Lanes, LaneValue

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine


# Undecided branches that an access is inside of: (number of the decision, block that branches, way taken).
Path = tuple[tuple[int, int, int], ...]


class Warp:
    """One warp of one CTA: its clock, and the asynchronous work it has started and not seen complete."""

    __slots__ = (
        "bulk",
        "clock",
        "cluster_generation",
        "component",
        "copies",
        "cta",
        "index",
        "issued_loads",
        "learnt",
        "load_component",
        "loads",
        "name",
        "path",
        "quarter",
        "released",
        "stores",
        "wgmma",
        "writes",
    )

    def __init__(self, cta: int, index: int, component: int) -> None:
        self.cta = cta
        self.index = index
        self.name = (cta, index)
        self.component = component  # counts the warp's own steps
        self.writes = -1  # counts them, too, but only for those who know what it wrote
        self.quarter = index % 4  # the lanes of tensor memory it may touch
        self.clock: Clock = {component: 0}
        self.learnt = 0  # counts changes of the clock other than the warp's own steps
        self.load_component = -1  # counts TMEM loads that are complete, with all before them
        self.loads: dict[int, int] = {}  # instruction -> number of its latest load that may be in flight
        self.issued_loads = 0
        self.stores: dict[int, int] = {}  # component -> TMEM stores issued
        self.bulk = Groups()  # bulk stores
        self.copies = Groups()  # cp.async
        self.wgmma = Groups()  # wgmma.mma_async
        self.cluster_generation = -1  # the cluster barrier's generation it has arrived in
        self.released: list[Release] = []
        self.path: Path = ()  # that of the fiber that runs

    def open_groups(self) -> tuple[list[int], ...]:
        """Groups of each kind that may be pending."""
        return tuple(groups.closed.copy() for groups in (self.bulk, self.copies, self.wgmma))

    def set_groups(self, pending: tuple[list[int], ...]) -> None:
        for groups, closed in zip((self.bulk, self.copies, self.wgmma), pending, strict=True):
            groups.closed = closed

    def tick(self) -> int:
        """Count one step of the warp."""
        count = self.clock[self.component] + 1
        self.clock[self.component] = self.clock[self.writes] = count
        return count

    def start_load(self, instr: int) -> int:
        self.issued_loads += 1
        self.loads[instr] = self.issued_loads
        return self.issued_loads

    def start_store(self, component: int) -> int:
        count = self.stores[component] = self.stores.get(component, 0) + 1
        return count

    def learn(self, clock: Clock) -> None:
        join(self.clock, clock)
        self.learnt += 1

    def wait_groups(self, groups: Groups, pending: int) -> None:
        """All but the latest `pending` groups are done."""
        self.learnt += 1
        groups.wait(pending, self.clock)

    def wait_copies(self) -> None:
        """Every cp.async is done, in a group or not."""
        self.learnt += 1
        self.copies.wait_all(self.clock)

    def finish_loads(self) -> None:
        self.learnt += 1
        self.loads.clear()
        self.clock[self.load_component] = self.issued_loads

    def finish_load(self, instr: int) -> None:
        """The result of a load is read: that load is complete (PTX ISA 9.4, 9.7.18.6.4.5)."""
        if self.loads.pop(instr, None) is not None:
            self.learnt += 1
            self.clock[self.load_component] = min(self.loads.values(), default=self.issued_loads + 1) - 1

    def finish_stores(self) -> None:
        self.learnt += 1
        self.clock.update(self.stores)


class Groups:
    """Asynchronous copies of one kind that a warp issued, and where it closed a group of them."""

    __slots__ = ("closed", "component", "issued")

    def __init__(self) -> None:
        self.component = -1
        self.issued = 0
        self.closed: list[int] = []  # copies issued at each commit of a group that is not yet waited for

    def issue(self) -> int:
        self.issued += 1
        return self.issued

    def commit(self) -> None:
        self.closed.append(self.issued)

    def wait(self, pending: int, clock: Clock) -> None:
        """Tell `clock` that all but the latest `pending` groups are done."""
        done = len(self.closed) - pending
        if done > 0:
            clock[self.component] = self.closed[done - 1]
            del self.closed[:done]

    def wait_all(self, clock: Clock) -> None:
        """Tell `clock` that every copy is done, in a group or not."""
        self.closed.clear()
        clock[self.component] = self.issued


class Release:
    """A signal that a warp gave when it counted `epoch`: into which phase of the barrier of `component`."""

    __slots__ = ("component", "epoch", "instr", "phase")

    def __init__(self, epoch: int, instr: int, component: int, phase: int) -> None:
        self.epoch = epoch
        self.instr = instr
        self.component = component
        self.phase = phase


class Frame:
    """Lanes that wait at block `join`, with the values that differ there.

    With `retry` set they have not come yet: the other outcome of an unknown branch is still to be run from that block
    with `regs` and `groups`. `outer` is the path that led to the branch.
    """

    __slots__ = ("branch", "groups", "join", "lanes", "outer", "regs", "retry", "values")

    def __init__(self, join: int, lanes: Lanes, values: dict[int, LaneValue]) -> None:
        self.join = join
        self.lanes = lanes
        self.values = values
        self.branch: int | None = None  # the block whose branch could not be decided
        self.retry: int | None = None
        self.regs: list[LaneValue] = []
        self.groups: tuple[list[int], ...] = ()
        self.outer: Path = ()


class Fiber:
    """Lanes of a warp that run together: registers, position, and frames of lanes to meet again."""

    __slots__ = (
        "arrived",
        "block",
        "children",
        "index",
        "lanes",
        "machine",
        "parent",
        "path",
        "regs",
        "stack",
        "until",
        "waits",
        "warp",
    )

    def __init__(self, machine: Machine, warp: Warp, regs: list[LaneValue], lanes: Lanes) -> None:
        self.machine = machine
        self.warp = warp
        self.regs = regs
        self.lanes = lanes
        self.block = 0
        self.index = 0
        self.stack: list[Frame] = []
        self.path: Path = ()  # undecided branches that it is inside of
        self.parent: Fiber | None = None
        self.until = -1  # block where the parent takes over again
        self.children = 0  # children still running
        self.arrived: list[tuple[Lanes, list[LaneValue]]] = []  # lanes of children that are back
        self.waits: object = None  # what it is blocked on

    def fork(self, join: int, sides: tuple[tuple[Lanes, int], ...]) -> None:
        """Let each side go on as a child until `join`."""
        self.block = join
        for lanes, block in sides:
            child = Fiber(self.machine, self.warp, self.regs.copy(), lanes)
            child.block = block
            child.parent = self
            child.until = join
            child.path = self.path
            self.children += 1
            self.machine.ready.append(child)
