"""Block-scaled grouped GEMM with overlapping accumulators: everything but what an epilogue does with the sums.

    S[r, n] = sum over k of A[r, k] * B[e, n, k]

A, B: MXFP8 (kernels/scaled.py). Rows are sorted by expert; those of expert e end at `offsets[e]`, a multiple of 128,
and an expert may have none. Tiles of 128 x 256, K tiles of 128, one CTA an SM; a scheduler warp finds its tiles. The
result D is quantized in the epilogue: 32 neighbouring columns share one e8m0 scale factor, stored in the order in which
the tensor core takes it. 4 stages of scale factors take 48 of the 512 TMEM columns (464 to 511), so the two accumulator
regions overlap by 48 columns (kernels/overlap.py): region 0 is columns [0, 256), region 1 is [208, 464).

Warps
    0-3  epilogue    TMEM -> registers -> activation -> quantization -> shared memory -> bulk tensor store
    4    mma         allocates TMEM, copies scale factors to it, issues tcgen05.mma, frees TMEM
    5    load        bulk tensor loads of A, B and their scale factors
    6    scheduler   finds tiles (kernels/tile_queue.py)
    7    c load      bulk tensor loads of C, in kernels whose epilogue reads one

Barriers (mbarriers in shared memory; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of four loads     mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                              load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile        epilogue waits
    acc_empty       count 128  epilogue: every thread, after the last shared    mma waits, one tile behind
                               subtile has been read
    queue_full[q]   count 1    scheduler: one thread, after it wrote the slot   all other warps wait
    queue_empty[q]  count 192  every thread of the other warps, after it read   scheduler waits
                               the slot (224 with c load)
    tmem            count 160  mma (32) and epilogue (128), twice               both wait for each phase
                               (kernels/tmem.py)
    c_full[i]       count 1    c load: arrive.expect_tx + bytes of one load     epilogue waits
    c_empty[i]      count 128  epilogue: every thread, after it read its row    c load waits, and drains all
    tmem_peer       count 32   mma of the other CTA of a pair, after phase 1    mma waits, then both free TMEM
                               of its tmem
    named 1 (128)   epilogue, twice a box (kernels/stores.py)
One tile is one phase of acc_full and acc_empty, so the region of a tile is also the parity of its phase.

With `ctas` = 2 the CTAs of a cluster share tiles of 256 x 256 (kernels/pairs.py); rows of an expert end at multiples of
256. The mma warp of the leader issues for both: ab_full and acc_empty (count 256) are the leader's alone, its commits
signal ab_empty and acc_full of both CTAs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator, blockscaled_layout

from kernels import common, operands, overlap, pairs, scaled, stores, tile_queue, tmem
from kernels.boxes import Boxes
from kernels.operands import ACC, OUT, TMA_ALIGN, Tile
from kernels.overlap import SUBTILE, Subtiles
from kernels.ring import Ring
from kernels.scaled import Scaled
from kernels.stores import Stores
from kernels.tile_queue import TileQueue

EPILOGUE_THREADS = 128
MMA_WARP = 4
LOAD_WARP = 5
SCHEDULER_WARP = 6
C_LOAD_WARP = 7
TMEM_THREADS = 160
TMEM_COLUMNS = 512
QUEUE_SLOTS = 2
C_BUFFERS = 2


@dataclass(frozen=True)
class Shared:
    """Shared memory of the CTA, as tensors and barriers."""

    a: scaled.Stages
    b: scaled.Stages
    d: cute.Tensor  # (M, SUBTILE, buffers), fp8
    c: Boxes | None  # bf16, read or written
    ring: Ring
    queue: TileQueue
    acc_full: cute.Pointer
    acc_empty: cute.Pointer
    tmem: cute.Pointer
    tmem_address: cute.Pointer
    tmem_peer: cute.Pointer | None


@dataclass(frozen=True)
class Results:
    """Where the epilogue finds and leaves things in global memory, apart from the boxes."""

    factors: cute.Tensor  # one fp32 for each row or expert
    scales: cute.Tensor  # scale factors of D as bytes, by row and column


class GroupedGemm:
    """A kernel in one configuration; `defect` names the reported bug to build in, None builds the good kernel.

    A kernel of this kind says whether its epilogue reads or writes a bf16 matrix C beside D, and gives `activate`.
    """

    reads_c = False
    writes_c = False

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.stages = config["stages"]
        self.buffers = config["store_buffers"]
        self.max_ctas = config["max_ctas"]
        self.ctas = config["ctas"]  # that share a tile
        self.rows = self.tile.m // self.ctas  # of a tile that one CTA has
        self.scale_columns = scaled.columns(self.tile, self.ctas)  # of one stage
        self.first_scale_column = TMEM_COLUMNS - self.stages * self.scale_columns
        self.region_stride = self.first_scale_column - self.tile.n
        self.warps = C_LOAD_WARP + self.reads_c
        self.defect = defect

    def activate(self, values: cute.Tensor, c: cute.Tensor | None, factor: Any) -> None:
        """Turns the sums of one subtile into D before quantization, in place; `c` as it is read or to be written."""
        raise NotImplementedError

    def factor(self, factors: cute.Tensor, row: Any, expert: Any) -> Any:
        """The factor that `activate` gets for one row."""
        return factors[row]

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        a_scales: cute.Tensor,
        b: cute.Tensor,
        b_scales: cute.Tensor,
        offsets: cute.Tensor,
        factors: cute.Tensor,
        c: cute.Tensor | None,
        d: cute.Tensor,
        d_scales: cute.Tensor,
        stream: Any,
    ) -> None:
        """Launches `max_ctas` CTAs."""
        load_a = scaled.make_loads(a, a_scales, self.tile, self.ctas, self.stages, True)
        load_b = scaled.make_loads(b, b_scales, self.tile, self.ctas, self.stages, False)
        d_layout, d_atom, d_map = operands.make_store_c(d, (self.rows, SUBTILE), self.buffers)
        c_layout, c_atom, c_map = None, None, None
        if cutlass.const_expr(self.writes_c):
            c_layout, c_atom, c_map = operands.make_store_c(c, (self.rows, SUBTILE), self.buffers)
        if cutlass.const_expr(self.reads_c):
            c_layout, c_atom, c_map = operands.make_box_load(c, (self.rows, SUBTILE), C_BUFFERS)
        order = blockscaled_layout.tile_atom_to_shape_SF((d.shape[0], d.shape[1], 1), scaled.VECTOR)
        results = Results(factors, cute.make_tensor(d_scales.iterator, order))
        self.kernel(load_a, load_b, (d_atom, d_map, d_layout), (c_atom, c_map, c_layout), offsets, results).launch(
            grid=(self.max_ctas, 1, 1),
            block=(self.warps * cute.arch.WARP_SIZE, 1, 1),
            cluster=(self.ctas, 1, 1) if self.ctas > 1 else None,
            stream=stream,
            min_blocks_per_mp=1,  # otherwise the assembler aims at more CTAs than shared memory allows, and spills
        )

    @cute.kernel
    def kernel(
        self,
        a: Scaled,
        b: Scaled,
        d: tuple[cute.CopyAtom, cute.Tensor, Any],
        c: tuple[cute.CopyAtom | None, cute.Tensor | None, Any],
        offsets: cute.Tensor,
        results: Results,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = self.allocate(a, b, d[2], c[2])
        if warp == LOAD_WARP:
            for atom in (a.atom, a.scale_atom, b.atom, b.scale_atom, d[0]):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        pairs.begin(self.ctas)

        tiles_d = cute.local_tile(d[1], (self.rows, self.tile.n), (None, None))  # (M, N, row tiles, columns)
        k_tiles = cute.ceil_div(cute.size(a.map, mode=[1]), self.tile.k)
        if warp == LOAD_WARP:
            self.load_warp(a, b, shared, k_tiles)
        elif warp == MMA_WARP:
            self.mma_warp(shared, k_tiles)
        elif warp == SCHEDULER_WARP:
            shared.queue.schedule(offsets, self.tile.m, cute.size(tiles_d, mode=[3]), self.ctas)
        else:
            if cutlass.const_expr(self.reads_c):
                if warp == C_LOAD_WARP:
                    self.c_load_warp(c, shared)
                else:
                    self.epilogue_warps(d[0], tiles_d, c, shared, results)
            else:
                self.epilogue_warps(d[0], tiles_d, c, shared, results)
        pairs.end(self.ctas)

    def allocate(self, a: Scaled, b: Scaled, d_layout: Any, c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the queue, the operand stages and the boxes."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            acc_full: cutlass.Int64
            acc_empty: cutlass.Int64
            queue_full: cute.struct.MemRange[cutlass.Int64, QUEUE_SLOTS]
            queue_empty: cute.struct.MemRange[cutlass.Int64, QUEUE_SLOTS]
            tmem: cutlass.Int64
            c_full: cute.struct.MemRange[cutlass.Int64, C_BUFFERS]
            c_empty: cute.struct.MemRange[cutlass.Int64, C_BUFFERS]
            tmem_peer: cutlass.Int64
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        stage_bytes = scaled.stage_bytes(self.tile, self.ctas)
        queue = tile_queue.allocate(smem, bars.queue_full.data_ptr(), bars.queue_empty.data_ptr(), QUEUE_SLOTS)
        return Shared(
            a=scaled.allocate(smem, a.layout, a.scale_layout),
            b=scaled.allocate(smem, b.layout, b.scale_layout),
            d=smem.allocate_tensor(scaled.VALUE, d_layout.outer, TMA_ALIGN, d_layout.inner),
            c=None if c_layout is None else self.boxes(smem, bars, c_layout),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, stage_bytes),
            queue=queue,
            acc_full=bars.acc_full.ptr,
            acc_empty=bars.acc_empty.ptr,
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
            tmem_peer=bars.tmem_peer.ptr if self.ctas > 1 else None,
        )

    def boxes(self, smem: SmemAllocator, bars: Any, layout: Any) -> Boxes:
        """Room for boxes of C."""
        room = smem.allocate_tensor(OUT, layout.outer, TMA_ALIGN, layout.inner)
        return Boxes(room, bars.c_full.data_ptr(), bars.c_empty.data_ptr(), cute.size(room, mode=[2]))

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            shared.ring.init(1)
            shared.queue.init((self.warps - 1) * cute.arch.WARP_SIZE)
            cute.arch.mbarrier_init(shared.acc_full, 1)
            cute.arch.mbarrier_init(shared.acc_empty, EPILOGUE_THREADS * self.ctas)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            if self.ctas > 1:
                cute.arch.mbarrier_init(shared.tmem_peer, cute.arch.WARP_SIZE)
            if self.reads_c:
                shared.c.init()
            cute.arch.mbarrier_init_fence()

    @cute.jit
    def load_warp(self, a: Scaled, b: Scaled, shared: Shared, k_tiles: Any) -> None:
        """Keeps the ring full, tile after tile."""
        load_a = scaled.loads(a, shared.a, self.tile, self.ctas, True)
        load_b = scaled.loads(b, shared.b, self.tile, self.ctas, False)
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        row, column, expert, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            tile = (row, column, expert)
            stage, parity = scaled.fill(shared.ring, load_a, load_b, tile, k_tiles, stage, parity, self.ctas)
            row, column, expert, valid, slot, full = shared.queue.take(slot, full)
        shared.ring.drain(stage, parity)

    @cute.jit
    def mma_warp(self, shared: Shared, k_tiles: Any) -> None:
        """Allocates TMEM, multiplies tile after tile into alternating regions, frees TMEM at the end."""
        tmem.allocate(shared.tmem, shared.tmem_address, TMEM_COLUMNS, self.ctas)
        mma = scaled.make_mma(self.tile, self.ctas)
        regions = self.regions(mma, shared)
        leads = pairs.rank(self.ctas) == 0
        stage, parity, region = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        _, _, _, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            if leads:
                stage, parity = self.multiply(mma, regions, shared, k_tiles, region, stage, parity)
            region ^= 1
            _, _, _, valid, slot, full = shared.queue.take(slot, full)
        tmem.free(shared.tmem, regions, TMEM_COLUMNS, self.defect, shared.tmem_peer)

    @cute.jit
    def multiply(
        self,
        mma: cute.TiledMma,
        regions: cute.Tensor,
        shared: Shared,
        k_tiles: Any,
        region: cutlass.Int32,
        stage: cutlass.Int32,
        parity: cutlass.Int32,
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """Multiplies one tile into a region once it is free; where the ring stands afterwards."""
        factors = self.factors(shared, regions.iterator)
        a, b = mma.make_fragment_A(shared.a.values), mma.make_fragment_B(shared.b.values)
        common.wait_relaxed_cluster(shared.acc_empty, region ^ 1)
        common.fence_tcgen05_after()
        acc = regions[(None, None, None, region)]
        stage, parity = scaled.multiply(mma, acc, a, b, factors, shared.ring, k_tiles, stage, parity, self.ctas)
        pairs.commit(shared.acc_full, self.ctas)
        return stage, parity

    def regions(self, mma: cute.TiledMma, shared: Shared) -> cute.Tensor:
        """Both accumulator regions (MMA, 1, 1, 2) at the address that the allocation left in shared memory."""
        return overlap.regions(tmem.accumulator(mma, self.tile.mnk[:2], shared.tmem_address), self.region_stride)

    def factors(self, shared: Shared, start: cute.Pointer) -> tuple[scaled.ScaleFactors, scaled.ScaleFactors]:
        """Scale factors of both operands, stage by stage at the end of TMEM."""
        a_start = start + self.first_scale_column
        b_start = a_start + self.rows // scaled.ROWS_OF_COLUMN
        return (
            scaled.make_factors(self.tile, self.ctas, shared.a.scales, a_start, self.scale_columns, True),
            scaled.make_factors(self.tile, self.ctas, shared.b.scales, b_start, self.scale_columns, False),
        )

    def row_tile(self, row: Any) -> Any:
        """This CTA's row of tiles in D and C, where `row` is that of the tile which the pair shares."""
        return row * self.ctas + pairs.rank(self.ctas)

    @cute.jit
    def c_load_warp(self, c: tuple[Any, Any, Any], shared: Shared) -> None:
        """Loads C in the order in which the epilogue goes through each tile."""
        tiles = cute.local_tile(c[1], (self.rows, self.tile.n), (None, None))
        boxes, sources = shared.c.partition(c[0], tiles)
        steps = self.tile.n // SUBTILE
        buffer, parity, region = cutlass.Int32(0), cutlass.Int32(1), cutlass.Int32(0)
        row, column, _, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            for step in cutlass.range(steps, unroll=1):
                subtile = step
                if region == 0:
                    subtile = steps - 1 - step
                source = sources[(None, 0, subtile, self.row_tile(row), column)]
                shared.c.load(c[0], source, boxes[(None, buffer)], buffer, parity)
                buffer, parity = common.advance(buffer, parity, C_BUFFERS)
            region ^= 1
            row, column, _, valid, slot, full = shared.queue.take(slot, full)
        shared.c.drain(buffer, parity)

    @cute.jit
    def epilogue_warps(
        self, d_atom: cute.CopyAtom, tiles_d: cute.Tensor, c: tuple[Any, Any, Any], shared: Shared, results: Results
    ) -> None:
        """Activates, quantizes and stores tile after tile; releases each accumulator as early as it may."""
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        regions = self.regions(scaled.make_mma(self.tile, self.ctas), shared)
        shape = (self.rows, self.tile.n)
        subtiles = overlap.subtiles(regions, shape, self.region_stride, shared.acc_empty, self.ctas)
        store_d = self.store(d_atom, tiles_d, shared.d, subtiles)
        store_c = None
        if cutlass.const_expr(self.writes_c):
            store_c = self.store(c[0], cute.local_tile(c[1], shape, (None, None)), shared.c.room, subtiles)
        region, buffer = cutlass.Int32(0), cutlass.Int32(0)
        c_buffer, c_parity = cutlass.Int32(0), cutlass.Int32(0)
        row_tile, column, expert, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            row_tile = self.row_tile(row_tile)
            row = row_tile * self.rows + cute.arch.thread_idx()[0]
            factor = self.factor(results.factors, row, expert)
            common.wait_relaxed_cluster(shared.acc_full, region)
            common.fence_tcgen05_after()
            for step in cutlass.range(subtiles.steps, unroll=1):
                subtile = subtiles.read(step, region, self.defect)
                c_row = self.read_c(shared, c_buffer, c_parity, subtiles.values.shape)
                self.activate(subtiles.values, c_row, factor)
                target = (0, subtile, row_tile, column)
                if cutlass.const_expr(self.writes_c):
                    store_c.put(c_row, buffer, target, self.defect)
                scale = scaled.quantize(subtiles.values)
                results.scales[(row, column * self.tile.n + subtile * SUBTILE, 0)] = scale
                store_d.put(subtiles.values, buffer, target, self.defect)
                buffer, _ = common.advance(buffer, 0, self.buffers)
                c_buffer, c_parity = common.advance(c_buffer, c_parity, C_BUFFERS)
            region ^= 1
            row_tile, column, expert, valid, slot, full = shared.queue.take(slot, full)
        store_d.drain(self.defect)
        common.fence_tcgen05_before()
        common.arrive(shared.tmem)

    def store(self, atom: cute.CopyAtom, tiles: cute.Tensor, room: cute.Tensor, subtiles: Subtiles) -> Stores:
        """Stores of boxes of SUBTILE columns into a matrix cut into tiles."""
        targets = cute.flat_divide(tiles, (self.rows, SUBTILE))  # (M, SUBTILE, 1, subtiles, row tiles, columns)
        return stores.make(subtiles.load, atom, room, targets)

    @cute.jit
    def read_c(self, shared: Shared, buffer: Any, parity: Any, shape: cutlass.Constexpr) -> cute.Tensor | None:
        """This thread's row of C for one subtile as fp32: read, or room for what will be written, or None."""
        row = None
        if cutlass.const_expr(self.reads_c or self.writes_c):
            row = cute.make_rmem_tensor(shape, ACC)
        if cutlass.const_expr(self.reads_c):
            shared.c.read(row, buffer, parity)
        return row
