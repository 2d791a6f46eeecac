"""Projection of a block of tokens by scaled bf16 weights, split-K, sm_100a/sm_103a.

C[t, n] = scale[n] * (sum over k of X[t, k] * W[n, k]), fp32 accumulation. A tile is 128 weight rows on the M mode of
the MMA by 64 tokens on its N mode, so C is computed transposed: a thread of the epilogue holds one weight row, scales
it, and writes it as one column of a token-major buffer in shared memory, which one bulk tensor store takes to C. The
CTAs of a cluster share the K tiles; the CTA of rank r owns tokens [32 r, 32 r + 32) of the tile. kernels/splitk.py has
the warps and all but the last step.

Barriers (mbarriers of each CTA; count = arrivals a phase)
    ab_full[s]      count 1    load: arrive.expect_tx + bytes of two loads    mma waits
    ab_empty[s]     count 1    mma: tcgen05.commit                            load waits, and drains all before exit
    acc_full        count 1    mma: tcgen05.commit after the last K tile      epilogue waits
    tmem            count 160  mma (32) and epilogue (128), twice             both wait for each phase (kernels/tmem.py)
    mailbox_full[i] count 1    armed at initialization with the bytes of one slot; completed by the st.async of the
                    peer i + 1 ranks below; the epilogue waits at cluster scope (kernels/mailbox.py)
    cluster         once after the mbarriers are initialized, once before exit: no CTA leaves while a peer may still
                    write into its shared memory
    named 1 (128)   epilogue: the tokens in shared memory are complete before one thread stores them

Defects (`build(config, defect)`)
    no-proxy-fence         the staged tokens are not made visible to the async proxy before the store reads them
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
    cta-scope-wait         the mailbox is acquired at CTA scope only
    wait-not-retried       one relaxed attempt stands for the mailbox wait
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

from kernels import operands
from kernels.operands import ACC, OUT, TMA_ALIGN
from kernels.splitk import EPILOGUE_THREADS, LOAD_WARP, MMA_WARP, STORE_BARRIER, THREADS, SplitK

NAME = "splitk_projection"


class SplitKProjection(SplitK):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    @cute.jit
    def __call__(self, w: cute.Tensor, scale: cute.Tensor, x: cute.Tensor, c: cute.Tensor, stream: Any) -> None:
        """Launches one cluster for each tile of weight rows and tokens."""
        mma = operands.make_mma(self.tile)
        w_layout, w_atom, w_map = operands.make_load_a(w, mma, self.tile, self.stages)
        x_layout, x_atom, x_map = operands.make_load_b(x, mma, self.tile, self.stages)
        box = (self.slice, self.tile.m)  # tokens, weight rows
        c_layout = cute.make_layout(box, stride=(self.tile.m, 1))
        c_atom, c_map = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), c, c_layout, box)
        grid = (cute.ceil_div(w.shape[0], self.tile.m), cute.ceil_div(x.shape[0], self.tile.n), self.split)
        self.kernel(w_atom, w_map, x_atom, x_map, c_atom, c_map, scale, w_layout, x_layout, c_layout).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, self.split), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        w_atom: cute.CopyAtom,
        w_map: cute.Tensor,
        x_atom: cute.CopyAtom,
        x_map: cute.Tensor,
        c_atom: cute.CopyAtom,
        c_map: cute.Tensor,
        scale: cute.Tensor,
        w_layout: cute.ComposedLayout,
        x_layout: cute.ComposedLayout,
        c_layout: cute.Layout,
    ) -> None:
        """Sets up barriers and views, then sends each warp to its role."""
        mma = operands.make_mma(self.tile)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        shared, smem = self.allocate(w_layout, x_layout)
        buffer = smem.allocate_tensor(OUT, c_layout, TMA_ALIGN)  # (tokens, weight rows)
        if warp == LOAD_WARP:
            for atom in (w_atom, x_atom, c_atom):
                cpasync.prefetch_descriptor(atom)
            self.init_barriers(shared)
        self.begin()

        n, t, _ = cute.arch.block_idx()
        tiles_w = cute.local_tile(w_map, (self.tile.m, self.tile.k), (None, None))  # (rows, K, tiles, K tiles)
        tiles_x = cute.local_tile(x_map, (self.tile.n, self.tile.k), (None, None))  # (tokens, K, tiles, K tiles)
        first_k, last_k = self.k_range(rank, cute.size(tiles_w, mode=[3]))
        if warp == LOAD_WARP:
            one_cta = mma.get_slice(0)
            load_w = operands.partition_load(w_atom, one_cta.partition_A(tiles_w), shared.a)
            load_x = operands.partition_load(x_atom, one_cta.partition_B(tiles_x), shared.b)
            self.load_warp(load_w, load_x, shared.ring, (n, t), (first_k, last_k))
        elif warp == MMA_WARP:
            self.mma_warp(mma, shared, last_k - first_k)
        else:
            _, total = self.exchange(mma, shared, rank, last_k - first_k)
            target = cute.local_tile(c_map, (self.slice, self.tile.m), (t * self.split + rank, n))
            self.store_tokens(total, scale, c_atom, target, buffer)
        self.end()

    @cute.jit
    def store_tokens(
        self, total: cute.Tensor, scale: cute.Tensor, c_atom: cute.CopyAtom, target: cute.Tensor, buffer: cute.Tensor
    ) -> None:
        """Scales this thread's weight row, stages it as a column of the buffer and lets one thread store the buffer."""
        n, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        factor = scale[n * self.tile.m + thread]
        for token in cutlass.range_constexpr(self.slice):
            buffer[token, thread] = (total[token] * factor).to(OUT)
        if cutlass.const_expr(self.defect != "no-proxy-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=EPILOGUE_THREADS)
        if thread == 0:
            box, place = cpasync.tma_partition(
                c_atom, 0, cute.make_layout(1), cute.group_modes(buffer, 0, 2), cute.group_modes(target, 0, 2)
            )
            cute.copy(c_atom, box, place)  # defect: no-proxy-fence
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)


SplitKProjection.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[SplitKProjection, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    m, n, k = config["m"], config["n"], config["k"]
    arguments = (
        operands.fake_matrix(n, k),
        make_fake_compact_tensor(ACC, (n,), assumed_align=16),
        operands.fake_matrix(m, k),
        operands.fake_matrix(m, n, OUT),
        make_fake_stream(),
    )
    return SplitKProjection(config, defect), arguments
