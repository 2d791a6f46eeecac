"""Low-latency bf16 GEMM for few tokens, sm_100a/sm_103a: weights on the M mode of the MMA, tokens on its N mode.

C[t, n] = sum over k of X[t, k] * W[n, k], fp32 accumulation. A tile is 128 weight rows by 16 tokens, so C is computed
transposed: a thread of the epilogue holds one weight row of C and stores its tokens straight to global memory, where
neighbouring threads write neighbouring elements. With `split_k` > 1 the CTAs of a cluster share the K tiles; a rank
owns 16 / `split_k` tokens of the tile and may have no K tiles at all (kernels/splitk.py).

Started as a dependent of the kernel before it (programmatic dependent launch): barriers and TMEM are set up at once;
whoever reads or writes global memory first waits until that kernel has completed. (The weights could be fetched before,
were it certain that no kernel before writes them.)

Warps
    0-3  epilogue   TMEM -> registers -> mailboxes of the peers; reduction; registers -> global memory
    4    mma        allocates TMEM, issues tcgen05.mma, frees TMEM
    5    weights    bulk tensor loads of W
    6    tokens     bulk tensor loads of X

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 2    each load warp: arrive.expect_tx + bytes of its load    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                        load warps wait, and drain all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile  epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice         both wait for each phase (kernels/tmem.py)
    mailbox_full[i] count 1    armed at initialization with the bytes of one slot; completed by the st.async of the
                    peer i + 1 ranks below; the epilogue waits at cluster scope (kernels/mailbox.py)
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory

Defects (`build(config, defect)`)
    early-weights          the weights are loaded before the kernel before, which may write them, has completed
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
    cta-scope-wait         the mailbox is acquired at CTA scope only
    wait-not-retried       one relaxed attempt stands for the mailbox wait
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream

from kernels import operands
from kernels.operands import IN, OUT, Loads
from kernels.ring import Ring
from kernels.splitk import MMA_WARP, SplitK

NAME = "tgv_gemm"
WEIGHTS_WARP = 5
TOKENS_WARP = 6
THREADS = 224


class TgvGemm(SplitK):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    loads = 2

    @cute.jit
    def __call__(self, w: cute.Tensor, x: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches one cluster for each tile of weight rows and tokens."""
        mma = operands.make_mma(self.tile)
        w_layout, w_atom, w_map = operands.make_load_a(w, mma, self.tile, self.stages)
        x_layout, x_atom, x_map = operands.make_load_b(x, mma, self.tile, self.stages)
        grid = (cute.ceil_div(w.shape[0], self.tile.m), cute.ceil_div(x.shape[0], self.tile.n), self.split)
        self.kernel(w_atom, w_map, x_atom, x_map, c, w_layout, x_layout).launch(
            grid=grid,
            block=(THREADS, 1, 1),
            cluster=(1, 1, self.split),
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(
        self,
        w_atom: cute.CopyAtom,
        w_map: cute.Tensor,
        x_atom: cute.CopyAtom,
        x_map: cute.Tensor,
        c: cute.Tensor,
        w_layout: cute.ComposedLayout,
        x_layout: cute.ComposedLayout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        mma = operands.make_mma(self.tile)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared, _ = self.allocate(w_layout, x_layout)
        if warp == WEIGHTS_WARP:
            for atom in (w_atom, x_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        self.begin()

        n, t, _ = cute.arch.block_idx()
        tiles_w = cute.local_tile(w_map, (self.tile.m, self.tile.k), (None, None))  # (rows, K, tiles, K tiles)
        tiles_x = cute.local_tile(x_map, (self.tile.n, self.tile.k), (None, None))  # (tokens, K, tiles, K tiles)
        first_k, last_k = self.k_range(rank, cute.size(tiles_w, mode=[3]))
        one_cta = mma.get_slice(0)
        if warp == WEIGHTS_WARP:
            weights = operands.partition_load(w_atom, one_cta.partition_A(tiles_w), shared.a)
            self.weights_warp(weights, shared.ring, n, (first_k, last_k))
        elif warp == TOKENS_WARP:
            tokens = operands.partition_load(x_atom, one_cta.partition_B(tiles_x), shared.b)
            self.tokens_warp(tokens, shared.ring, t, (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            _, total = self.exchange(mma, shared, rank, last_k - first_k)
            self.store(total, c, rank)
        self.end()

    @cute.jit
    def weights_warp(self, w: Loads, ring: Ring, tile: Any, k_range: tuple[Any, Any]) -> None:
        """Loads this rank's K tiles of the weights once the kernel before has completed."""
        if cutlass.const_expr(self.defect != "early-weights"):
            cute.arch.griddepcontrol_wait()
        size = self.tile.m * self.tile.k * IN.width // 8
        stage, parity = ring.fill_one(((w, None),), tile, k_range, size, cutlass.Int32(0), cutlass.Int32(1))
        ring.drain(stage, parity)

    @cute.jit
    def tokens_warp(self, x: Loads, ring: Ring, tile: Any, k_range: tuple[Any, Any]) -> None:
        """Loads this rank's K tiles of the tokens once the kernel before has completed, and lets the next one start."""
        cute.arch.griddepcontrol_wait()
        size = self.tile.n * self.tile.k * IN.width // 8
        stage, parity = ring.fill_one(((x, None),), tile, k_range, size, cutlass.Int32(0), cutlass.Int32(1))
        cute.arch.griddepcontrol_launch_dependents()
        ring.drain(stage, parity)

    @cute.jit
    def store(self, total: cute.Tensor, c: cute.Tensor, rank: Any) -> None:
        """Writes this thread's weight row of C for the tokens of this rank, once the kernel before has completed."""
        cute.arch.griddepcontrol_wait()
        n, t, _ = cute.arch.block_idx()
        row = n * self.tile.m + cute.arch.thread_idx()[0]
        for i in cutlass.range_constexpr(self.slice):
            token = t * self.tile.n + rank * self.slice + i
            if row < c.shape[1] and token < c.shape[0]:
                c[token, row] = total[i].to(OUT)


TgvGemm.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[TgvGemm, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return TgvGemm(config, defect), arguments
