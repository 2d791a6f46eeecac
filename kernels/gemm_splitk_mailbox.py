"""Split-K bf16 GEMM for sm_100a/sm_103a: the CTAs of a cluster share one output tile and exchange partial sums.

C[m, n] = sum over k of A[m, k] * B[n, k], fp32 accumulation, one 128 x 128 tile a cluster of `split_k` CTAs. The CTA
of rank r multiplies its share of the K tiles, then owns columns [32 r, 32 r + 32): it sends every other slice of its
partial sum to the owner's mailbox in shared memory (`st.async`), adds up what arrives in its own, and stores the
result. A rank without K tiles takes part with zeros.

Warps
    0-3  epilogue   TMEM -> registers -> mailboxes of the peers; reduction; registers -> shared memory -> TMA store
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    load       TMA loads of A and B

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                            load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile      epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice             both wait for each phase:
        phase 0     TMEM is allocated and its address stands in shared memory
        phase 1     the accumulator has been read: the mma warp may free it
        The mma warp waits for phase 0 before it arrives for phase 1. Without that wait its second arrival can land
        in phase 0, and its wait with parity 1 returns for the phase before the one it means.
    mailbox_full[i] count 1    armed at initialization with the bytes of one slot; completed by the st.async of the
                    peer i + 1 ranks below; the epilogue waits at cluster scope and acquires the cluster's shared
                    memory before it reads the slot
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory
    named 1 (128)   epilogue: the slice of C in shared memory is complete before one thread stores it

Defects (`build(config, defect)`)
    cta-scope-wait         the mailbox is acquired at CTA scope only
    acquire-cluster-wait   the mailbox wait itself acquires at cluster scope: right, but each attempt invalidates L1
    wait-not-retried       one relaxed attempt stands for the mailbox wait
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import common, mailbox, operands, registry, tensor_core
from kernels.mailbox import Mailbox
from kernels.operands import ACC, IN, OUT, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring

NAME = "gemm_splitk_mailbox"
EPILOGUE_THREADS = 128
MMA_WARP = 4
LOAD_WARP = 5
THREADS = 192
TMEM_THREADS = 160
STORE_BARRIER = 1


@dataclass(frozen=True)
class Shared:
    """Shared memory of one CTA, as pointers and tensors."""

    a: cute.Tensor  # (MMA, M, K, stages)
    b: cute.Tensor  # (MMA, N, K, stages)
    c: cute.Tensor  # (M, slice, 1)
    ring: Ring
    acc_full: cute.Pointer
    tmem: cute.Pointer
    mailbox: Mailbox
    tmem_address: cute.Pointer


class SplitKGemm:
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.split = config["split_k"]
        self.stages = config["stages"]
        self.slots = self.split - 1
        self.slice = self.tile.n // self.split  # columns of C that one rank owns
        self.defect = defect

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches one cluster for each output tile."""
        mma = operands.make_mma(self.tile)
        a_layout, a_atom, a_map = operands.make_load_a(a, mma, self.tile, self.stages)
        b_layout, b_atom, b_map = operands.make_load_b(b, mma, self.tile, self.stages)
        c_layout, c_atom, c_map = operands.make_store_c(c, (self.tile.m, self.slice), 1)
        grid = (cute.ceil_div(c.shape[0], self.tile.m), cute.ceil_div(c.shape[1], self.tile.n), self.split)
        self.kernel(a_atom, a_map, b_atom, b_map, c_atom, c_map, a_layout, b_layout, c_layout).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, self.split), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        a_atom: cute.CopyAtom,
        a_map: cute.Tensor,
        b_atom: cute.CopyAtom,
        b_map: cute.Tensor,
        c_atom: cute.CopyAtom,
        c_map: cute.Tensor,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        c_layout: cute.ComposedLayout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        mma = operands.make_mma(self.tile)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared = self.allocate(a_layout, b_layout, c_layout)
        if warp == LOAD_WARP:
            for atom in (a_atom, b_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()

        m, n, _ = cute.arch.block_idx()
        tiles_a = cute.local_tile(a_map, (self.tile.m, self.tile.k), (None, None))  # (M, K, tile rows, K tiles)
        tiles_b = cute.local_tile(b_map, (self.tile.n, self.tile.k), (None, None))  # (N, K, tile columns, K tiles)
        tile_c = cute.local_tile(c_map, (self.tile.m, self.tile.n), (m, n))  # (M, N)
        first_k, last_k = self.k_range(rank, cute.size(tiles_a, mode=[3]))

        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_a = operands.partition_load(a_atom, one_cta.partition_A(tiles_a), shared.a)
            load_b = operands.partition_load(b_atom, one_cta.partition_B(tiles_b), shared.b)
            self.load_warp(load_a, load_b, shared.ring, (m, n), (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            self.epilogue_warps(mma, c_atom, tile_c, shared, rank, last_k - first_k)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    def allocate(self, a_layout: Any, b_layout: Any, c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the operand stages, the mailbox and the slice of C."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            acc_full: cutlass.Int64
            tmem: cutlass.Int64
            mailbox_full: cute.struct.MemRange[cutlass.Int64, self.slots]
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        return Shared(
            a=smem.allocate_tensor(IN, a_layout.outer, TMA_ALIGN, a_layout.inner),
            b=smem.allocate_tensor(IN, b_layout.outer, TMA_ALIGN, b_layout.inner),
            c=smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            mailbox=mailbox.allocate(smem, bars.mailbox_full.data_ptr(), self.slice, EPILOGUE_THREADS, self.slots),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, self.tile.stage_bytes),
            acc_full=bars.acc_full.ptr,
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
        )

    def k_range(self, rank: Any, k_tiles: Any) -> tuple[Any, Any]:
        """First K tile of a rank and the one after its last; both are equal where the tiles ran out."""
        share = (k_tiles + self.split - 1) // self.split
        first = cutlass.min(rank * share, k_tiles)
        return first, cutlass.min(first + share, k_tiles)

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers, publishes them to the cluster and arms the mailbox."""
        with cute.arch.elect_one():
            shared.ring.init(1)
            cute.arch.mbarrier_init(shared.acc_full, 1)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            shared.mailbox.init()
            cute.arch.mbarrier_init_fence()
            shared.mailbox.arm()

    @cute.jit
    def load_warp(self, a: Loads, b: Loads, ring: Ring, tile: tuple[Any, Any], k_range: tuple[Any, Any]) -> None:
        """Loads this rank's K tiles."""
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        stage, parity = ring.fill(a, b, tile, k_range, stage, parity)
        ring.drain(stage, parity)

    @cute.jit
    def mma_warp(self, mma: cute.TiledMma, shared: Shared, k_tiles: cutlass.Int32) -> None:
        """Allocates TMEM, multiplies this rank's K tiles, frees TMEM once the epilogue has read it."""
        cute.arch.alloc_tmem(self.tile.n, shared.tmem_address)
        cute.arch.relinquish_tmem_alloc_permit()
        common.arrive(shared.tmem)
        cute.arch.sync_warp()
        acc = self.accumulator(mma, shared)
        a, b = mma.make_fragment_A(shared.a), mma.make_fragment_B(shared.b)
        tensor_core.multiply(mma, acc, a, b, shared.ring, k_tiles, cutlass.Int32(0), cutlass.Int32(0))
        with cute.arch.elect_one():
            tcgen05.commit(shared.acc_full)
        if cutlass.const_expr(self.defect != "missing-phase0-wait"):
            common.wait(shared.tmem, 0)
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 1)  # defect: missing-phase0-wait
        common.fence_tcgen05_after()
        cute.arch.dealloc_tmem(acc.iterator, self.tile.n)

    def accumulator(self, mma: cute.TiledMma, shared: Shared) -> cute.Tensor:
        """The accumulator (MMA, 1, 1) at the address that the allocation left in shared memory."""
        address = cute.arch.retrieve_tmem_ptr(ACC, 16, shared.tmem_address)
        return cute.make_tensor(address, mma.make_fragment_C(mma.partition_shape_C(self.tile.mnk[:2])).layout)

    @cute.jit
    def epilogue_warps(
        self,
        mma: cute.TiledMma,
        c_atom: cute.CopyAtom,
        tile_c: cute.Tensor,
        shared: Shared,
        rank: cutlass.Int32,
        k_tiles: cutlass.Int32,
    ) -> None:
        """Sends the slices that other ranks own, adds up the slice that this rank owns, and stores it."""
        thread, _, _ = cute.arch.thread_idx()
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        slices = cute.flat_divide(self.accumulator(mma, shared)[((None, None), 0, 0)], (self.tile.m, self.slice))
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(self.slice)), ACC)
        tmem_load = tcgen05.make_tmem_copy(atom, slices[(None, None, 0, 0)])
        source = tmem_load.get_slice(thread).partition_S(slices)  # (T2R, 1, 1, 1, split)
        slices_c = cute.flat_divide(tile_c, (self.tile.m, self.slice))  # (M, slice, 1, split)
        shape = tmem_load.get_slice(thread).partition_D(slices_c)[(None, None, None, 0, 0)].shape
        partial = cute.make_rmem_tensor(shape, ACC)
        partial.fill(0.0)

        common.wait_relaxed_cluster(shared.acc_full, 0)
        common.fence_tcgen05_after()
        for slot in cutlass.range(self.slots, unroll=1):
            owner = (rank + slot + 1) % self.split
            if k_tiles > 0:
                cute.copy(tmem_load, source[(None, None, None, 0, owner)], partial)
                cute.arch.fence_view_async_tmem_load()
            shared.mailbox.send(partial, slot, owner, thread)
        if k_tiles > 0:
            cute.copy(tmem_load, source[(None, None, None, 0, rank)], partial)
            cute.arch.fence_view_async_tmem_load()
        common.fence_tcgen05_before()
        common.arrive(shared.tmem)
        shared.mailbox.add(partial, 0, thread, self.defect)
        self.store(partial, tmem_load, c_atom, slices_c[(None, None, 0, rank)], shared)

    @cute.jit
    def store(
        self, total: cute.Tensor, tmem_load: cute.TiledCopy, c_atom: cute.CopyAtom, tile: cute.Tensor, shared: Shared
    ) -> None:
        """Rounds the slice to bf16, stages it in shared memory and lets one thread store it."""
        thread, _, _ = cute.arch.thread_idx()
        copy = cute.make_tiled_copy_D(operands.store_atom(tmem_load), tmem_load)
        rounded = cute.make_rmem_tensor(copy.retile(total).shape, OUT)
        rounded.store(copy.retile(total).load().to(OUT))
        cute.copy(copy, rounded, copy.get_slice(thread).partition_D(shared.c)[(None, None, None, 0)])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=EPILOGUE_THREADS)
        if thread == 0:
            box, target = cpasync.tma_partition(
                c_atom, 0, cute.make_layout(1), cute.group_modes(shared.c, 0, 2), cute.group_modes(tile, 0, 2)
            )
            cute.copy(c_atom, box[(None, 0)], target)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)


SplitKGemm.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[SplitKGemm, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    registry.case(NAME).check_defect(defect)
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return SplitKGemm(config, defect), arguments
