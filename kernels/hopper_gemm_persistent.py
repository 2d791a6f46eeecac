"""Persistent bf16 GEMM for sm_90a: wgmma on two warpgroups, bulk tensor loads and stores.

C[m, n] = sum over k of A[m, k] * B[n, k], fp32 accumulation, 128 x 256 tiles, one CTA an SM that walks over the tiles
with the stride of the grid. The loads of the next tile run while this tile is rounded and stored.

Warps
    0-7  math   two warpgroups of 64 rows each: wgmma, then registers -> bf16 -> shared memory -> bulk tensor store
    8    load   bulk tensor loads of A and B

Barriers (mbarriers in shared memory; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads        math waits
    ab_empty[s]     count 8    math: one thread of each warp, after wait_group    load waits, and drains all before exit
    named 1 (256)   math, twice a subtile: the buffer is free again; the staged rows are complete

Stores: thread 0 issues all of them and leaves one in flight while the next subtile is staged in the other buffer. It
waits for the last ones before it leaves the kernel, because they still read shared memory of this CTA.

Defects (`build(config, defect)`)
    no-drain           the storing thread leaves while its last stores still read shared memory
    late-store-wait    the storing thread lets one store too many in flight, so a buffer is rewritten under it
    no-proxy-fence     the staged rows are not made visible to the async proxy before the store reads them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import hopper, operands
from kernels.operands import ACC, IN, OUT, TMA_ALIGN, Tile
from kernels.ring import Ring
from kernels.walk import Walk

NAME = "hopper_gemm_persistent"
MATH_WARPS = 8
MATH_THREADS = 256
LOAD_WARP = 8
THREADS = 288
STORE_BARRIER = 1
SUBTILE = 64  # columns of one store box: 128 bytes, the widest swizzle


@dataclass(frozen=True)
class Shared:
    """Shared memory of the CTA, as tensors and barriers."""

    a: cute.Tensor  # (M, K, stages)
    b: cute.Tensor  # (N, K, stages)
    c: cute.Tensor  # (M, SUBTILE, buffers)
    ring: Ring


class HopperGemm:
    """The kernel for one configuration; `defect` names the bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.stages = config["stages"]
        self.buffers = config["store_buffers"]
        self.max_ctas = config["max_ctas"]
        self.defect = defect

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches at most `max_ctas` CTAs, never more than there are tiles."""
        a_layout, a_atom, a_map = hopper.make_load(a, self.tile.m, self.tile.k, self.stages)
        b_layout, b_atom, b_map = hopper.make_load(b, self.tile.n, self.tile.k, self.stages)
        c_layout, c_atom, c_map = hopper.make_store(c, (self.tile.m, SUBTILE), self.buffers)
        tiles = cute.ceil_div(c.shape[0], self.tile.m) * cute.ceil_div(c.shape[1], self.tile.n)
        self.kernel(a_atom, a_map, b_atom, b_map, c_atom, c_map, a_layout, b_layout, c_layout).launch(
            grid=(cutlass.min(tiles, self.max_ctas), 1, 1), block=(THREADS, 1, 1), stream=stream
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
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = self.allocate(a_layout, b_layout, c_layout)
        if warp == LOAD_WARP:
            for atom in (a_atom, b_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared.ring)
        cute.arch.sync_threads()

        tiles_a = cute.local_tile(a_map, (self.tile.m, self.tile.k), (None, None))  # (M, K, tile rows, K tiles)
        tiles_b = cute.local_tile(b_map, (self.tile.n, self.tile.k), (None, None))  # (N, K, tile columns, K tiles)
        tiles_c = cute.local_tile(c_map, (self.tile.m, self.tile.n), (None, None))  # (M, N, tile rows, tile columns)
        k_tiles = cute.size(tiles_a, mode=[3])
        columns = cute.size(tiles_c, mode=[3])
        walk = Walk(cute.arch.block_idx()[0], cute.arch.grid_dim()[0], cute.size(tiles_c, mode=[2]) * columns, columns)

        if warp == LOAD_WARP:
            load_a = hopper.partition_load(a_atom, tiles_a, shared.a)
            load_b = hopper.partition_load(b_atom, tiles_b, shared.b)
            self.load_warp(load_a, load_b, shared.ring, walk, k_tiles)
        else:
            self.math_warps(c_atom, tiles_c, shared, walk, k_tiles)

    def allocate(self, a_layout: Any, b_layout: Any, c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the operand stages and the store buffers."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]

        smem = SmemAllocator()
        barriers = smem.allocate(Barriers)
        return Shared(
            a=smem.allocate_tensor(IN, a_layout.outer, TMA_ALIGN, a_layout.inner),
            b=smem.allocate_tensor(IN, b_layout.outer, TMA_ALIGN, b_layout.inner),
            c=smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            ring=Ring(barriers.ab_full.data_ptr(), barriers.ab_empty.data_ptr(), self.stages, self.tile.stage_bytes),
        )

    def init_barriers(self, ring: Ring) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            ring.init(MATH_WARPS)
            cute.arch.mbarrier_init_fence()

    @cute.jit
    def load_warp(self, a: operands.Loads, b: operands.Loads, ring: Ring, walk: Walk, k_tiles: Any) -> None:
        """Keeps the ring full, tile after tile."""
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        tile = walk.first
        while tile < walk.count:
            stage, parity = ring.fill(a, b, walk.coordinates(tile), (0, k_tiles), stage, parity)
            tile += walk.step
        ring.drain(stage, parity)

    @cute.jit
    def math_warps(self, c_atom: cute.CopyAtom, tiles_c: cute.Tensor, shared: Shared, walk: Walk, k_tiles: Any) -> None:
        """Multiplies and stores tile after tile."""
        thread = cute.arch.thread_idx()[0]
        mma = hopper.make_mma(self.tile)
        mine = mma.get_slice(thread)
        a = mma.make_fragment_A(mine.partition_A(shared.a))
        b = mma.make_fragment_B(mine.partition_B(shared.b))
        acc = cute.make_rmem_tensor(mma.partition_shape_C(self.tile.mnk[:2]), ACC)
        copy = hopper.make_stage(mma)
        staged = copy.get_slice(thread).partition_D(shared.c)  # (R2S, M, N, buffers)
        boxes, targets = cpasync.tma_partition(
            c_atom,
            0,
            cute.make_layout(1),
            cute.group_modes(shared.c, 0, 2),
            cute.group_modes(cute.flat_divide(tiles_c, (self.tile.m, SUBTILE)), 0, 2),
        )  # (box, buffers), (box, 1, subtiles, tile rows, tile columns)
        stage, parity = cutlass.Int32(0), cutlass.Int32(0)
        tile = walk.first
        while tile < walk.count:
            stage, parity = hopper.multiply(mma, acc, a, b, shared.ring, k_tiles, stage, parity)
            values = copy.retile(acc)
            row, column = walk.coordinates(tile)
            for subtile in cutlass.range_constexpr(self.tile.n // SUBTILE):
                self.stage(copy, values, staged, subtile)
                if thread == 0:
                    source, target = boxes[(None, subtile % self.buffers)], targets[(None, 0, subtile, row, column)]
                    cute.copy(c_atom, source, target)  # defect: no-drain, no-proxy-fence
                    cute.arch.cp_async_bulk_commit_group()
            tile += walk.step
        if cutlass.const_expr(self.defect != "no-drain"):  # noqa: SIM102 - compile time around run time
            if thread == 0:
                cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def stage(self, copy: cute.TiledCopy, values: cute.Tensor, staged: cute.Tensor, subtile: cutlass.Constexpr) -> None:
        """Writes one subtile as bf16 into the buffer whose store has been read, and completes it for the next store."""
        if cute.arch.thread_idx()[0] == 0:
            in_flight = self.buffers if self.defect == "late-store-wait" else self.buffers - 1
            cute.arch.cp_async_bulk_wait_group(in_flight, read=True)
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=MATH_THREADS)
        target = staged[(None, None, None, subtile % self.buffers)]
        rounded = cute.make_rmem_tensor(target.shape, OUT)
        count = cute.size(rounded)
        for i in cutlass.range_constexpr(count):
            rounded[i] = values[subtile * count + i].to(OUT)
        cute.copy(copy, rounded, target)  # defect: late-store-wait
        if cutlass.const_expr(self.defect != "no-proxy-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=MATH_THREADS)


HopperGemm.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[HopperGemm, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return HopperGemm(config, defect), arguments
