"""Projections in front of a sparse attention indexer: few tokens, tf32, eight CTAs along K, sm_100a/sm_103a.

P[t, n] = sum over k of X[t, k] * W[n, k], fp32 accumulation, for 160 columns: columns [0, 128) are the indexer keys,
stored as bf16, columns [128, 160) the head weights, stored as fp32. One cluster of 8 CTAs computes 128 tokens (rows
beyond the last token are zero): each CTA multiplies an eighth of K, then owns 20 columns. kernels/splitk.py has the
warps and all but the last step.

The mailbox wait has a time limit of its own. An attempt that gives up at the limit has seen nothing, so it is repeated:
the limit sets how often the thread wakes up, not how long it waits.

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                            load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile      epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice             both wait for each phase (kernels/tmem.py)
    mailbox_full[i] count 1    armed at initialization with the bytes of one slot; completed by the st.async of the
                    peer i + 1 ranks below; the epilogue waits at cluster scope (kernels/mailbox.py)
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory

Defects (`build(config, defect)`)
    time-limit-trusted     an attempt that may have given up at its time limit stands for the mailbox wait
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
    cta-scope-wait         the mailbox is acquired at CTA scope only
    acquire-cluster-wait   the mailbox wait itself acquires at cluster scope: right, but each attempt invalidates L1
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream

from kernels import operands
from kernels.operands import ACC, OUT
from kernels.splitk import LOAD_WARP, MMA_WARP, THREADS, SplitK

NAME = "indexer_preproj"
KEYS = 128  # columns of the first output; the rest is the second
VECTOR = 4  # columns that one thread stores at a time; KEYS is a multiple


class IndexerPreproj(SplitK):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    dtype = cutlass.TFloat32

    @cute.jit
    def __call__(self, x: cute.Tensor, w: cute.Tensor, keys: cute.Tensor, weights: cute.Tensor, stream: Any) -> None:
        """Launches one cluster for each 128 tokens."""
        mma = operands.make_mma(self.tile, self.dtype)
        x_layout, x_atom, x_map = operands.make_load_a(x, mma, self.tile, self.stages)
        w_layout, w_atom, w_map = operands.make_load_b(w, mma, self.tile, self.stages)
        grid = (cute.ceil_div(x.shape[0], self.tile.m), 1, self.split)
        self.kernel(x_atom, x_map, w_atom, w_map, keys, weights, x_layout, w_layout).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, self.split), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        x_atom: cute.CopyAtom,
        x_map: cute.Tensor,
        w_atom: cute.CopyAtom,
        w_map: cute.Tensor,
        keys: cute.Tensor,
        weights: cute.Tensor,
        x_layout: cute.ComposedLayout,
        w_layout: cute.ComposedLayout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        mma = operands.make_mma(self.tile, self.dtype)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared, _ = self.allocate(x_layout, w_layout)
        if warp == LOAD_WARP:
            for atom in (x_atom, w_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        self.begin()

        t, _, _ = cute.arch.block_idx()
        tiles_x = cute.local_tile(x_map, (self.tile.m, self.tile.k), (None, None))  # (tokens, K, tiles, K tiles)
        tiles_w = cute.local_tile(w_map, (self.tile.n, self.tile.k), (None, None))  # (rows, K, 1, K tiles)
        first_k, last_k = self.k_range(rank, cute.size(tiles_x, mode=[3]))
        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_x = operands.partition_load(x_atom, one_cta.partition_A(tiles_x), shared.a)
            load_w = operands.partition_load(w_atom, one_cta.partition_B(tiles_w), shared.b)
            self.load_warp(load_x, load_w, shared.ring, (t, 0), (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            _, total = self.exchange(mma, shared, rank, last_k - first_k)
            self.store_both(total, keys, weights, rank)
        self.end()

    @cute.jit
    def store_both(self, total: cute.Tensor, keys: cute.Tensor, weights: cute.Tensor, rank: Any) -> None:
        """Writes this thread's token to the keys or to the weights, four columns at a time."""
        token = cute.arch.block_idx()[0] * self.tile.m + cute.arch.thread_idx()[0]
        sums = cute.make_tensor(total.iterator, cute.make_layout((VECTOR, self.slice // VECTOR)))
        if token < keys.shape[0]:
            for vector in cutlass.range_constexpr(self.slice // VECTOR):
                column = rank * self.slice + vector * VECTOR
                if column < KEYS:
                    rounded = cute.make_rmem_tensor(VECTOR, OUT)
                    rounded.store(sums[(None, vector)].load().to(OUT))
                    cute.autovec_copy(rounded, cute.local_tile(keys[(token, None)], (VECTOR,), (column // VECTOR,)))
                else:
                    place = cute.local_tile(weights[(token, None)], (VECTOR,), ((column - KEYS) // VECTOR,))
                    cute.autovec_copy(sums[(None, vector)], place)


IndexerPreproj.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[IndexerPreproj, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(m, k, cutlass.TFloat32),
        operands.fake_matrix(n, k, cutlass.TFloat32),
        operands.fake_matrix(m, KEYS, OUT),
        operands.fake_matrix(m, n - KEYS, ACC),
        make_fake_stream(),
    )
    return IndexerPreproj(config, defect), arguments
