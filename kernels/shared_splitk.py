"""Shared expert of a mixture of experts, bf16, split-K, sm_100a/sm_103a: up projection with SwiGLU, or down projection.

    up     C[t, n] = silu(sum over k of X[t, k] * G[n, k]) * (sum over k of X[t, k] * U[n, k])
    down   C[t, n] = sum over k of X[t, k] * W[n, k]

fp32 accumulation, tiles of 128 tokens by 128 weight rows. For up, blocks of 64 rows of G and of U alternate in one
weight matrix, so that one accumulator holds a gate half (columns [0, 64)) and an up half (columns [64, 128)), and the
CTA of rank r owns the same columns of both: the activation needs no exchange beyond the one of the partial sums.
kernels/splitk.py has the warps and all but the last step.

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                            load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile      epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice             both wait for each phase (kernels/tmem.py)
    mailbox_full[i] count 1    armed at initialization with the bytes of one slot; completed by the st.async of the
                    peer i + 1 ranks below; the epilogue waits at cluster scope (kernels/mailbox.py)
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory
    named 1 (128)   epilogue: the slice of C in shared memory is complete before one thread stores it

Defects (`build(config, defect)`)
    no-proxy-fence         the staged rows are not made visible to the async proxy before the store reads them
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
    cta-scope-wait         the mailbox is acquired at CTA scope only
    acquire-cluster-wait   the mailbox wait itself acquires at cluster scope: right, but each attempt invalidates L1
    wait-not-retried       one relaxed attempt stands for the mailbox wait
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_stream

from kernels import operands
from kernels.operands import ACC, OUT, TMA_ALIGN
from kernels.splitk import LOAD_WARP, MMA_WARP, THREADS, SplitK

NAME = "shared_splitk"


class SharedSplitK(SplitK):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        super().__init__(config, defect)
        self.swiglu = config["swiglu"]
        self.halves = 2 if self.swiglu else 1
        self.width = self.slice // self.halves  # columns of C that one rank owns

    @cute.jit
    def __call__(self, x: cute.Tensor, w: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches one cluster for each tile of tokens and weight rows."""
        mma = operands.make_mma(self.tile)
        x_layout, x_atom, x_map = operands.make_load_a(x, mma, self.tile, self.stages)
        w_layout, w_atom, w_map = operands.make_load_b(w, mma, self.tile, self.stages)
        c_layout, c_atom, c_map = operands.make_store_c(c, (self.tile.m, self.width), 1)
        grid = (cute.ceil_div(x.shape[0], self.tile.m), cute.ceil_div(w.shape[0], self.tile.n), self.split)
        self.kernel(x_atom, x_map, w_atom, w_map, c_atom, c_map, x_layout, w_layout, c_layout).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, self.split), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        x_atom: cute.CopyAtom,
        x_map: cute.Tensor,
        w_atom: cute.CopyAtom,
        w_map: cute.Tensor,
        c_atom: cute.CopyAtom,
        c_map: cute.Tensor,
        x_layout: cute.ComposedLayout,
        w_layout: cute.ComposedLayout,
        c_layout: cute.ComposedLayout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        mma = operands.make_mma(self.tile)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared, smem = self.allocate(x_layout, w_layout)
        buffer = smem.allocate_tensor(OUT, c_layout.outer, TMA_ALIGN, c_layout.inner)  # (M, width, 1)
        if warp == LOAD_WARP:
            for atom in (x_atom, w_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        self.begin()

        t, n, _ = cute.arch.block_idx()
        tiles_x = cute.local_tile(x_map, (self.tile.m, self.tile.k), (None, None))  # (tokens, K, tiles, K tiles)
        tiles_w = cute.local_tile(w_map, (self.tile.n, self.tile.k), (None, None))  # (rows, K, tiles, K tiles)
        first_k, last_k = self.k_range(rank, cute.size(tiles_x, mode=[3]))
        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_x = operands.partition_load(x_atom, one_cta.partition_A(tiles_x), shared.a)
            load_w = operands.partition_load(w_atom, one_cta.partition_B(tiles_w), shared.b)
            self.load_warp(load_x, load_w, shared.ring, (t, n), (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            load, total = self.exchange(mma, shared, rank, last_k - first_k)
            target = cute.local_tile(c_map, (self.tile.m, self.width), (t, n * self.split + rank))
            self.store(self.activate(total), load, c_atom, target, buffer)
        self.end()

    def slices(self, acc: cute.Tensor) -> cute.Tensor:
        """The accumulator as (M, width, halves, rank): the same columns of both halves belong to one rank."""
        tile = acc[((None, None), 0, 0)]
        lane, column = tile.stride
        shape = (self.tile.m, self.width, self.halves, self.split)
        stride = (lane, column, self.tile.n // self.halves * column, self.width * column)
        return cute.make_tensor(tile.iterator, cute.make_layout(shape, stride=stride))

    @cute.jit
    def activate(self, total: cute.Tensor) -> cute.Tensor:
        """What this thread's row of C is: silu(gate) * up, or the sum itself."""
        result = cute.make_rmem_tensor(total[(None, None, None, 0)].shape, ACC)
        for i in cutlass.range_constexpr(self.width):
            result[i] = total[i]
            if cutlass.const_expr(self.swiglu):
                sigmoid = cute.arch.rcp_approx(1.0 + cute.exp(-total[i], fastmath=True))
                result[i] = total[i] * sigmoid * total[self.width + i]
        return result


SharedSplitK.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[SharedSplitK, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    kernel = SharedSplitK(config, defect)
    arguments = (
        operands.fake_matrix(m, k),
        operands.fake_matrix(n * kernel.halves, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return kernel, arguments
