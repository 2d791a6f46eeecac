"""Tensor memory (TMEM) that one warp allocates and frees while others read it, guarded by one mbarrier.

    phase 0     TMEM is allocated and its address stands in shared memory
    phase 1     everyone has read it: the warp that allocated it may free it

The mma warp (32 threads) and the epilogue warps arrive once in each phase; its count is the number of them all. The mma
warp waits for phase 0 before it arrives for phase 1. Without that wait its second arrival can land in phase 0, and its
wait with parity 1 returns for the phase before the one it means.

Defects (of every kernel that uses this barrier)
    missing-phase0-wait    the mma warp does not wait for phase 0
    no-peer-handshake      of a pair of CTAs: the mma warp does not wait for the readers of the other CTA
"""

from typing import Any

import cutlass
from cutlass import Constexpr, cute

from kernels import common
from kernels.operands import ACC

MIN_COLUMNS = 32


def columns(needed: int) -> int:
    """What to allocate for `needed` columns: a power of two, 32 at least."""
    return max(MIN_COLUMNS, 1 << (needed - 1).bit_length())


@cute.jit
def allocate(bar: cute.Pointer, address: cute.Pointer, count: Constexpr, ctas: Constexpr = 1) -> None:
    """Allocates `count` columns, leaves their address in shared memory, and arrives for phase 0; one warp.

    `ctas` = 2: in both CTAs of a pair, whose warps wait for each other.
    """
    cute.arch.alloc_tmem(count, address, ctas == 2)
    cute.arch.relinquish_tmem_alloc_permit(ctas == 2)
    common.arrive(bar)
    cute.arch.sync_warp()


@cute.jit
def free(
    bar: cute.Pointer, acc: cute.Tensor, count: Constexpr, defect: Constexpr, peer: cute.Pointer | None = None
) -> None:
    """Frees the columns from the start of `acc` once all readers have arrived for phase 1; the warp of `allocate`.

    In a pair of CTAs one frees for both: `peer` (count 32) tells each that the readers of the other are done, too.
    """
    if cutlass.const_expr(defect != "missing-phase0-wait"):
        common.wait(bar, 0)
    common.fence_tcgen05_before()
    common.arrive(bar)
    common.wait(bar, 1)  # defect: missing-phase0-wait
    common.fence_tcgen05_after()
    if cutlass.const_expr(peer is not None and defect != "no-peer-handshake"):
        common.fence_tcgen05_before()
        common.arrive_peer_relaxed_cluster(peer, cute.arch.block_idx_in_cluster() ^ 1)
        common.wait_relaxed_cluster(peer, 0)
        common.fence_tcgen05_after()
    cute.arch.dealloc_tmem(acc.iterator, count, peer is not None)  # defect: no-peer-handshake


def accumulator(mma: cute.TiledMma, shape: tuple[int, int], address: cute.Pointer) -> cute.Tensor:
    """The accumulator (MMA, 1, 1) of an M x N tile, at the address that the allocation left in shared memory."""
    start: Any = cute.arch.retrieve_tmem_ptr(ACC, 16, address)
    return cute.make_tensor(start, mma.make_fragment_C(mma.partition_shape_C(shape)).layout)


def accumulators(mma: cute.TiledMma, shape: tuple[int, int], address: cute.Pointer, count: int) -> cute.Tensor:
    """`count` accumulators (MMA, 1, 1, count), side by side."""
    one = accumulator(mma, shape, address)
    return cute.make_tensor(one.iterator, cute.append(one.layout, cute.make_layout(count, stride=shape[1])))
