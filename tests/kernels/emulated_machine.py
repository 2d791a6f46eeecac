"""CTAs, groups of warps and barriers, for running the kernels' own Python on the CPU.

Each group of warps with one role runs in a thread of its own, one at a time; at each barrier operation another one may
go on, drawn at random from those that can, so that one run is one interleaving. Asynchronous copies and MMAs take
effect at once: what their completion must be ordered with is what the verifier proves, and not this emulation.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.kernels.emulated_memory import DType, EmulationError, Memory, Threads

WARP = 32
Grid = tuple[int, int, int]


class Barrier:
    """An mbarrier: phases of `count` arrivals and as many bytes as were expected."""

    def __init__(self) -> None:
        self.count, self.pending, self.bytes, self.phase = 0, 0, 0, 0

    def init(self, count: int) -> None:
        """Starts phase 0."""
        self.count = self.pending = count

    def arrive(self, arrivals: int, expected: int = 0) -> None:
        """Some arrivals, which expect bytes."""
        if arrivals > self.pending:
            raise EmulationError(f"{arrivals} arrivals where {self.pending} are pending")
        self.pending -= arrivals
        self.complete(-expected)

    def complete(self, size: int) -> None:
        """Bytes have arrived."""
        self.bytes += size
        if self.pending == 0 and self.bytes == 0:
            self.phase ^= 1
            self.pending = self.count


@dataclass
class Rendezvous:
    """A barrier for a number of threads, again and again."""

    arrived: int = 0
    generation: int = 0

    def arrive(self, threads: int, count: int) -> int:
        """Arrivals of some of `count` threads; the generation that they complete together."""
        mine = self.generation
        self.arrived += threads
        if self.arrived == count:
            self.arrived, self.generation = 0, mine + 1
        return mine


@dataclass
class Cta:
    """Shared and tensor memory, and barriers."""

    block: Grid
    grid: Grid
    rank: int
    threads: int
    cluster: list[Cta]
    meeting: Rendezvous  # of the cluster
    named: dict[int, Rendezvous] = field(default_factory=dict)
    allocations: list[Any] = field(default_factory=list)
    tmem: Memory | None = None


class Group:
    """Warps with one role, in a thread that runs when it is its turn."""

    def __init__(self, cta: Cta, first_warp: int, warps: int) -> None:
        self.cta, self.first_warp = cta, first_warp
        self.lanes = self.active = warps * WARP
        self.thread: Any = np.arange(first_warp * WARP, first_warp * WARP + self.lanes).view(Threads)
        self.allocated = 0
        self.joined = 0  # generation of the cluster's barrier
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.done = self.stop = False
        self.error: BaseException | None = None

    def main(self, body: Callable[[], None]) -> None:
        """What the thread runs."""
        self.turn.acquire()
        try:
            if not self.stop:
                body()
        except BaseException as error:  # handed to whoever runs the groups
            self.error = error
        self.done = True
        self.back.release()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Lets others run, until `ready`."""
        self.ready = ready
        self.back.release()
        self.turn.acquire()
        if self.stop:
            raise EmulationError("stopped")

    @contextmanager
    def elected(self) -> Iterator[None]:
        """One thread is active."""
        before, self.active = self.active, 1
        yield
        self.active = before


class Machine:
    """Runs launches; `current` is the group whose turn it is."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.current: Any = None
        self.maps: dict[tuple[int, int], Any] = {}  # tensor maps that were written on the device
        self.addresses: dict[int, Memory] = {}

    def launch(self, body: Callable[[], None], grid: Grid, threads: int, shape: Grid) -> None:
        """Runs a grid, one cluster after the other; clusters have CTAs along x or along z."""
        along_x, _, along_z = shape
        for x in range(0, grid[0], along_x):
            for y in range(grid[1]):
                cluster: list[Cta] = []
                places = [(x + i, y, z) for z in range(along_z) for i in range(along_x)]
                meeting = Rendezvous()
                cluster += [Cta(at, grid, rank, threads, cluster, meeting) for rank, at in enumerate(places)]
                self._run([group for cta in cluster for group in _groups(cta)], body)

    def _run(self, groups: list[Group], body: Callable[[], None]) -> None:
        workers = [threading.Thread(target=group.main, args=(body,), daemon=True) for group in groups]
        for worker in workers:
            worker.start()
        try:
            self._take_turns(groups)
        finally:
            for group in groups:
                group.stop = True
                group.turn.release()
            for worker in workers:
                worker.join()

    def _take_turns(self, groups: list[Group]) -> None:
        while waiting := [group for group in groups if not group.done]:
            able = [group for group in waiting if group.ready()]
            if not able:
                raise EmulationError(f"deadlock of warps {[group.first_warp for group in waiting]}")
            self.current = self.random.choice(able)
            self.current.turn.release()
            self.current.back.acquire()
            if self.current.error is not None:
                raise self.current.error

    def allocate(self, make: Callable[[int], Any]) -> Any:
        """The next allocation of shared memory, which every group of the CTA makes in the same order."""
        group = self.current
        number, group.allocated = group.allocated, group.allocated + 1
        if number == len(group.cta.allocations):
            group.cta.allocations.append(make(number))
        return group.cta.allocations[number]

    def meet(self, rendezvous: Rendezvous, count: int) -> None:
        """Blocks until `count` threads are here."""
        mine = rendezvous.arrive(self.current.lanes, count)
        self.current.wait(lambda: rendezvous.generation > mine)

    def registers(self, size: int, dtype: DType) -> Memory:
        """Registers of the current group."""
        return Memory.poisoned(self.current.lanes * size, dtype, "registers")


def _groups(cta: Cta) -> list[Group]:
    """Four warps at a time where a role has four; the others by themselves."""
    warps = cta.threads // WARP
    if warps < 4:
        return [Group(cta, warp, 1) for warp in range(warps)]
    wide = [(0, 4)] + ([(6, 4)] if warps == 10 else [])
    taken = {warp for first, count in wide for warp in range(first, first + count)}
    alone = [(warp, 1) for warp in range(warps) if warp not in taken]
    return [Group(cta, first, count) for first, count in wide + alone]
