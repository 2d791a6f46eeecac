"""The abstract machine: all warps of one cluster, run to completion under one script of inputs."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from verifier.analyses.protocol import control
from verifier.analyses.protocol.barrier import ThreadBarrier
from verifier.analyses.protocol.clocks import Components
from verifier.analyses.protocol.control import Undecided
from verifier.analyses.protocol.fiber import Fiber, Warp
from verifier.analyses.protocol.memory import SharedWords
from verifier.analyses.protocol.scripts import Script
from verifier.analyses.protocol.signals import YIELD, Signals
from verifier.analyses.protocol.start import Start
from verifier.analyses.protocol.tmem import Tmem
from verifier.analyses.protocol.traffic import Boxes, Traffic

if TYPE_CHECKING:
    from verifier.analyses.protocol.code import Code
    from verifier.analyses.protocol.recurrence import Recorder


class Machine:
    """One run. `boxes` gives the bytes of tensor copies, as far as they are known."""

    def __init__(
        self, code: Code, start: Start, script: Script, boxes: Boxes, limit: int, recorder: Recorder | None = None
    ) -> None:
        self.code = code
        self.start = start
        self.script = script
        self.limit = limit
        self.sized = bool(boxes.loads or boxes.stores)
        self.time = 0  # instructions executed so far
        self.decisions = 0  # undecided branches met so far
        self.ctas = range(start.ranks)
        self.components = Components()
        self.memory = SharedWords()
        self.signals = Signals(self)
        self.tmem = Tmem(self)
        self.traffic = Traffic(self, boxes)
        self.warps: dict[tuple[int, int], Warp] = {}
        self.visits: dict[tuple[int, int], set[int]] = defaultdict(set)  # warp -> blocks it came to
        self.ready: deque[Fiber] = deque()
        self.live: dict[int, int] = dict.fromkeys(self.ctas, 0)  # threads of each CTA that have not exited
        self.fibers: set[Fiber] = set()
        self.recorder = recorder
        self.passes: list[tuple[tuple[int, int], int, int]] = []  # (warp, head, time), in order
        self.heads: dict[tuple[tuple[int, int], int], int] = {}  # (warp, head of an outermost loop) -> passes
        self.problem: str | None = None  # why the run could not go on
        self.misused = False  # it could not because something was done to a barrier that is none
        for fiber in start.fibers(self, code.layout, script):
            self.ready.append(fiber)
            self.fibers.add(fiber)
            self.warps[fiber.warp.name] = fiber.warp
            self.live[fiber.warp.cta] += len(fiber.lanes)

    def label(self, address: int) -> str:
        return self.start.label(address)

    def run(self) -> None:
        """Run every fiber until it blocks, round and round, until all have ended or none can go on.

        A fiber that needs something the script does not say stops there; the others go on without it.
        """
        ready = self.ready
        while (ready or self.signals.release_held()) and self.time <= self.limit:
            if not ready:
                continue
            try:
                self._advance(ready.popleft())
            except Undecided as reason:
                self.problem = self.problem or reason.reason
                self.misused = self.misused or isinstance(reason, control.Misused)

    @property
    def ended(self) -> bool:
        """Whether every thread came to its end."""
        return self.problem is None and not self.fibers

    @property
    def failed(self) -> bool:
        """Whether the kernel goes wrong under these inputs: every one that matters was known."""
        return self.misused or (self.problem is None and bool(self.stuck))

    @property
    def visited(self) -> frozenset[int]:
        """Blocks that some warp came to."""
        return frozenset().union(*self.visits.values())

    @property
    def worked(self) -> frozenset[int]:
        """Blocks with synchronization that some fiber came to."""
        return self.code.hard & self.visited

    @property
    def rounds(self) -> int:
        """How often the body of the outermost loop that comes round most often has run, at least."""
        return max((count - (block in self.code.tested) for (_, block), count in self.heads.items()), default=0)

    @property
    def stuck(self) -> list[Fiber]:
        """Fibers that wait for something that nobody will do."""
        return sorted((f for f in self.fibers if f.waits is not None), key=lambda f: (f.warp.name, f.lanes))

    def _advance(self, fiber: Fiber) -> None:
        blocks = self.code.blocks
        visited = self.visits[fiber.warp.name]
        heads = self.code.heads
        exit_block = self.code.exit
        fiber.waits = None
        fiber.warp.path = fiber.path
        while True:
            visited.add(fiber.block)
            block = blocks[fiber.block]
            steps = block.steps
            index = fiber.index
            count = len(steps)
            while index < count:
                outcome = steps[index](fiber)
                if outcome is not None:
                    self._pause(fiber, index, outcome)
                    return
                index += 1
            self.time += count or 1
            if self.time > self.limit:
                raise Undecided(f"more than {self.limit} steps")
            fiber.index = 0
            following = block.leave(fiber)
            while fiber.stack and fiber.stack[-1].join == following:
                following = control.meet(fiber, self.code.joins[following])
            if following in heads:
                self._at_head(fiber, following)
            if following == fiber.until and not fiber.stack:
                self._come_back(fiber)
                return
            if following == exit_block:
                self._end(fiber)
                return
            if following == control.FORKED:
                return
            fiber.block = following

    def _at_head(self, fiber: Fiber, block: int) -> None:
        key = (fiber.warp.name, block)
        self.heads[key] = self.heads.get(key, 0) + 1
        self.passes.append((fiber.warp.name, block, self.time))
        if self.recorder is not None:
            self.recorder.visit(self, fiber, block)

    def _pause(self, fiber: Fiber, index: int, outcome: object) -> None:
        if outcome is YIELD:
            fiber.index = index + 1
            self.ready.append(fiber)
        else:
            fiber.index = index
            fiber.waits = outcome

    def _come_back(self, child: Fiber) -> None:
        """A child has reached the block where its parent goes on."""
        parent = child.parent
        assert parent is not None
        self.fibers.discard(child)
        parent.arrived.append((child.lanes, child.regs))
        parent.children -= 1
        if not parent.children:
            join = parent.block
            control.reunite(parent, self.code.joins[join])
            while parent.stack and parent.stack[-1].join == join:
                join = control.meet(parent, self.code.joins[join])
            if join == self.code.exit:
                self._end(parent)
            elif join == parent.until and not parent.stack:
                self._come_back(parent)
            else:
                parent.block, parent.index = join, 0
                self.ready.append(parent)

    def _end(self, fiber: Fiber) -> None:
        self.fibers.discard(fiber)
        warp = fiber.warp
        self.live[warp.cta] -= len(fiber.lanes)
        for (cta, _), barrier in list(self.signals.named.items()):
            if cta == warp.cta and barrier.generation.arrived and barrier.generation.expected is None:
                self.signals.try_complete(barrier)
        if self.signals.cluster_barrier.generation.arrived:
            self.signals.try_complete(self.signals.cluster_barrier)

    def threads(self, barrier: ThreadBarrier) -> int:
        """How many arrivals complete a barrier of all threads of its CTA, or of the cluster."""
        if barrier is self.signals.cluster_barrier:
            return sum(self.live.values())
        cta = next(cta for (cta, _), b in self.signals.named.items() if b is barrier)
        return -(-self.live[cta] // 32) * 32

    def wake(self, fibers: list[Fiber]) -> None:
        """These fibers try again what they were blocked on."""
        self.ready.extend(fibers)

    def resume(self, fibers: list[Fiber]) -> None:
        """These fibers go on after what they were blocked on."""
        for fiber in fibers:
            if fiber.waits is not None:
                fiber.index += 1
                self.ready.append(fiber)
        for fiber in fibers:
            fiber.waits = None
