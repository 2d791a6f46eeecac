"""Weight gradients of a mixture of experts, with tensor maps written on the device, sm_100a/sm_103a.

    W[e][m, n] = sum over the tokens t of expert e of X[t, m] * Y[t, n]

K of this GEMM is the tokens of an expert; an expert without tokens has a gradient of zeros. X and Y are bf16, or with
`scaled` MXFP8, where 32 neighbouring tokens share a scale factor (kernels/scaled.py). W is bf16; with `accumulate` the
gradient is added to what is there. Inputs and outputs come in two forms each:

    dense input       X, Y (experts, tokens, features): every expert has the same number of tokens
    ragged input      X, Y (all tokens, features), sorted by expert; those of expert e end at `ends[e]`, with `scaled`
                      a multiple of 128, and its scale factors are one block behind that of the expert before
    dense output      W (experts, m, n), one tensor
    discrete output   one matrix for each expert, at `addresses[e]`

Ragged inputs and discrete outputs need a tensor map for each expert, which a first kernel writes into a workspace
(kernels/tensor_maps.py): the number of tokens and the addresses are known on the device only. Copies beyond an expert's
last token then bring zeros and not the next expert's tokens. Each warp that issues copies acquires an expert's map when
it comes to that expert, and goes on using it for all of the expert's tiles: consecutive tiles of a CTA are neighbours.

Tiles of 128 x 128, K tiles of 64 tokens (128 if scaled), fp32 accumulation in two accumulators, one CTA an SM. Scale
factors take TMEM columns behind the accumulators, each stage its own.

Warps
    0-3  epilogue   TMEM -> registers -> bf16 -> shared memory -> bulk tensor store
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    load x     bulk tensor loads of X and its scale factors
    6    load y     bulk tensor loads of Y and its scale factors

Barriers (mbarriers in shared memory; count = arrivals a phase)
    ab_full[s]      count 2    each load warp: arrive.expect_tx + bytes of its loads  mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                       load warps wait, and drain all before exit
    acc_full[p]     count 1    mma: tcgen05.commit after the last K tile, also where there was none    epilogue waits
    acc_empty[p]    count 128  epilogue: every thread, after its last load from accumulator p    mma waits
    tmem            count 160  mma (32) and epilogue (128), twice        both wait for each phase (kernels/tmem.py)
    named 1 (128)   epilogue, twice a box (kernels/stores.py)

Defects (`build(config, defect)`)
    no-acquire             neither load warp acquires the maps of the inputs
    acquire-in-one-warp    the second load warp relies on the acquire of the first
    acquire-wrong-slot     the second load warp acquires the map of the first
    acquire-every-tile     the load warps acquire again for each tile: right, but each acquire costs
    no-scale-acquire       the load warps acquire the maps of the values, not those of the scale factors
    no-store-acquire       the epilogue does not acquire the map of a discrete output
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

from kernels import common, operands, scaled, stores, tensor_core, tensor_maps, tmem
from kernels.expert_inputs import MAPS, SCALES_OF, W_MAP, X_MAP, Y_MAP, ExpertInputs
from kernels.operands import ACC, IN, OUT, TMA_ALIGN
from kernels.ring import Ring
from kernels.scaled import Scaled, Stages
from kernels.tensor_maps import Experts, MapSlots
from kernels.walk import Run

NAME = "grouped_gemm_wgrad"
EPILOGUE_THREADS = 128
MMA_WARP = 4
X_WARP, Y_WARP = 5, 6
THREADS = 224
TMEM_THREADS = 160
ACCUMULATORS = 2
SUBTILE = 32  # columns that one epilogue step reads


@dataclass(frozen=True)
class Shared:
    """Shared memory of the CTA, as tensors and barriers."""

    x: Stages
    y: Stages
    w: cute.Tensor  # (M, SUBTILE, buffers)
    ring: Ring
    acc_full: cute.Pointer
    acc_empty: cute.Pointer
    tmem: cute.Pointer
    tmem_address: cute.Pointer


class GroupedGemmWgrad(ExpertInputs):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        super().__init__(config, defect)
        self.buffers = config["store_buffers"]
        self.max_ctas = config["max_ctas"]
        self.experts = config["experts"]
        self.discrete = config["discrete"]
        self.accumulate = config["accumulate"]
        self.scale_columns = scaled.columns(self.tile, 1) if self.scaled else 0  # of one stage
        self.tmem_columns = tmem.columns(ACCUMULATORS * self.tile.n + self.stages * self.scale_columns)

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        x_scales: cute.Tensor | None,
        y: cute.Tensor,
        y_scales: cute.Tensor | None,
        w: cute.Tensor,
        ends: cute.Tensor,
        addresses: cute.Tensor,
        workspace: cute.Tensor,
        stream: Any,
    ) -> None:
        """Has the maps written, one CTA for each expert, then launches `max_ctas` CTAs on them."""
        load_x, load_y = self.input(x, x_scales, True), self.input(y, y_scales, False)
        w_layout, w_atom, w_map = operands.make_store_c(w, (self.tile.m, SUBTILE), self.buffers, self.accumulate)
        if cutlass.const_expr(self.ragged or self.discrete):
            inputs = ((load_x, x, x_scales), (load_y, y, y_scales)) if self.ragged else ()
            self.write_maps(inputs, w_atom, w, ends, addresses, workspace).launch(
                grid=(self.experts, 1, 1), block=(cute.arch.WARP_SIZE, 1, 1), stream=stream
            )
        self.kernel(load_x, load_y, (w_atom, w_map, w_layout), ends, workspace).launch(
            grid=(self.max_ctas, 1, 1), block=(THREADS, 1, 1), stream=stream, min_blocks_per_mp=1
        )

    @cute.kernel
    def write_maps(
        self,
        inputs: tuple[Any, ...],
        w_atom: cute.CopyAtom,
        w: cute.Tensor,
        ends: cute.Tensor,
        addresses: cute.Tensor,
        workspace: cute.Tensor,
    ) -> None:
        """Writes the maps of one expert: its own tokens of X and Y with their scale factors, its own matrix W."""
        expert, _, _ = cute.arch.block_idx()
        first, last = tensor_maps.tokens(ends, expert)
        updates = []
        for number, (load, x, scales) in zip((X_MAP, Y_MAP), inputs, strict=False):
            updates.append((number, load.atom, tensor_maps.part(x, first, last)))
            if cutlass.const_expr(self.scaled):
                part = scaled.part(scales, x.shape[0], first, last)
                updates.append((SCALES_OF[number], load.scale_atom, part))
        if cutlass.const_expr(self.discrete):
            address = cute.make_ptr(OUT, addresses[expert], cute.AddressSpace.gmem, assumed_align=16)
            updates.append((W_MAP, w_atom, cute.make_tensor(address, w.layout)))
        MapSlots(workspace, MAPS).write(expert, tuple(updates))

    @cute.kernel
    def kernel(
        self,
        x: Scaled,
        y: Scaled,
        w: tuple[cute.CopyAtom, cute.Tensor, Any],
        ends: cute.Tensor,
        workspace: cute.Tensor,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = self.allocate(x, y, w[2])
        if warp == X_WARP:
            self.init_barriers(shared)
        cute.arch.sync_threads()

        tiles_w = cute.local_tile(w[1], self.tile.mnk[:2], (None, None, None))  # (M, N, rows, columns, expert)
        run = self.run(cute.size(tiles_w, mode=[2]), cute.size(tiles_w, mode=[3]))
        experts = Experts(ends, MapSlots(workspace, MAPS))
        most = cute.ceil_div(cute.size(x.map, mode=[1]), self.tile.k)  # K tiles of an expert with dense input

        if warp == X_WARP:
            self.load_warp(self.loads(x, shared.x, True), X_MAP, shared.ring, run, experts, most)
        elif warp == Y_WARP:
            self.load_warp(self.loads(y, shared.y, False), Y_MAP, shared.ring, run, experts, most)
        elif warp == MMA_WARP:
            self.mma_warp(shared, run, experts, most)
        else:
            self.epilogue_warps(w[0], tiles_w, shared, run, experts, most)

    def allocate(self, x: Scaled, y: Scaled, w_layout: Any) -> Shared:
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
        return Shared(
            x=self.room(smem, x),
            y=self.room(smem, y),
            w=smem.allocate_tensor(OUT, w_layout.outer, TMA_ALIGN, w_layout.inner),
            ring=Ring(bars.ab_full.data_ptr(), bars.ab_empty.data_ptr(), self.stages, 0),
            acc_full=bars.acc_full.data_ptr(),
            acc_empty=bars.acc_empty.data_ptr(),
            tmem=bars.tmem.ptr,
            tmem_address=bars.tmem_address.ptr,
        )

    def init_barriers(self, shared: Shared) -> None:
        """One thread initializes all mbarriers and publishes them to the units that will signal them."""
        with cute.arch.elect_one():
            shared.ring.init(1, loads=2)
            for accumulator in range(ACCUMULATORS):
                cute.arch.mbarrier_init(shared.acc_full + accumulator, 1)
                cute.arch.mbarrier_init(shared.acc_empty + accumulator, EPILOGUE_THREADS)
            cute.arch.mbarrier_init(shared.tmem, TMEM_THREADS)
            cute.arch.mbarrier_init_fence()

    def run(self, rows: Any, columns: Any) -> Run:
        """This CTA's share of all tiles; the last CTAs may have none."""
        cta, _, _ = cute.arch.block_idx()
        count = self.experts * rows * columns
        share = (count + self.max_ctas - 1) // self.max_ctas
        return Run(cutlass.min(cta * share, count), cutlass.min(cta * share + share, count), rows, columns)

    @cute.jit
    def mma_warp(self, shared: Shared, run: Run, experts: Experts, most: Any) -> None:
        """Allocates TMEM, multiplies tile after tile into alternating accumulators, frees TMEM at the end."""
        tmem.allocate(shared.tmem, shared.tmem_address, self.tmem_columns)
        mma = self.make_mma()
        accumulators = tmem.accumulators(mma, self.tile.mnk[:2], shared.tmem_address, ACCUMULATORS)
        stage, parity, accumulator, free = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(1)
        tile = run.first
        while tile < run.last:
            expert, _ = run.expert(tile)
            k_tiles = self.k_tiles(experts, expert, most)
            common.wait_relaxed_cluster(shared.acc_empty + accumulator, free)
            common.fence_tcgen05_after()
            acc = accumulators[(None, None, None, accumulator)]
            stage, parity = self.multiply(mma, acc, accumulators.iterator, shared, k_tiles, stage, parity)
            with cute.arch.elect_one():
                tcgen05.commit(shared.acc_full + accumulator)
            accumulator, free = common.advance(accumulator, free, ACCUMULATORS)
            tile += 1
        tmem.free(shared.tmem, accumulators, self.tmem_columns, self.defect)

    @cute.jit
    def multiply(
        self, mma: cute.TiledMma, acc: Any, start: cute.Pointer, shared: Shared, k_tiles: Any, stage: Any, parity: Any
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """acc = sum over an expert's K tiles; where the ring stands afterwards. `start` is that of TMEM."""
        x, y = mma.make_fragment_A(shared.x.values), mma.make_fragment_B(shared.y.values)
        if cutlass.const_expr(self.scaled):
            x_start = start + ACCUMULATORS * self.tile.n
            y_start = x_start + self.tile.m // scaled.ROWS_OF_COLUMN
            factors = (
                scaled.make_factors(self.tile, 1, shared.x.scales, x_start, self.scale_columns, True),
                scaled.make_factors(self.tile, 1, shared.y.scales, y_start, self.scale_columns, False),
            )
            stage, parity = scaled.multiply(mma, acc, x, y, factors, shared.ring, k_tiles, stage, parity, 1)
        else:
            stage, parity = tensor_core.multiply(mma, acc, x, y, shared.ring, k_tiles, stage, parity)
        return stage, parity

    @cute.jit
    def epilogue_warps(
        self,
        w_atom: cute.CopyAtom,
        tiles_w: cute.Tensor,
        shared: Shared,
        run: Run,
        experts: Experts,
        most: Any,
    ) -> None:
        """Rounds and stores tile after tile, zeros for an expert without tokens."""
        common.arrive(shared.tmem)
        common.wait(shared.tmem, 0)
        load, source, values = self.accumulator_views(self.make_mma(), shared)
        targets = cute.flat_divide(tiles_w, (self.tile.m, SUBTILE))  # (M, SUBTILE, 1, subtiles, rows, columns, expert)
        store = stores.make(load, w_atom, shared.w, targets)
        tile, accumulator, parity, buffer = run.first, cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        steps = self.tile.n // SUBTILE
        while tile < run.last:
            expert, end = run.expert(tile)
            k_tiles = self.k_tiles(experts, expert, most)
            self.acquire_output(experts, expert)
            values.fill(0.0)
            while tile < end:
                row, column = run.coordinates(tile)
                common.wait_relaxed_cluster(shared.acc_full + accumulator, parity)
                common.fence_tcgen05_after()
                for step in cutlass.range(steps, unroll=1):
                    if k_tiles > 0:
                        cute.copy(load, source[(None, None, None, 0, step, accumulator)], values)
                        cute.arch.fence_view_async_tmem_load()
                    if step == steps - 1:
                        common.fence_tcgen05_before()
                        common.arrive_relaxed_cluster(shared.acc_empty + accumulator)
                    self.put(store, values, buffer, (0, step, row, column), experts, expert)
                    buffer, _ = common.advance(buffer, 0, self.buffers)
                accumulator, parity = common.advance(accumulator, parity, ACCUMULATORS)
                tile += 1
        store.drain(self.defect)
        common.fence_tcgen05_before()
        common.arrive(shared.tmem)

    def accumulator_views(self, mma: cute.TiledMma, shared: Shared) -> tuple[cute.TiledCopy, cute.Tensor, cute.Tensor]:
        """The TMEM load, what it reads (T2R, 1, 1, 1, subtiles, accumulator), and the registers it fills."""
        accumulators = tmem.accumulators(mma, self.tile.mnk[:2], shared.tmem_address, ACCUMULATORS)
        parts = cute.flat_divide(accumulators[((None, None), 0, 0, None)], (self.tile.m, SUBTILE))
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(SUBTILE)), ACC)
        load = tcgen05.make_tmem_copy(atom, parts[(None, None, 0, 0, 0)])
        mine = load.get_slice(cute.arch.thread_idx()[0])
        source = mine.partition_S(parts)
        row_shape = mine.partition_D(cute.make_identity_tensor((self.tile.m, SUBTILE))).shape
        return load, source, cute.make_rmem_tensor(row_shape, ACC)

    @cute.jit
    def put(
        self, store: stores.Stores, values: Any, buffer: Any, box: tuple[Any, ...], experts: Experts, expert: Any
    ) -> None:
        """Stores one box of the tile, through the expert's own map where outputs are discrete."""
        if cutlass.const_expr(self.discrete):
            store.put(values, buffer, (*box, 0), self.defect, experts.maps.map(expert, W_MAP))
        else:
            store.put(values, buffer, (*box, expert), self.defect)

    @cute.jit
    def acquire_output(self, experts: Experts, expert: Any) -> None:
        """Acquires the map of a discrete output in the warp that stores."""
        if cutlass.const_expr(self.discrete and self.defect != "no-store-acquire"):
            warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
            if warp == 0:
                cpasync.fence_tma_desc_acquire(experts.maps.map(expert, W_MAP))


