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
    named 1 (128)   epilogue, twice a box (kernels/stores.py)
One tile is one phase of acc_full and acc_empty, so the region of a tile is also the parity of its phase.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import SmemAllocator, blockscaled_layout

from kernels import common, operands, overlap, scaled, stores, tile_queue, tmem
from kernels.operands import ACC, OUT, TMA_ALIGN, Tile
from kernels.overlap import SUBTILE, Subtiles
from kernels.ring import Ring
from kernels.scaled import Scaled, ScaledLoads
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
    c: cute.Tensor | None  # (M, SUBTILE, buffers), bf16
    ring: Ring
    queue: TileQueue
    acc_full: cute.Pointer
    acc_empty: cute.Pointer
    tmem: cute.Pointer
    tmem_address: cute.Pointer
    c_full: cute.Pointer
    c_empty: cute.Pointer


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
        self.scale_columns = scaled.columns(self.tile)  # of one stage
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
        mma = scaled.make_mma(self.tile)
        load_a = scaled.make_loads(a, a_scales, mma, self.tile, self.stages, True)
        load_b = scaled.make_loads(b, b_scales, mma, self.tile, self.stages, False)
        d_layout, d_atom, d_map = operands.make_store_c(d, (self.tile.m, SUBTILE), self.buffers)
        c_layout, c_atom, c_map = None, None, None
        if cutlass.const_expr(self.writes_c):
            c_layout, c_atom, c_map = operands.make_store_c(c, (self.tile.m, SUBTILE), self.buffers)
        if cutlass.const_expr(self.reads_c):
            c_layout, c_atom, c_map = operands.make_box_load(c, (self.tile.m, SUBTILE), C_BUFFERS)
        order = blockscaled_layout.tile_atom_to_shape_SF((d.shape[0], d.shape[1], 1), scaled.VECTOR)
        results = Results(factors, cute.make_tensor(d_scales.iterator, order))
        self.kernel(load_a, load_b, (d_atom, d_map, d_layout), (c_atom, c_map, c_layout), offsets, results).launch(
            grid=(self.max_ctas, 1, 1),
            block=(self.warps * cute.arch.WARP_SIZE, 1, 1),
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
        cute.arch.sync_threads()

        tiles_d = cute.local_tile(d[1], self.tile.mnk[:2], (None, None))  # (M, N, row tiles, columns)
        k_tiles = cute.ceil_div(cute.size(a.map, mode=[1]), self.tile.k)
        if warp == LOAD_WARP:
            self.load_warp(a, b, shared, k_tiles)
        elif warp == MMA_WARP:
            self.mma_warp(shared, k_tiles)
        elif warp == SCHEDULER_WARP:
            shared.queue.schedule(offsets, self.tile.m, cute.size(tiles_d, mode=[3]))
        else:
            if cutlass.const_expr(self.reads_c):
                if warp == C_LOAD_WARP:
                    self.c_load_warp(c, shared)
                else:
                    self.epilogue_warps(d[0], tiles_d, c, shared, results)
            else:
                self.epilogue_warps(d[0], tiles_d, c, shared, results)

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
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        queue = tile_queue.allocate(smem, bars.queue_full.data_ptr(), bars.queue_empty.data_ptr(), QUEUE_SLOTS)
        return Shared(
            a=scaled.allocate(smem, a.layout, a.scale_layout),
            b=scaled.allocate(smem, b.layout, b.scale_layout),
            d=smem.allocate_tensor(scaled.VALUE, d_layout.outer, TMA_ALIGN, d_layout.inner),
            c=None if c_layout is None else smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, scaled.stage_bytes(self.tile)),
            queue=queue,
            acc_full=bars.acc_full.ptr,
            acc_empty=bars.acc_empty.ptr,
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
            c_full=bars.c_full.data_ptr(),
            c_empty=bars.c_empty.data_ptr(),
        )

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            shared.ring.init(1)
            shared.queue.init((self.warps - 1) * cute.arch.WARP_SIZE)
            cute.arch.mbarrier_init(shared.acc_full, 1)
            cute.arch.mbarrier_init(shared.acc_empty, EPILOGUE_THREADS)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            if self.reads_c:
                for buffer in range(C_BUFFERS):
                    cute.arch.mbarrier_init(shared.c_full + buffer, 1)
                    cute.arch.mbarrier_init(shared.c_empty + buffer, EPILOGUE_THREADS)
            cute.arch.mbarrier_init_fence()

    def loads(self, x: Scaled, stages: scaled.Stages, is_a: bool) -> ScaledLoads:
        """One operand cut into tiles, as the load warp needs it."""
        one_cta = scaled.make_mma(self.tile).get_slice(0)
        partition = one_cta.partition_A if is_a else one_cta.partition_B
        shape = (self.tile.m if is_a else self.tile.n, self.tile.k)
        tiles, scales = (partition(cute.local_tile(y, shape, (None, None, None))) for y in (x.map, x.scale_map))
        return ScaledLoads(
            scaled.partition(x.atom, tiles, stages.values), scaled.partition(x.scale_atom, scales, stages.scales)
        )

    @cute.jit
    def load_warp(self, a: Scaled, b: Scaled, shared: Shared, k_tiles: Any) -> None:
        """Keeps the ring full, tile after tile."""
        load_a, load_b = self.loads(a, shared.a, True), self.loads(b, shared.b, False)
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        row, column, expert, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            stage, parity = scaled.fill(shared.ring, load_a, load_b, (row, column, expert), k_tiles, stage, parity)
            row, column, expert, valid, slot, full = shared.queue.take(slot, full)
        shared.ring.drain(stage, parity)

    @cute.jit
    def mma_warp(self, shared: Shared, k_tiles: Any) -> None:
        """Allocates TMEM, multiplies tile after tile into alternating regions, frees TMEM at the end."""
        tmem.allocate(shared.tmem, shared.tmem_address, TMEM_COLUMNS)
        mma = scaled.make_mma(self.tile)
        regions = self.regions(mma, shared)
        factors = self.factors(mma, shared, regions.iterator)
        a, b = mma.make_fragment_A(shared.a.values), mma.make_fragment_B(shared.b.values)
        stage, parity, region = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        _, _, _, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            common.wait_relaxed_cluster(shared.acc_empty, region ^ 1)
            common.fence_tcgen05_after()
            acc = regions[(None, None, None, region)]
            stage, parity = scaled.multiply(mma, acc, a, b, factors, shared.ring, k_tiles, stage, parity)
            with cute.arch.elect_one():
                tcgen05.commit(shared.acc_full)
            region ^= 1
            _, _, _, valid, slot, full = shared.queue.take(slot, full)
        tmem.free(shared.tmem, regions, TMEM_COLUMNS, self.defect)

    def regions(self, mma: cute.TiledMma, shared: Shared) -> cute.Tensor:
        """Both accumulator regions (MMA, 1, 1, 2) at the address that the allocation left in shared memory."""
        return overlap.regions(tmem.accumulator(mma, self.tile.mnk[:2], shared.tmem_address), self.region_stride)

    def factors(
        self, mma: cute.TiledMma, shared: Shared, start: cute.Pointer
    ) -> tuple[scaled.ScaleFactors, scaled.ScaleFactors]:
        """Scale factors of both operands, stage by stage at the end of TMEM."""
        a_start = start + self.first_scale_column
        b_start = a_start + self.tile.m // scaled.ROWS_OF_COLUMN
        return (
            scaled.make_factors(mma, self.tile, shared.a.scales, a_start, self.scale_columns, True),
            scaled.make_factors(mma, self.tile, shared.b.scales, b_start, self.scale_columns, False),
        )

    @cute.jit
    def c_load_warp(self, c: tuple[Any, Any, Any], shared: Shared) -> None:
        """Loads C in the order in which the epilogue goes through each tile."""
        atom, coordinates, _ = c
        tiles = cute.local_tile(coordinates, self.tile.mnk[:2], (None, None))
        boxes, sources = cpasync.tma_partition(
            atom,
            0,
            cute.make_layout(1),
            cute.group_modes(shared.c, 0, 2),
            cute.group_modes(cute.flat_divide(tiles, (self.tile.m, SUBTILE)), 0, 2),
        )  # (box, buffers), (box, 1, subtiles, row tiles, columns)
        steps = self.tile.n // SUBTILE
        size = self.tile.m * SUBTILE * OUT.width // 8
        buffer, parity, region = cutlass.Int32(0), cutlass.Int32(1), cutlass.Int32(0)
        row, column, _, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            for step in cutlass.range(steps, unroll=1):
                subtile = step
                if region == 0:
                    subtile = steps - 1 - step
                common.wait(shared.c_empty + buffer, parity)
                bar = shared.c_full + buffer
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(bar, size)
                cute.copy(atom, sources[(None, 0, subtile, row, column)], boxes[(None, buffer)], tma_bar_ptr=bar)
                buffer, parity = common.advance(buffer, parity, C_BUFFERS)
            region ^= 1
            row, column, _, valid, slot, full = shared.queue.take(slot, full)
        for _ in cutlass.range(C_BUFFERS, unroll=1):
            common.wait(shared.c_empty + buffer, parity)
            buffer, parity = common.advance(buffer, parity, C_BUFFERS)

    @cute.jit
    def epilogue_warps(
        self, d_atom: cute.CopyAtom, tiles_d: cute.Tensor, c: tuple[Any, Any, Any], shared: Shared, results: Results
    ) -> None:
        """Activates, quantizes and stores tile after tile; releases each accumulator as early as it may."""
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        regions = self.regions(scaled.make_mma(self.tile), shared)
        subtiles = overlap.subtiles(regions, self.tile.mnk[:2], self.region_stride, shared.acc_empty)
        store_d = self.store(d_atom, tiles_d, shared.d, subtiles)
        store_c = None
        if cutlass.const_expr(self.writes_c):
            tiles_c = cute.local_tile(c[1], self.tile.mnk[:2], (None, None))
            store_c = self.store(c[0], tiles_c, shared.c, subtiles)
        region, buffer = cutlass.Int32(0), cutlass.Int32(0)
        c_buffer, c_parity = cutlass.Int32(0), cutlass.Int32(0)
        row_tile, column, expert, valid, slot, full = shared.queue.take(cutlass.Int32(0), cutlass.Int32(0))
        while valid != 0:
            row = row_tile * self.tile.m + cute.arch.thread_idx()[0]
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
        targets = cute.flat_divide(tiles, (self.tile.m, SUBTILE))  # (M, SUBTILE, 1, subtiles, row tiles, columns)
        return stores.make(subtiles.load, atom, room, targets)

    @cute.jit
    def read_c(self, shared: Shared, buffer: Any, parity: Any, shape: cutlass.Constexpr) -> cute.Tensor | None:
        """This thread's row of C for one subtile as fp32: read, or room for what will be written, or None."""
        row = None
        if cutlass.const_expr(self.reads_c or self.writes_c):
            row = cute.make_rmem_tensor(shape, ACC)
        if cutlass.const_expr(self.reads_c):
            loaded = cute.make_rmem_tensor(SUBTILE, OUT)
            common.wait(shared.c_full + buffer, parity)
            cute.autovec_copy(shared.c[(cute.arch.thread_idx()[0], None, buffer)], loaded)
            common.arrive(shared.c_empty + buffer)
            for i in cutlass.range_constexpr(SUBTILE):
                row[i] = loaded[i].to(ACC)
        return row


def fake_arguments(config: Mapping[str, Any], factors: int, with_c: bool) -> tuple[Any, ...]:
    """Arguments to compile a grouped kernel with; it takes `factors` factors, and C if `with_c`."""
    rows, n, k, experts = config["rows"], config["n"], config["k"], config["experts"]
    return (
        scaled.fake_values(rows, k, 1),
        scaled.fake_scales(rows, k, 1),
        scaled.fake_values(n, k, experts),
        scaled.fake_scales(n, k, experts),
        make_fake_compact_tensor(cutlass.Int32, (experts,), assumed_align=16),
        make_fake_compact_tensor(ACC, (factors,), assumed_align=16),
        operands.fake_matrix(rows, n, OUT) if with_c else None,
        operands.fake_matrix(rows, n, scaled.VALUE),
        make_fake_compact_tensor(cutlass.Uint8, (rows * n // scaled.VECTOR,), assumed_align=16),
        make_fake_stream(),
    )
