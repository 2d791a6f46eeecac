"""First grouped GEMM of a mixture of experts with gathered tokens and SwiGLU, NVFP4, persistent, sm_100a/sm_103a.

    C[r, n] = silu(alpha[e] * sum over k of X[tokens[r], k] * G[e, n, k])
              * (alpha[e] * sum over k of X[tokens[r], k] * U[e, n, k])

as in kernels/moe_gg1.py, which has the warps and all but the operands: X, G and U are e2m1 with an e4m3 scale factor
for 16 neighbours along K, `alpha` the factors of the experts. K tiles of 256, whose rows have 128 bytes. Scale factors
of the weights come with bulk tensor loads; those of X lie row by row, and each gathering thread copies those of one
row, four bytes at a time, to where the tensor core wants them. 6 stages of scale factors take 192 TMEM columns behind
the two accumulators (kernels/scaled.py).

Barriers (mbarriers in shared memory, count = arrivals a phase; kernels/moe_gg1.py says who signals and who waits)
    ab_full[s]      count 129  load: arrive.expect_tx + bytes of two loads; gather: every thread
    ab_empty[s]     count 1
    acc_full[p]     count 1
    acc_empty[p]    count 128
    tmem            count 160

Defects (`build(config, defect)`)
    no-drain               the storing thread leaves while its last stores still read shared memory
    no-gather-fence        the gathered rows are not made visible to the async proxy before the MMA reads them
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import SmemAllocator

from kernels import operands, scaled, tmem
from kernels.moe_gg1 import ACCUMULATORS, GATHER_WARP, MoeGg1, Routing, Shared
from kernels.operands import ACC, OUT, Loads
from kernels.scaled import FACTORS_OF_COLUMN, NVFP4, ROWS_OF_COLUMN, Scaled, Stages

NAME = "moe_gg1_nvfp4"
WORD_BITS = 32  # four scale factors


class MoeGg1Nvfp4(MoeGg1):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    dtype = NVFP4.value

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        super().__init__(config, defect)
        self.scale_columns = scaled.columns(self.tile, 1, NVFP4)  # of one stage
        self.words = self.tile.k // NVFP4.vector // FACTORS_OF_COLUMN  # of scale factors in a row of a K tile
        self.tmem_columns = tmem.columns(ACCUMULATORS * self.tile.n + self.stages * self.scale_columns)

    def make_mma(self) -> cute.TiledMma:
        """The MMA of one tile."""
        return scaled.make_mma(self.tile, 1, form=NVFP4)

    def inputs(self, x: cute.Tensor, w: cute.Tensor, w_scales: cute.Tensor | None) -> tuple[Any, Scaled]:
        """How stages of X lie in shared memory, values and scale factors, and the tensor maps of the weights."""
        x_layouts = scaled.layouts(self.make_mma(), self.tile, self.stages, True, NVFP4)
        return x_layouts, scaled.make_loads(w, w_scales, self.tile, 1, self.stages, False, form=NVFP4)

    def room(self, smem: SmemAllocator, layout: Any, scale_layout: Any) -> Stages:
        """Room for the stages of one operand."""
        return scaled.allocate(smem, layout, scale_layout, NVFP4)

    def loads(self, w: Scaled, stages: Stages) -> tuple[tuple[Loads, None], ...]:
        """The loads of a stage of weights."""
        both = scaled.loads(w, stages, self.tile, 1, False, NVFP4)
        return tuple(
            (Loads(x.atom, x.tiles[(None, None, None, 0)], x.stages), None) for x in (both.values, both.scales)
        )

    def load_bytes(self) -> int:
        """Bytes of these."""
        values = self.tile.n * self.tile.k
        return (values * NVFP4.value.width + values // NVFP4.vector * NVFP4.scale.width) // 8

    def tokens_of(self, routing: Routing, row_tile: Any) -> cute.Tensor:
        """The tokens of the rows that this thread gathers in a tile, and behind them that of its scale factors."""
        rows = super().tokens_of(routing, row_tile)
        tokens = cute.make_rmem_tensor(cute.size(rows) + 1, cutlass.Int32)
        for i in range(cute.size(rows)):
            tokens[i] = rows[i]
        tokens[cute.size(rows)] = routing.tokens[row_tile * self.tile.m + self.own_row()]
        return tokens

    def own_row(self) -> Any:
        """The row of a tile whose scale factors this thread gathers."""
        return cute.arch.thread_idx()[0] - GATHER_WARP * cute.arch.WARP_SIZE

    def gather(self, x: tuple[cute.Tensor, Any], tokens: cute.Tensor, shared: Shared, stage: Any, k: Any) -> None:
        """Starts this thread's copies of one K tile: chunks of rows, and the scale factors of one row."""
        super().gather(x, tokens, shared, stage, k)
        source = x[1][(tokens[cute.size(tokens) - 1], None)]
        target = self.factors_of_rows(shared.a.scales)[(self.own_row(), None, stage)]
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), NVFP4.scale, num_bits_per_copy=WORD_BITS)
        four = (FACTORS_OF_COLUMN,)
        for word in range(self.words):
            cute.copy(
                atom, cute.local_tile(source, four, (k * self.words + word,)), cute.local_tile(target, four, (word,))
            )

    def factors_of_rows(self, scales: cute.Tensor) -> cute.Tensor:
        """Scale factors in shared memory as (row, factor along K, stage), in blocks of 128 rows and four factors."""
        rows, block = ROWS_OF_COLUMN, ROWS_OF_COLUMN * 4 * FACTORS_OF_COLUMN
        shape = ((rows, self.tile.m // rows), (FACTORS_OF_COLUMN, self.words), self.stages)
        stride = ((4 * FACTORS_OF_COLUMN, FACTORS_OF_COLUMN), (1, block), block * self.words)
        return cute.make_tensor(scales.iterator, cute.make_layout(shape, stride=stride))

    @cute.jit
    def multiply(
        self, mma: cute.TiledMma, acc: Any, start: cute.Pointer, shared: Shared, k_tiles: Any, stage: Any, parity: Any
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """acc = the sum of all K tiles; where the ring stands afterwards. `start` is that of TMEM."""
        a, b = mma.make_fragment_A(shared.a.values), mma.make_fragment_B(shared.b.values)
        a_start = start + ACCUMULATORS * self.tile.n
        b_start = a_start + self.tile.m // ROWS_OF_COLUMN * self.words
        factors = (
            scaled.make_factors(self.tile, 1, shared.a.scales, a_start, self.scale_columns, True, NVFP4),
            scaled.make_factors(self.tile, 1, shared.b.scales, b_start, self.scale_columns, False, NVFP4),
        )
        stage, parity = scaled.multiply(mma, acc, a, b, factors, shared.ring, k_tiles, stage, parity, 1)
        return stage, parity

    def factor(self, routing: Routing, row_tile: Any) -> Any:
        """alpha of the expert."""
        return routing.alpha[routing.experts[row_tile]]


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[MoeGg1Nvfp4, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    tokens, rows, n, k, experts = (config[name] for name in ("tokens", "rows", "n", "k", "experts"))
    MoeGg1Nvfp4.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)
    arguments = (
        operands.fake_matrix(tokens, k, NVFP4.value),
        operands.fake_matrix(tokens, k // NVFP4.vector, NVFP4.scale),
        scaled.fake_values(experts * 2 * n, k, 1, NVFP4),
        scaled.fake_scales(experts * 2 * n, k, 1, NVFP4),
        operands.fake_matrix(rows, n, OUT),
        make_fake_compact_tensor(cutlass.Int32, (rows,), assumed_align=16),
        make_fake_compact_tensor(cutlass.Int32, (rows // config["tile_m"],), assumed_align=16),
        make_fake_compact_tensor(ACC, (experts,), assumed_align=16),
        make_fake_compact_tensor(cutlass.Int32, (1,), assumed_align=16),
        make_fake_stream(),
    )
    return MoeGg1Nvfp4(config, defect), arguments
