"""Persistent bf16 GEMM for sm_100a/sm_103a whose two accumulator regions overlap in tensor memory (TMEM).

C[m, n] = sum over k of A[m, k] * B[n, k], fp32 accumulation, 128 x 256 tiles, one CTA an SM that walks over the tiles
with the stride of the grid. The MMA of the next tile starts while the epilogue still reads the tile before it: the
last `reserved_columns` of the 512 TMEM columns stay free (block-scaled GEMMs keep their scale factors there), so two
regions of 256 columns do not fit side by side, and they share 48 columns:

    region 0 (even tiles)   columns [0, 256)
    region 1 (odd tiles)    columns [208, 464)

The epilogue reads the shared end of its region first (region 0 from the last subtile down, region 1 from the first
subtile up) and releases the accumulator after the last subtile that holds shared columns, two of eight, instead of
after the last subtile.

Warps
    0-3  epilogue   TMEM -> registers -> bf16 -> shared memory -> TMA store
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    load       TMA loads of A and B

Barriers (mbarriers in shared memory; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads      mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                              load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile        epilogue waits
    acc_empty       count 128  epilogue: every thread, after the last shared    mma waits, one tile behind
                               subtile has been read
    named 1 (128)   epilogue, twice a subtile: staged rows are complete; the buffer that comes next is free again
    named 2 (160)   mma and epilogue, twice: TMEM is allocated; all of TMEM has been read and may be freed
One tile is one phase of acc_full and acc_empty, so the region of a tile is also the parity of its phase.

Defects (`build(config, defect)`)
    release-before-load   the release stands before the load of the last shared subtile
    no-wait-ld            `tcgen05.wait::ld` is missing between the load and the release
    no-drain              the storing thread leaves while its last stores still read shared memory
    late-store-wait       the storing thread lets one store too many in flight, so a buffer is rewritten under it
    no-proxy-fence        the staged rows are not made visible to the async proxy before the store reads them
    no-fence              `tcgen05.fence::before_thread_sync` is missing before the relaxed release
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import common, operands, overlap, stores, tensor_core, tmem
from kernels.operands import IN, OUT, TMA_ALIGN, Loads, Tile
from kernels.overlap import SUBTILE
from kernels.ring import Ring
from kernels.walk import Walk

NAME = "gemm_persistent"
EPILOGUE_THREADS = 128
MMA_WARP = 4
LOAD_WARP = 5
THREADS = 192
TMEM_THREADS = 160
TMEM_BARRIER = 2
TMEM_COLUMNS = 512


@dataclass(frozen=True)
class Shared:
    """Shared memory of the CTA, as pointers and tensors."""

    a: cute.Tensor  # (MMA, M, K, stages)
    b: cute.Tensor  # (MMA, N, K, stages)
    c: cute.Tensor  # (M, SUBTILE, buffers)
    ring: Ring
    acc_full: cute.Pointer
    acc_empty: cute.Pointer
    tmem_address: cute.Pointer


class PersistentGemm:
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.stages = config["stages"]
        self.buffers = config["store_buffers"]
        self.max_ctas = config["max_ctas"]
        self.region_stride = TMEM_COLUMNS - config["reserved_columns"] - self.tile.n
        self.defect = defect

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches at most `max_ctas` CTAs, never more than there are tiles."""
        mma = operands.make_mma(self.tile)
        a_layout, a_atom, a_map = operands.make_load_a(a, mma, self.tile, self.stages)
        b_layout, b_atom, b_map = operands.make_load_b(b, mma, self.tile, self.stages)
        c_layout, c_atom, c_map = operands.make_store_c(c, (self.tile.m, SUBTILE), self.buffers)
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
        mma = operands.make_mma(self.tile)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = self.allocate(a_layout, b_layout, c_layout)
        if warp == LOAD_WARP:
            for atom in (a_atom, b_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        cute.arch.sync_threads()

        tiles_a = cute.local_tile(a_map, (self.tile.m, self.tile.k), (None, None))  # (M, K, tile rows, K tiles)
        tiles_b = cute.local_tile(b_map, (self.tile.n, self.tile.k), (None, None))  # (N, K, tile columns, K tiles)
        tiles_c = cute.local_tile(c_map, (self.tile.m, self.tile.n), (None, None))  # (M, N, tile rows, tile columns)
        k_tiles = cute.size(tiles_a, mode=[3])
        columns = cute.size(tiles_c, mode=[3])
        walk = Walk(cute.arch.block_idx()[0], cute.arch.grid_dim()[0], cute.size(tiles_c, mode=[2]) * columns, columns)

        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_a = operands.partition_load(a_atom, one_cta.partition_A(tiles_a), shared.a)
            load_b = operands.partition_load(b_atom, one_cta.partition_B(tiles_b), shared.b)
            self.load_warp(load_a, load_b, shared.ring, walk, k_tiles)
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, walk, k_tiles)
        else:
            self.epilogue_warps(mma, c_atom, tiles_c, shared, walk)

    def allocate(self, a_layout: Any, b_layout: Any, c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the operand stages and the store buffers."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            acc_full: cutlass.Int64
            acc_empty: cutlass.Int64
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        barriers = smem.allocate(Barriers)
        return Shared(
            a=smem.allocate_tensor(IN, a_layout.outer, TMA_ALIGN, a_layout.inner),
            b=smem.allocate_tensor(IN, b_layout.outer, TMA_ALIGN, b_layout.inner),
            c=smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            ring=Ring(barriers.ab_full.data_ptr(), barriers.ab_empty.data_ptr(), self.stages, self.tile.stage_bytes),
            acc_full=barriers.acc_full.ptr,
            acc_empty=barriers.acc_empty.ptr,
            tmem_address=barriers.tmem_address.ptr,
        )

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            shared.ring.init(1)
            cute.arch.mbarrier_init(shared.acc_full, 1)
            cute.arch.mbarrier_init(shared.acc_empty, EPILOGUE_THREADS)
            cute.arch.mbarrier_init_fence()

    @cute.jit
    def load_warp(self, a: Loads, b: Loads, ring: Ring, walk: Walk, k_tiles: Any) -> None:
        """Keeps the ring full, tile after tile."""
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        tile = walk.first
        while tile < walk.count:
            stage, parity = ring.fill(a, b, walk.coordinates(tile), (0, k_tiles), stage, parity)
            tile += walk.step
        ring.drain(stage, parity)

    @cute.jit
    def mma_warp(self, mma: cute.TiledMma, shared: Shared, walk: Walk, k_tiles: Any) -> None:
        """Allocates TMEM, multiplies tile after tile into alternating regions, frees TMEM at the end."""
        cute.arch.alloc_tmem(TMEM_COLUMNS, shared.tmem_address)
        cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.barrier(barrier_id=TMEM_BARRIER, number_of_threads=TMEM_THREADS)
        regions = self.regions(mma, shared)
        a, b = mma.make_fragment_A(shared.a), mma.make_fragment_B(shared.b)
        stage, parity, region = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        tile = walk.first
        while tile < walk.count:
            common.wait_relaxed_cluster(shared.acc_empty, region ^ 1)
            common.fence_tcgen05_after()
            acc = regions[(None, None, None, region)]
            stage, parity = tensor_core.multiply(mma, acc, a, b, shared.ring, k_tiles, stage, parity)
            with cute.arch.elect_one():
                tcgen05.commit(shared.acc_full)
            region ^= 1
            tile += walk.step
        cute.arch.barrier(barrier_id=TMEM_BARRIER, number_of_threads=TMEM_THREADS)
        common.fence_tcgen05_after()
        cute.arch.dealloc_tmem(regions.iterator, TMEM_COLUMNS)

    def regions(self, mma: cute.TiledMma, shared: Shared) -> cute.Tensor:
        """Both accumulator regions (MMA, 1, 1, 2) at the address that the allocation left in shared memory."""
        return overlap.regions(tmem.accumulator(mma, self.tile.mnk[:2], shared.tmem_address), self.region_stride)

    @cute.jit
    def epilogue_warps(
        self, mma: cute.TiledMma, c_atom: cute.CopyAtom, tiles_c: cute.Tensor, shared: Shared, walk: Walk
    ) -> None:
        """Drains tile after tile, shared columns first, and releases each accumulator as early as it may."""
        cute.arch.barrier(barrier_id=TMEM_BARRIER, number_of_threads=TMEM_THREADS)
        subtiles = overlap.subtiles(self.regions(mma, shared), self.tile.mnk[:2], self.region_stride, shared.acc_empty)
        targets = cute.flat_divide(tiles_c, (self.tile.m, SUBTILE))  # (M, SUBTILE, 1, subtiles, tile rows, columns)
        store = stores.make(subtiles.load, c_atom, shared.c, targets)
        region, buffer = cutlass.Int32(0), cutlass.Int32(0)
        tile = walk.first
        while tile < walk.count:
            common.wait_relaxed_cluster(shared.acc_full, region)
            common.fence_tcgen05_after()
            for step in cutlass.range(subtiles.steps, unroll=1):
                subtile = subtiles.read(step, region, self.defect)
                store.put(subtiles.values, buffer, (0, subtile, *walk.coordinates(tile)), self.defect)
                buffer, _ = common.advance(buffer, 0, self.buffers)
            region ^= 1
            tile += walk.step
        store.drain(self.defect)
        common.fence_tcgen05_before()
        cute.arch.barrier(barrier_id=TMEM_BARRIER, number_of_threads=TMEM_THREADS)


PersistentGemm.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[PersistentGemm, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return PersistentGemm(config, defect), arguments
