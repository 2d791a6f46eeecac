"""What the Blackwell split-K kernels share: all but their operands and the way of the result out of the CTA.

The CTAs of a cluster share one output tile. The CTA of rank r multiplies its share of the K tiles, then owns one slice
of the tile: it sends every other slice of its partial sum to the owner's mailbox (kernels/mailbox.py), adds up what
arrives in its own, and stores the result. A rank without K tiles takes part with zeros. TMEM is guarded by the barrier
of kernels/tmem.py.

Warps
    0-3  epilogue   TMEM -> registers -> mailboxes of the peers; reduction; registers -> global memory
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    load       bulk tensor loads of both operands
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.utils import SmemAllocator

from kernels import common, mailbox, operands, tensor_core, tmem
from kernels.mailbox import Mailbox
from kernels.operands import ACC, IN, OUT, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring

EPILOGUE_THREADS = 128
MMA_WARP = 4
LOAD_WARP = 5
THREADS = 192
TMEM_THREADS = 160
STORE_BARRIER = 1


@dataclass(frozen=True)
class Shared:
    """Shared memory of one CTA, as tensors and barriers."""

    a: cute.Tensor  # (MMA, M, K, stages)
    b: cute.Tensor  # (MMA, N, K, stages)
    ring: Ring
    acc_full: cute.Pointer
    tmem: cute.Pointer
    tmem_address: cute.Pointer
    mailbox: Mailbox


class SplitK:
    """A kernel in one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    dtype = IN  # of both operands
    loads = 1  # load warps

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.split = config["split_k"]
        self.stages = config["stages"]
        self.slots = self.split - 1
        self.slice = self.tile.n // self.split  # columns of the tile that one rank owns
        self.tmem_columns = tmem.columns(self.tile.n)
        self.defect = defect
        self.time_limit = config.get("time_limit_ns", 0)  # of the attempts to receive

    def allocate(self, a_layout: Any, b_layout: Any) -> tuple[Shared, SmemAllocator]:
        """Lays out shared memory: barriers first, then the operand stages and the mailbox; what is left of it."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            acc_full: cutlass.Int64
            tmem: cutlass.Int64
            mailbox_full: cute.struct.MemRange[cutlass.Int64, max(self.slots, 1)]
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        stage_bytes = (self.tile.m + self.tile.n) * self.tile.k * self.dtype.width // 8
        shared = Shared(
            a=smem.allocate_tensor(self.dtype, a_layout.outer, TMA_ALIGN, a_layout.inner),
            b=smem.allocate_tensor(self.dtype, b_layout.outer, TMA_ALIGN, b_layout.inner),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, stage_bytes),
            acc_full=bars.acc_full.ptr,
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
            mailbox=mailbox.allocate(
                smem, bars.mailbox_full.data_ptr(), self.slice, EPILOGUE_THREADS, self.slots, self.time_limit
            ),
        )
        return shared, smem

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers, publishes them to the cluster and arms the mailbox."""
        with cute.arch.elect_one():
            shared.ring.init(1, self.loads)
            cute.arch.mbarrier_init(shared.acc_full, 1)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            shared.mailbox.init()
            cute.arch.mbarrier_init_fence()
            shared.mailbox.arm()

    @cute.jit
    def begin(self) -> None:
        """The barriers that `init_barriers` published are initialized in every CTA of the cluster."""
        if cutlass.const_expr(self.split > 1):
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()
        else:
            cute.arch.sync_threads()

    @cute.jit
    def end(self) -> None:
        """No CTA leaves while a peer may still write into its shared memory."""
        if cutlass.const_expr(self.split > 1):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()

    def k_range(self, rank: Any, k_tiles: Any) -> tuple[Any, Any]:
        """First K tile of a rank and the one after its last; both are equal where the tiles ran out."""
        share = (k_tiles + self.split - 1) // self.split
        first = cutlass.min(rank * share, k_tiles)
        return first, cutlass.min(first + share, k_tiles)

    @cute.jit
    def load_warp(self, a: Loads, b: Loads, ring: Ring, tile: tuple[Any, Any], k_range: tuple[Any, Any]) -> None:
        """Loads this rank's K tiles."""
        stage, parity = ring.fill(a, b, tile, k_range, cutlass.Int32(0), cutlass.Int32(1))
        ring.drain(stage, parity)

    @cute.jit
    def mma_warp(self, mma: cute.TiledMma, shared: Shared, k_tiles: cutlass.Int32) -> None:
        """Allocates TMEM, multiplies this rank's K tiles, frees TMEM once the epilogue has read it."""
        tmem.allocate(shared.tmem, shared.tmem_address, self.tmem_columns)
        acc = tmem.accumulator(mma, self.tile.mnk[:2], shared.tmem_address)
        a, b = mma.make_fragment_A(shared.a), mma.make_fragment_B(shared.b)
        tensor_core.multiply(mma, acc, a, b, shared.ring, k_tiles, cutlass.Int32(0), cutlass.Int32(0))
        with cute.arch.elect_one():
            tcgen05.commit(shared.acc_full)
        tmem.free(shared.tmem, acc, self.tmem_columns, self.defect)

    def slices(self, acc: cute.Tensor) -> cute.Tensor:
        """The accumulator as (M, columns, parts, rank): what each rank owns of it, in `parts` that lie apart."""
        return cute.flat_divide(acc[((None, None), 0, 0)], (self.tile.m, self.slice))

    def tmem_load(self, part: cute.Tensor) -> cute.TiledCopy:
        """Copy of one part (M, columns) to registers: one TMEM lane a thread."""
        columns = cute.size(part, mode=[1])
        repeat = tcgen05.Repetition(columns & -columns)  # the largest power of two that divides it
        return tcgen05.make_tmem_copy(cute.make_copy_atom(tcgen05.Ld32x32bOp(repeat), ACC), part)

    @cute.jit
    def exchange(self, mma: cute.TiledMma, shared: Shared, rank: cutlass.Int32, k_tiles: cutlass.Int32) -> Any:
        """Sends the slices that other ranks own, adds up this rank's; the copy and this thread's row."""
        thread, _, _ = cute.arch.thread_idx()
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        slices = self.slices(tmem.accumulator(mma, self.tile.mnk[:2], shared.tmem_address))
        load = self.tmem_load(slices[(None, None, 0, 0)])
        source = load.get_slice(thread).partition_S(slices)  # (T2R, 1, columns, parts, rank)
        row = load.get_slice(thread).partition_D(cute.make_identity_tensor(slices[(None, None, None, 0)].shape))
        partial = cute.make_rmem_tensor(row.shape, ACC)
        partial.fill(0.0)

        common.wait_relaxed_cluster(shared.acc_full, 0)
        common.fence_tcgen05_after()
        if cutlass.const_expr(self.slots > 0):
            for slot in cutlass.range(self.slots, unroll=1):
                owner = mailbox.owner_of(rank, slot, self.split)
                if k_tiles > 0:
                    cute.copy(load, source[(None, None, None, None, owner)], partial)
                    cute.arch.fence_view_async_tmem_load()
                shared.mailbox.send(partial, slot, owner, thread)
        if k_tiles > 0:
            cute.copy(load, source[(None, None, None, None, rank)], partial)
            cute.arch.fence_view_async_tmem_load()
        common.fence_tcgen05_before()
        common.arrive(shared.tmem)
        if cutlass.const_expr(self.slots > 0):
            shared.mailbox.add(partial, 0, thread, self.defect)
        return load, partial

    @cute.jit
    def store(
        self,
        total: cute.Tensor,
        load: cute.TiledCopy,
        c_atom: cute.CopyAtom,
        target: cute.Tensor,
        buffer: cute.Tensor,
    ) -> None:
        """Rounds one part to bf16, stages it in shared memory and lets one thread store it to `target` (M, columns).

        `total` (T2R, 1, columns) is in registers as `load` leaves them; `buffer` is the staging room (M, columns, 1).
        """
        thread, _, _ = cute.arch.thread_idx()
        copy = cute.make_tiled_copy_D(operands.store_atom(load), load)
        rounded = cute.make_rmem_tensor(copy.retile(total).shape, OUT)
        rounded.store(copy.retile(total).load().to(OUT))
        cute.copy(copy, rounded, copy.get_slice(thread).partition_D(buffer)[(None, None, None, 0)])
        if cutlass.const_expr(self.defect != "no-proxy-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=EPILOGUE_THREADS)
        if thread == 0:
            box, place = cpasync.tma_partition(
                c_atom, 0, cute.make_layout(1), cute.group_modes(buffer, 0, 2), cute.group_modes(target, 0, 2)
            )
            cute.copy(c_atom, box[(None, 0)], place)  # defect: no-proxy-fence
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
