"""What the emulated kernels do: copies, MMAs, barriers, tensor memory, each of which takes effect at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.kernels.emulated_dsl import FP32, INT32, MACHINE, Bars, Mma
from tests.kernels.emulated_machine import Rendezvous
from tests.kernels.emulated_memory import Base, EmulationError, Memory, Pointer, View, extent


def copy(
    atom: Any,
    source: View,
    target: View,
    tma_bar_ptr: Any = None,
    tma_desc_ptr: Base | None = None,
    mcast_mask: int | None = None,
) -> None:
    """Any copy; bulk tensor copies may cross the edge of a matrix, and complete bytes on a barrier.

    Those of a pair of CTAs complete them on the first one's barrier; with a mask they write to both. One that adds
    rounds each sum.
    """
    bulk = atom in ("bulk", "pair", "add")
    if tma_desc_ptr is not None and source.base.memory.space == "global":
        source = source.through(tma_desc_ptr)
    elif tma_desc_ptr is not None:
        target = target.through(tma_desc_ptr)
    values = source.read(clip=bulk)
    if bulk and source.shape != target.shape:
        raise EmulationError(f"a box of {source.shape} for one of {target.shape}")
    flat = np.asarray(values).reshape((values.shape[0], -1), order="F")
    targets = [target] if mcast_mask is None else [at_rank(target, rank) for rank in (0, 1) if mcast_mask >> rank & 1]
    for each in targets:
        value = flat.reshape((values.shape[0], *each.shape), order="F")
        each.write(each.element_type(each.read(clip=True) + value) if atom == "add" else value, clip=bulk)
    if tma_bar_ptr is not None:
        bar = peer_bar(tma_bar_ptr, 0) if atom == "pair" else tma_bar_ptr
        shared = int(np.prod(source.base.divide)) if source.base.divide else 1
        bar.bar.complete(len(targets) * extent(source.modes) * source.element_type.width // 8 // shared)


def at_rank(view: View, rank: int) -> View:
    """The same place in the shared or tensor memory of another CTA of the cluster."""
    cta, base = MACHINE.current.cta.cluster[rank], view.base
    memory = cta.tmem if base.memory.space == "tmem" else cta.allocations[base.memory.number]
    return view.through(Base(memory, base.shape, base.strides, base.offset, base.divide, base.axis))


def peer_bar(bar: Bars, rank: int) -> Bars:
    """The same barrier of another CTA of the cluster."""
    group = MACHINE.current.cta
    mine, peers = (vars(cta.allocations[0]) for cta in (group, group.cluster[rank]))
    (name,) = (name for name, bars in mine.items() if bars.bars is bar.bars)
    return Bars(peers[name].bars, bar.at)


def gemm(mma: Mma, target: View, a: Any, b: Any, _: View) -> None:
    """One MMA: rows of A by rows of B, in fp32; of a pair, rows of both CTAs by all rows of B."""
    if mma.ctas == 1:
        _multiply(mma, target, _operand(a), _operand(b))
        return
    rows = _operands(b)
    for rank, own in enumerate(_operands(a)):
        _multiply(mma, at_rank(target, rank), own, np.concatenate(rows))


def _multiply(mma: Mma, target: View, a: Any, b: Any) -> None:
    product = np.einsum("mk,nk->mn", a, b).reshape(1, *target.shape)  # `@` spins in BLAS threads
    target.write(target.read() + product if mma.accumulate else product)


def _operand(x: Any) -> Any:
    if not isinstance(x, list):
        values = x.read()
    else:
        values, scales = x[0].read(), x[1].read()
        values = values * scales.repeat(values.shape[2] // scales.shape[2], 2)
    return np.asarray(values, np.float32).reshape(values.shape[1:3])


def _operands(x: list[View]) -> list[Any]:
    """What both CTAs have of an operand; each has its own scale factors of A and all of those of B."""
    values, scales = x
    found = []
    for rank in (0, 1):
        here, factors = at_rank(values, rank).read(), at_rank(scales, rank).read()
        count = here.shape[1]
        first = rank * count if factors.shape[1] > count else 0
        found.append(np.asarray(here * factors[:, first : first + count], np.float32).reshape(here.shape[1:3]))
    return found


def arrive(bar: Bars, *_: Any, **__: Any) -> None:
    bar.bar.arrive(MACHINE.current.active)
    MACHINE.current.wait(lambda: True)


def expect(bar: Bars, expected: int) -> None:
    bar.bar.arrive(MACHINE.current.active, expected)


def wait(bar: Bars, parity: int, *_: Any, **__: Any) -> None:
    mbarrier = bar.bar
    MACHINE.current.wait(lambda: mbarrier.phase != parity)


def named_barrier(barrier_id: int, number_of_threads: int) -> None:
    named = MACHINE.current.cta.named
    MACHINE.meet(named.setdefault(barrier_id, Rendezvous()), number_of_threads)


def cluster_arrive() -> None:
    group = MACHINE.current
    count = sum(cta.threads for cta in group.cta.cluster)
    group.joined = group.cta.meeting.arrive(group.lanes, count)


def cluster_wait() -> None:
    group = MACHINE.current
    mine, meeting = group.joined, group.cta.meeting
    group.wait(lambda: meeting.generation > mine)


def send_async(box: Pointer, words: tuple[Any, ...], bar: Bars, rank: int) -> None:
    """`st.async`: into the same place of a peer's shared memory, and bytes on its barrier."""
    cluster = MACHINE.current.cta.cluster
    memory = cluster[rank].allocations[box.base.memory.number].recast(INT32)
    base = Base(memory, box.base.shape, box.base.strides)
    for i, word in enumerate(words):
        View(base, (box.origin[0] + i,), []).write(word)
    peer_bar(bar, rank).bar.complete(4 * len(words) * MACHINE.current.lanes)


def arrive_peer(bar: Bars, rank: int) -> None:
    """An arrival of each active thread at another CTA's barrier."""
    arrive(peer_bar(bar, rank))


def release(bar: Bars, ctas: int) -> None:
    """`common.release_relaxed_cluster`"""
    arrive(peer_bar(bar, 0) if ctas == 2 else bar)


def commit(bar: Bars, mask: int = 0, _: Any = None) -> None:
    """MMAs are complete as soon as they start."""
    for each in [peer_bar(bar, rank) for rank in (0, 1) if mask >> rank & 1] or [bar]:
        arrive(each)


def alloc_tmem(columns: int, _: Any, both: bool = False) -> None:
    cta = MACHINE.current.cta
    if cta.tmem is not None or columns > 512 or columns & (columns - 1):
        raise EmulationError("no such TMEM")
    cta.tmem = Memory.poisoned(128 * columns, FP32, "tmem")


def tmem_pointer(*_: Any) -> Pointer:
    memory = MACHINE.current.cta.tmem
    if memory is None:
        raise EmulationError("TMEM is not allocated yet")
    columns = memory.data.size // 128
    return Pointer(Base(memory, (128, columns), (columns, 1), axis=1), (0, 0))
