"""First grouped GEMM of a mixture of experts with gathered tokens and SwiGLU, bf16, persistent, sm_100a/sm_103a.

Rows of the result are sorted by expert, the rows of each expert padded to a multiple of 128. Row r belongs to token
`tokens[r]` and to the expert e = `experts[r / 128]`:

    C[r, n] = silu(sum over k of X[tokens[r], k] * G[e, n, k]) * (sum over k of X[tokens[r], k] * U[e, n, k])

`tiles[0]` is the number of row tiles that are in use, known on the device only. Padding rows name any token; nobody
reads their results. Blocks of 64 rows of G and U alternate in one weight matrix, so a tile of 128 weight rows gives 64
columns of C. fp32 accumulation, tiles of 128 rows, one CTA an SM that walks over the tiles with the stride of the grid.

Warps
    0-3  epilogue   TMEM -> registers -> SwiGLU -> bf16 -> shared memory -> bulk tensor store
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    load       bulk tensor loads of the weights
    6-9  gather     cp.async of the rows of X, 16 bytes a thread

Barriers (mbarriers in shared memory; count = arrivals a phase)
    ab_full[s]      count 129  load: arrive.expect_tx + bytes of one load; gather: every thread, after its copies have
                               completed and `fence.proxy.async` has shown them to the tensor core    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit              load and gather wait; load drains all before exit
    acc_full[p]     count 1    mma: tcgen05.commit after the last K tile    epilogue waits
    acc_empty[p]    count 128  epilogue: every thread, after its last load from accumulator p    mma waits
    tmem            count 160  mma (32) and epilogue (128), twice           both wait for each phase (kernels/tmem.py)
    named 1 (128)   epilogue, twice a box (kernels/stores.py)
Tiles alternate between the two accumulators.

Defects (`build(config, defect)`)
    no-drain               the storing thread leaves while its last stores still read shared memory
    late-store-wait        the storing thread lets one store too many in flight, so a buffer is rewritten under it
    no-proxy-fence         the staged rows are not made visible to the async proxy before the store reads them
    no-gather-fence        the gathered rows are not made visible to the async proxy before the MMA reads them
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import common, operands, stores, tensor_core, tmem
from kernels.operands import ACC, IN, OUT, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring
from kernels.scaled import Scaled, Stages
from kernels.walk import Walk

NAME = "moe_gg1"
EPILOGUE_THREADS = 128
GATHER_THREADS = 128
MMA_WARP = 4
LOAD_WARP = 5
GATHER_WARP = 6  # the first of four
THREADS = 320
TMEM_THREADS = 160
ACCUMULATORS = 2
SUBTILE = 32  # columns of C that one epilogue step computes
CHUNK_BITS = 128  # that one cp.async copies
IN_FLIGHT = 2  # K tiles that a gathering thread keeps under way


@dataclass(frozen=True)
class Shared:
    """Shared memory of the CTA, as tensors and barriers."""

    a: Stages
    rows: cute.Tensor  # (M, K, stages): the same memory as the values of `a`
    b: Stages
    c: cute.Tensor  # (M, SUBTILE, buffers)
    ring: Ring
    acc_full: cute.Pointer
    acc_empty: cute.Pointer
    tmem: cute.Pointer
    tmem_address: cute.Pointer


@dataclass(frozen=True)
class Routing:
    """Which token each row is, which expert each row tile belongs to, and a factor for each expert."""

    tokens: cute.Tensor
    experts: cute.Tensor
    alpha: cute.Tensor | None


class MoeGg1:
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel.

    What depends on the element type stands in methods of its own, which kernels/moe_gg1_nvfp4.py replaces.
    """

    dtype = IN

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.half = self.tile.n // 2  # columns of C of one tile
        self.stages = config["stages"]
        self.buffers = config["store_buffers"]
        self.max_ctas = config["max_ctas"]
        self.chunk = CHUNK_BITS // self.dtype.width  # elements that one cp.async copies
        self.lanes = self.tile.k // self.chunk  # threads that gather one row
        self.rows_at_a_time = GATHER_THREADS // self.lanes
        self.tmem_columns = tmem.columns(ACCUMULATORS * self.tile.n)
        self.defect = defect

    def make_mma(self) -> cute.TiledMma:
        """The MMA of one tile."""
        return operands.make_mma(self.tile)

    def inputs(self, x: cute.Tensor, w: cute.Tensor, w_scales: cute.Tensor | None) -> tuple[Any, Scaled]:
        """How stages of X lie in shared memory, values and scale factors, and the tensor maps of the weights."""
        mma = self.make_mma()
        layout, atom, coordinates = operands.make_load_b(w, mma, self.tile, self.stages)
        a_layout, _, _ = operands.make_load_a(x, mma, self.tile, self.stages)
        return (a_layout, None), Scaled(atom, coordinates, layout, None, None, None)

    def room(self, smem: SmemAllocator, layout: Any, scale_layout: Any) -> Stages:
        """Room for the stages of one operand."""
        return Stages(smem.allocate_tensor(IN, layout.outer, TMA_ALIGN, layout.inner), None)

    def loads(self, w: Scaled, stages: Stages) -> tuple[tuple[Loads, None], ...]:
        """The loads of a stage of weights."""
        tiles = cute.local_tile(w.map, (self.tile.n, self.tile.k), (None, None))  # (N, K, weight tiles, K tiles)
        return (
            (operands.partition_load(w.atom, self.make_mma().get_slice(0).partition_B(tiles), stages.values), None),
        )

    def load_bytes(self) -> int:
        """Bytes of these."""
        return self.tile.n * self.tile.k * IN.width // 8

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        x_scales: cute.Tensor | None,
        w: cute.Tensor,
        w_scales: cute.Tensor | None,
        c: cute.Tensor,
        tokens: cute.Tensor,
        experts: cute.Tensor,
        alpha: cute.Tensor | None,
        tiles: cute.Tensor,
        stream: Any,
    ) -> None:
        """Launches `max_ctas` CTAs."""
        x_layouts, weights = self.inputs(x, w, w_scales)
        c_layout, c_atom, c_map = operands.make_store_c(c, (self.tile.m, SUBTILE), self.buffers)
        routing = Routing(tokens, experts, alpha)
        self.kernel((x, x_scales), x_layouts, weights, (c_atom, c_map, c_layout), routing, tiles).launch(
            grid=(self.max_ctas, 1, 1), block=(THREADS, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        x: tuple[cute.Tensor, cute.Tensor | None],
        x_layouts: tuple[Any, Any],
        w: Scaled,
        c: tuple[cute.CopyAtom, cute.Tensor, Any],
        routing: Routing,
        tiles: cute.Tensor,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = self.allocate(x_layouts, (w.layout, w.scale_layout), c[2])
        if warp == LOAD_WARP:
            for atom in (w.atom, c[0]):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        cute.arch.sync_threads()

        tiles_c = cute.local_tile(c[1], (self.tile.m, self.half), (None, None))  # (M, N, row tiles, columns)
        k_tiles = cute.ceil_div(cute.size(w.map, mode=[1]), self.tile.k)
        columns = cute.size(tiles_c, mode=[3])
        walk = Walk(cute.arch.block_idx()[0], cute.arch.grid_dim()[0], tiles[0] * columns, columns)

        if warp == LOAD_WARP:
            self.load_warp(self.loads(w, shared.b), shared.ring, walk, routing, k_tiles)
        elif warp == MMA_WARP:
            self.mma_warp(shared, walk, k_tiles)
        elif warp >= GATHER_WARP:
            self.gather_warps(x, shared, walk, routing, k_tiles)
        else:
            self.epilogue_warps(c[0], tiles_c, shared, walk, routing)

    def allocate(self, x_layouts: tuple[Any, Any], w_layouts: tuple[Any, Any], c_layout: Any) -> Shared:
        """Lays out shared memory: barriers first, then the operand stages and the store buffers."""

        @cute.struct
        class Barriers:
            ab_full: cute.struct.MemRange[cutlass.Int64, self.stages]
            ab_empty: cute.struct.MemRange[cutlass.Int64, self.stages]
            acc_full: cute.struct.MemRange[cutlass.Int64, ACCUMULATORS]
            acc_empty: cute.struct.MemRange[cutlass.Int64, ACCUMULATORS]
            tmem: cutlass.Int64
            tmem_address: cutlass.Int32

        smem = SmemAllocator()
        bars = smem.allocate(Barriers)
        a = self.room(smem, *x_layouts)
        row_layout = cute.tile_to_shape(
            tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, self.dtype),
            (self.tile.m, self.tile.k, self.stages),
            order=(0, 1, 2),
        )
        return Shared(
            a=a,
            rows=cute.make_tensor(a.values.iterator, row_layout.outer),
            b=self.room(smem, *w_layouts),
            c=smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, 0),
            acc_full=bars.acc_full.data_ptr(),
            acc_empty=bars.acc_empty.data_ptr(),
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
        )

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            shared.ring.init(1, 1 + GATHER_THREADS)
            for accumulator in range(ACCUMULATORS):
                cute.arch.mbarrier_init(shared.acc_full + accumulator, 1)
                cute.arch.mbarrier_init(shared.acc_empty + accumulator, EPILOGUE_THREADS)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            cute.arch.mbarrier_init_fence()

    @cute.jit
    def load_warp(
        self, w: tuple[tuple[Loads, None], ...], ring: Ring, walk: Walk, routing: Routing, k_tiles: Any
    ) -> None:
        """Loads the weights of each tile's expert."""
        size = self.load_bytes()
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        tile = walk.first
        while tile < walk.count:
            row, column = walk.coordinates(tile)
            weights = routing.experts[row] * walk.columns + column
            stage, parity = ring.fill_one(w, weights, (0, k_tiles), size, stage, parity)
            tile += walk.step
        ring.drain(stage, parity)

    @cute.jit
    def gather_warps(
        self, x: tuple[cute.Tensor, Any], shared: Shared, walk: Walk, routing: Routing, k_tiles: Any
    ) -> None:
        """Copies the rows of each tile, and signals a stage when two further ones are under way."""
        stage, parity, landed, started = cutlass.Int32(0), cutlass.Int32(1), cutlass.Int32(0), cutlass.Int32(0)
        tile = walk.first
        while tile < walk.count:
            row, _ = walk.coordinates(tile)
            tokens = self.tokens_of(routing, row)
            for k in cutlass.range(k_tiles, unroll=1):
                common.wait(shared.ring.empty + stage, parity)
                self.gather(x, tokens, shared, stage, k)
                cute.arch.cp_async_commit_group()
                stage, parity = common.advance(stage, parity, self.stages)
                if started >= IN_FLIGHT:
                    cute.arch.cp_async_wait_group(IN_FLIGHT)
                    landed = self.publish(shared.ring, landed)
                started += 1
            tile += walk.step
        cute.arch.cp_async_wait_group(0)
        for _ in cutlass.range(cutlass.min(started, IN_FLIGHT), unroll=1):
            landed = self.publish(shared.ring, landed)

    @cute.jit
    def publish(self, ring: Ring, stage: cutlass.Int32) -> cutlass.Int32:
        """Hands this thread's landed copies to the tensor core, which reads shared memory through another proxy."""
        if cutlass.const_expr(self.defect != "no-gather-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        common.arrive(ring.full + stage)
        stage, _ = common.advance(stage, 0, self.stages)
        return stage

    def tokens_of(self, routing: Routing, row_tile: Any) -> cute.Tensor:
        """The tokens of the rows that this thread gathers in a tile."""
        thread = cute.arch.thread_idx()[0] - GATHER_WARP * cute.arch.WARP_SIZE
        tokens = cute.make_rmem_tensor(self.tile.m // self.rows_at_a_time, cutlass.Int32)
        for i in range(self.tile.m // self.rows_at_a_time):
            tokens[i] = routing.tokens[row_tile * self.tile.m + thread // self.lanes + i * self.rows_at_a_time]
        return tokens

    def gather(self, x: tuple[cute.Tensor, Any], tokens: cute.Tensor, shared: Shared, stage: Any, k: Any) -> None:
        """Starts this thread's copies of one K tile: neighbouring threads copy neighbouring chunks of one row."""
        thread = cute.arch.thread_idx()[0] - GATHER_WARP * cute.arch.WARP_SIZE
        lane, first = thread % self.lanes, thread // self.lanes
        op = cpasync.CopyG2SOp(cache_mode=cpasync.LoadCacheMode.GLOBAL)
        atom = cute.make_copy_atom(op, self.dtype, num_bits_per_copy=CHUNK_BITS)
        room = shared.rows[(None, None, stage)]
        for i in range(self.tile.m // self.rows_at_a_time):
            source = cute.local_tile(x[0][(tokens[i], None)], (self.chunk,), (k * self.lanes + lane,))
            target = cute.local_tile(room[(first + i * self.rows_at_a_time, None)], (self.chunk,), (lane,))
            cute.copy(atom, source, target)

    @cute.jit
    def mma_warp(self, shared: Shared, walk: Walk, k_tiles: Any) -> None:
        """Allocates TMEM, multiplies tile after tile into alternating accumulators, frees TMEM at the end."""
        tmem.allocate(shared.tmem, shared.tmem_address, self.tmem_columns)
        mma = self.make_mma()
        accumulators = tmem.accumulators(mma, self.tile.mnk[:2], shared.tmem_address, ACCUMULATORS)
        stage, parity, accumulator, free = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(1)
        tile = walk.first
        while tile < walk.count:
            common.wait_relaxed_cluster(shared.acc_empty + accumulator, free)
            common.fence_tcgen05_after()
            acc = accumulators[(None, None, None, accumulator)]
            stage, parity = self.multiply(mma, acc, accumulators.iterator, shared, k_tiles, stage, parity)
            with cute.arch.elect_one():
                tcgen05.commit(shared.acc_full + accumulator)
            accumulator, free = common.advance(accumulator, free, ACCUMULATORS)
            tile += walk.step
        tmem.free(shared.tmem, accumulators, self.tmem_columns, self.defect)

    @cute.jit
    def multiply(
        self, mma: cute.TiledMma, acc: Any, start: cute.Pointer, shared: Shared, k_tiles: Any, stage: Any, parity: Any
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """acc = the sum of all K tiles; where the ring stands afterwards. `start` is that of TMEM."""
        a, b = mma.make_fragment_A(shared.a.values), mma.make_fragment_B(shared.b.values)
        stage, parity = tensor_core.multiply(mma, acc, a, b, shared.ring, k_tiles, stage, parity)
        return stage, parity

    @cute.jit
    def epilogue_warps(
        self, c_atom: cute.CopyAtom, tiles_c: cute.Tensor, shared: Shared, walk: Walk, routing: Routing
    ) -> None:
        """Reads both halves of each accumulator, gives it back, activates and stores."""
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        both = tmem.accumulators(self.make_mma(), self.tile.mnk[:2], shared.tmem_address, ACCUMULATORS)
        parts = cute.flat_divide(both[((None, None), 0, 0, None)], (self.tile.m, SUBTILE))
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(SUBTILE)), ACC)
        load = tcgen05.make_tmem_copy(atom, parts[(None, None, 0, 0, 0)])
        mine = load.get_slice(cute.arch.thread_idx()[0])
        source = mine.partition_S(parts)  # (T2R, 1, 1, 1, steps of both halves, accumulator)
        row = mine.partition_D(cute.make_identity_tensor((self.tile.m, SUBTILE)))
        gate, up = cute.make_rmem_tensor(row.shape, ACC), cute.make_rmem_tensor(row.shape, ACC)
        targets = cute.flat_divide(tiles_c, (self.tile.m, SUBTILE))  # (M, SUBTILE, 1, steps, row tiles, columns)
        store = stores.make(load, c_atom, shared.c, targets)
        accumulator, parity, buffer = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        steps = self.half // SUBTILE
        tile = walk.first
        while tile < walk.count:
            common.wait_relaxed_cluster(shared.acc_full + accumulator, parity)
            common.fence_tcgen05_after()
            row_tile, column = walk.coordinates(tile)
            factor = self.factor(routing, row_tile)
            for step in cutlass.range(steps, unroll=1):
                cute.copy(load, source[(None, None, None, 0, step, accumulator)], gate)
                cute.copy(load, source[(None, None, None, 0, steps + step, accumulator)], up)
                cute.arch.fence_view_async_tmem_load()
                if step == steps - 1:
                    common.fence_tcgen05_before()
                    common.arrive_relaxed_cluster(shared.acc_empty + accumulator)
                self.activate(gate, up, factor)
                store.put(gate, buffer, (0, step, row_tile, column), self.defect)
                buffer, _ = common.advance(buffer, 0, self.buffers)
            accumulator, parity = common.advance(accumulator, parity, ACCUMULATORS)
            tile += walk.step
        store.drain(self.defect)
        common.fence_tcgen05_before()
        common.arrive(shared.tmem)

    def factor(self, routing: Routing, row_tile: Any) -> Any:
        """What the products of a row tile are multiplied with, None for nothing."""
        return None

    def activate(self, gate: cute.Tensor, up: cute.Tensor, factor: Any) -> None:
        """gate = silu(factor * gate) * factor * up."""
        for i in range(cute.size(gate)):
            if factor is not None:
                gate[i], up[i] = factor * gate[i], factor * up[i]
            gate[i] = gate[i] * cute.arch.rcp_approx(1.0 + cute.exp(-gate[i], fastmath=True)) * up[i]


MoeGg1.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[MoeGg1, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    tokens, rows, n, k = config["tokens"], config["rows"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(tokens, k),
        None,
        operands.fake_matrix(config["experts"] * 2 * n, k),
        None,
        operands.fake_matrix(rows, n, OUT),
        make_fake_compact_tensor(cutlass.Int32, (rows,), assumed_align=16),
        make_fake_compact_tensor(cutlass.Int32, (rows // config["tile_m"],), assumed_align=16),
        None,
        make_fake_compact_tensor(cutlass.Int32, (1,), assumed_align=16),
        make_fake_stream(),
    )
    return MoeGg1(config, defect), arguments
