"""Split-K bf16 GEMM for sm_100a/sm_103a: the CTAs of a cluster share one output tile and exchange partial sums.

C[m, n] = sum over k of A[m, k] * B[n, k], fp32 accumulation, one 128 x 128 tile a cluster of `split_k` CTAs. The CTA
of rank r multiplies its share of the K tiles, then owns columns [32 r, 32 r + 32): it sends every other slice of its
partial sum to the owner's mailbox in shared memory (`st.async`), adds up what arrives in its own, and stores the
result. A rank without K tiles takes part with zeros. kernels/splitk.py has the warps and all but the last step.

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                            load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile      epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice             both wait for each phase (kernels/tmem.py)
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
    no-proxy-fence         the staged rows are not made visible to the async proxy before the store reads them
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
"""

from collections.abc import Mapping
from typing import Any

from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream

from kernels import operands
from kernels.operands import OUT, TMA_ALIGN
from kernels.splitk import LOAD_WARP, MMA_WARP, THREADS, SplitK

NAME = "gemm_splitk_mailbox"


class SplitKGemm(SplitK):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

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
        shared, smem = self.allocate(a_layout, b_layout)
        buffer = smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner)  # (M, slice, 1)
        if warp == LOAD_WARP:
            for atom in (a_atom, b_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        self.begin()

        m, n, _ = cute.arch.block_idx()
        tiles_a = cute.local_tile(a_map, (self.tile.m, self.tile.k), (None, None))  # (M, K, tile rows, K tiles)
        tiles_b = cute.local_tile(b_map, (self.tile.n, self.tile.k), (None, None))  # (N, K, tile columns, K tiles)
        first_k, last_k = self.k_range(rank, cute.size(tiles_a, mode=[3]))
        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_a = operands.partition_load(a_atom, one_cta.partition_A(tiles_a), shared.a)
            load_b = operands.partition_load(b_atom, one_cta.partition_B(tiles_b), shared.b)
            self.load_warp(load_a, load_b, shared.ring, (m, n), (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            load, total = self.exchange(mma, shared, rank, last_k - first_k)
            tile_c = cute.local_tile(c_map, (self.tile.m, self.tile.n), (m, n))  # (M, N)
            slices = cute.flat_divide(tile_c, (self.tile.m, self.slice))  # (M, slice, 1, rank)
            self.store(total[(None, None, None, 0)], load, c_atom, slices[(None, None, 0, rank)], buffer)
        self.end()


SplitKGemm.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[SplitKGemm, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return SplitKGemm(config, defect), arguments
