"""Persistent split-K bf16 GEMM for sm_90a: the CTAs of a cluster share each output tile and exchange partial sums.

C[m, n] = act(sum over k of A[m, k] * B[n, k]), fp32 accumulation, 128 x 128 tiles, clusters of `split_k` CTAs that walk
over the tiles with the stride of their number. In each tile the CTA of rank r multiplies its share of the K tiles, then
owns columns [32 r, 32 r + 32): it sends every other slice of its partial sum to the owner's mailbox, adds up what
arrives in its own, and stores the result. With `table` entries, act is given as a table of fp32 values, which every
thread reads through L1 again in each tile (nearest entry for values in [-8, 8)); with 0 it is the identity.

Warps
    0-7  math   two warpgroups of 64 rows each: wgmma, exchange of partial sums, bulk tensor store
    8    load   bulk tensor loads of A and B

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads      math waits
    ab_empty[s]     count 8    math: one thread of each warp, after wait_group  load waits, and drains all before exit
    mailbox_full[i] count 1    armed with the bytes of one slot by thread 0, before it tells anyone that the slot is
                    free; completed by the st.async of the peer i + 1 ranks below; math waits (kernels/mailbox.py)
    mailbox_free[i] count 1    thread 0 of the CTA i + 1 ranks above, when all its threads have read slot i: math waits
                    before it sends there again. Shared memory is released and acquired at cluster scope by fences.
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory
    named 1 (256)   math, twice a tile: the buffer of C is free again; its rows are complete, the mailbox has been read

One tile is one phase of mailbox_full and mailbox_free.

Defects (`build(config, defect)`)
    no-proxy-fence         the staged rows are not made visible to the async proxy before the store reads them
    cta-scope-wait         the mailbox is acquired at CTA scope only
    acquire-cluster-wait   the mailbox wait itself acquires at cluster scope: right, but each attempt invalidates L1
    wait-not-retried       one relaxed attempt stands for the mailbox wait
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import common, hopper, mailbox, operands
from kernels.mailbox import Mailbox
from kernels.operands import ACC, IN, OUT, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring
from kernels.walk import Walk

NAME = "hopper_splitk_mailbox"
MATH_WARPS = 8
MATH_THREADS = 256
LOAD_WARP = 8
THREADS = 288
STORE_BARRIER = 1
TABLE_RANGE = 8  # the activation table covers [-8, 8)


@dataclass(frozen=True)
class Shared:
    """Shared memory of one CTA, as tensors and barriers."""

    a: cute.Tensor  # (M, K, stages)
    b: cute.Tensor  # (N, K, stages)
    c: cute.Tensor  # (M, slice, 1)
    ring: Ring
    mailbox: Mailbox
    mailbox_free: cute.Pointer


class HopperSplitK:
    """The kernel for one configuration; `defect` names the bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.split = config["split_k"]
        self.stages = config["stages"]
        self.max_clusters = config["max_clusters"]
        self.table = config["table"]
        self.slots = self.split - 1
        self.slice = self.tile.n // self.split  # columns of C that one rank owns
        self.values = self.tile.m * self.slice // MATH_THREADS  # of a slice, in the registers of one thread
        self.defect = defect

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, table: cute.Tensor | None, stream: Any) -> None:
        """Launches at most `max_clusters` clusters, never more than there are tiles."""
        a_layout, a_atom, a_map = hopper.make_load(a, self.tile.m, self.tile.k, self.stages)
        b_layout, b_atom, b_map = hopper.make_load(b, self.tile.n, self.tile.k, self.stages)
        c_layout, c_atom, c_map = hopper.make_store(c, (self.tile.m, self.slice), 1)
        tiles = cute.ceil_div(c.shape[0], self.tile.m) * cute.ceil_div(c.shape[1], self.tile.n)
        self.kernel(a_atom, a_map, b_atom, b_map, c_atom, c_map, table, a_layout, b_layout, c_layout).launch(
            grid=(cutlass.min(tiles, self.max_clusters), 1, self.split),
            block=(THREADS, 1, 1),
            cluster=(1, 1, self.split),
            stream=stream,
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
        table: cute.Tensor | None,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        c_layout: cute.ComposedLayout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared = self.allocate(a_layout, b_layout, c_layout)
        if warp == LOAD_WARP:
            for atom in (a_atom, b_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()

        tiles_a = cute.local_tile(a_map, (self.tile.m, self.tile.k), (None, None))  # (M, K, tile rows, K tiles)
        tiles_b = cute.local_tile(b_map, (self.tile.n, self.tile.k), (None, None))  # (N, K, tile columns, K tiles)
        tiles_c = cute.local_tile(c_map, (self.tile.m, self.tile.n), (None, None))  # (M, N, tile rows, tile columns)
        columns = cute.size(tiles_c, mode=[3])
        walk = Walk(cute.arch.block_idx()[0], cute.arch.grid_dim()[0], cute.size(tiles_c, mode=[2]) * columns, columns)
        first_k, last_k = self.k_range(rank, cute.size(tiles_a, mode=[3]))

        if warp == LOAD_WARP:
            load_a = hopper.partition_load(a_atom, tiles_a, shared.a)
            load_b = hopper.partition_load(b_atom, tiles_b, shared.b)
            self.load_warp(load_a, load_b, shared.ring, walk, (first_k, last_k))
        else:
            self.math_warps(c_atom, tiles_c, table, shared, walk, rank, last_k - first_k)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    def allocate(self, a_layout: Any, b_layout: Any, c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the operand stages, the mailbox and the slice of C."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            mailbox_full: cute.struct.MemRange[cutlass.Int64, self.slots]
            mailbox_free: cute.struct.MemRange[cutlass.Int64, self.slots]

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        return Shared(
            a=smem.allocate_tensor(IN, a_layout.outer, TMA_ALIGN, a_layout.inner),
            b=smem.allocate_tensor(IN, b_layout.outer, TMA_ALIGN, b_layout.inner),
            c=smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, self.tile.stage_bytes),
            mailbox=mailbox.allocate(smem, bars.mailbox_full.data_ptr(), self.values, MATH_THREADS, self.slots),
            mailbox_free=bars.mailbox_free.data_ptr(),
        )

    def k_range(self, rank: Any, k_tiles: Any) -> tuple[Any, Any]:
        """First K tile of a rank and the one after its last; both are equal where the tiles ran out."""
        share = (k_tiles + self.split - 1) // self.split
        first = cutlass.min(rank * share, k_tiles)
        return first, cutlass.min(first + share, k_tiles)

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers, publishes them to the cluster and arms the mailbox."""
        with cute.arch.elect_one():
            shared.ring.init(MATH_WARPS)
            shared.mailbox.init()
            for slot in range(self.slots):
                cute.arch.mbarrier_init(shared.mailbox_free + slot, 1)
            cute.arch.mbarrier_init_fence()
            shared.mailbox.arm()

    @cute.jit
    def load_warp(self, a: Loads, b: Loads, ring: Ring, walk: Walk, k_range: tuple[Any, Any]) -> None:
        """Keeps the ring full, tile after tile."""
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        tile = walk.first
        while tile < walk.count:
            stage, parity = ring.fill(a, b, walk.coordinates(tile), k_range, stage, parity)
            tile += walk.step
        ring.drain(stage, parity)

    @cute.jit
    def math_warps(
        self,
        c_atom: cute.CopyAtom,
        tiles_c: cute.Tensor,
        table: cute.Tensor | None,
        shared: Shared,
        walk: Walk,
        rank: cutlass.Int32,
        k_tiles: cutlass.Int32,
    ) -> None:
        """Multiplies, exchanges partial sums and stores, tile after tile."""
        thread = cute.arch.thread_idx()[0]
        mma = hopper.make_mma(self.tile)
        mine = mma.get_slice(thread)
        a = mma.make_fragment_A(mine.partition_A(shared.a))
        b = mma.make_fragment_B(mine.partition_B(shared.b))
        acc = cute.make_rmem_tensor(mma.partition_shape_C(self.tile.mnk[:2]), ACC)
        total = cute.make_rmem_tensor(self.values, ACC)
        box, targets = cpasync.tma_partition(
            c_atom,
            0,
            cute.make_layout(1),
            cute.group_modes(shared.c, 0, 2),
            cute.group_modes(cute.flat_divide(tiles_c, (self.tile.m, self.slice)), 0, 2),
        )  # (box, 1), (box, 1, split, tile rows, tile columns)
        tile, stage, parity, phase = walk.first, cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        while tile < walk.count:
            stage, parity = hopper.multiply(mma, acc, a, b, shared.ring, k_tiles, stage, parity)
            self.send(acc, total, shared, rank, phase)
            shared.mailbox.add(total, phase, thread, self.defect)
            self.activate(total, table)
            self.stage(mma, total, shared.c)
            if thread == 0:
                self.free(shared, rank)
                row, column = walk.coordinates(tile)
                cute.copy(c_atom, box[(None, 0)], targets[(None, 0, rank, row, column)])  # defect: no-proxy-fence
                cute.arch.cp_async_bulk_commit_group()
            phase ^= 1
            tile += walk.step
        if thread == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def send(
        self, acc: cute.Tensor, total: cute.Tensor, shared: Shared, rank: cutlass.Int32, phase: cutlass.Int32
    ) -> None:
        """Sends the slices that other ranks own, each as soon as its slot is free, and keeps this rank's in `total`."""
        thread = cute.arch.thread_idx()[0]
        for owner in cutlass.range_constexpr(self.split):
            part = cute.make_rmem_tensor(self.values, ACC)
            for i in cutlass.range_constexpr(self.values):
                part[i] = acc[owner * self.values + i]
            if rank == owner:
                total.store(part.load())
            else:
                slot = mailbox.slot_at(owner, rank, self.split)
                common.wait_relaxed_cluster(shared.mailbox_free + slot, phase ^ 1)
                common.fence_acquire_cluster_shared()
                shared.mailbox.send(part, slot, owner, thread)

    @cute.jit
    def free(self, shared: Shared, rank: cutlass.Int32) -> None:
        """Arms the mailbox for the next tile and tells each peer that its slot has been read; one thread."""
        common.fence_release_cluster_shared()
        shared.mailbox.arm()
        for slot in cutlass.range_constexpr(self.slots):
            sender = mailbox.sender_of(rank, slot, self.split)
            common.arrive_peer_relaxed_cluster(shared.mailbox_free + slot, sender)

    @cute.jit
    def activate(self, total: cute.Tensor, table: cute.Tensor | None) -> None:
        """total = act(total), by the nearest entry of the table; without a table, nothing."""
        if cutlass.const_expr(self.table > 0):
            scale = self.table / (2 * TABLE_RANGE)
            for i in cutlass.range_constexpr(self.values):
                entry = cutlass.Int32(total[i] * scale + (self.table / 2 + 0.5))
                total[i] = table[cutlass.max(cutlass.min(entry, self.table - 1), 0)]

    @cute.jit
    def stage(self, mma: cute.TiledMma, total: cute.Tensor, buffer: cute.Tensor) -> None:
        """Writes the slice as bf16 into the buffer whose store has been read, and completes it for the next store."""
        thread = cute.arch.thread_idx()[0]
        if thread == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=MATH_THREADS)
        copy = hopper.make_stage(mma)
        target = copy.get_slice(thread).partition_D(buffer)[(None, None, None, 0)]
        rounded = cute.make_rmem_tensor(target.shape, OUT)
        for i in cutlass.range_constexpr(self.values):
            rounded[i] = total[i].to(OUT)
        cute.copy(copy, rounded, target)
        if cutlass.const_expr(self.defect != "no-proxy-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=MATH_THREADS)


HopperSplitK.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[HopperSplitK, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k, table = config["m"], config["n"], config["k"], config["table"]
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_compact_tensor(ACC, (table,), assumed_align=16) if table else None,
        make_fake_stream(),
    )
    return HopperSplitK(config, defect), arguments