GroupedGemmWgrad.write_maps.set_name_prefix(f"{NAME}_maps", remove_cutlass_symbol=True, keep_mangled_name=False)
GroupedGemmWgrad.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[GroupedGemmWgrad, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, tokens, experts = config["m"], config["n"], config["tokens"], config["experts"]
    inputs = 1 if config["ragged"] else experts

    def fake_input(features: int) -> tuple[Any, Any]:
        shape, order = (features, tokens, inputs), (0, 1, 2)
        if config["scaled"]:
            values = make_fake_compact_tensor(scaled.VALUE, shape, stride_order=order, assumed_align=16)
            return values, scaled.fake_scales(features, tokens, inputs)
        return make_fake_compact_tensor(IN, shape, stride_order=order, assumed_align=16), None

    w_shape = (m, n, 1 if config["discrete"] else experts)
    arguments = (
        *fake_input(m),
        *fake_input(n),
        make_fake_compact_tensor(OUT, w_shape, stride_order=(1, 0, 2), assumed_align=16),
        make_fake_compact_tensor(cutlass.Int32, (experts,), assumed_align=16),
        make_fake_compact_tensor(cutlass.Int64, (experts,), assumed_align=16),
        tensor_maps.fake_workspace(experts, MAPS),
        make_fake_stream(),
    )
    return GroupedGemmWgrad(config, defect), arguments
