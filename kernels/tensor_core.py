"""tcgen05.mma over the ring of operand stages, shared by the Blackwell kernels."""

from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import tcgen05

from kernels import common
from kernels.ring import Ring


@cute.jit
def multiply(
    mma: cute.TiledMma,
    acc: cute.Tensor,
    a: cute.Tensor,
    b: cute.Tensor,
    ring: Ring,
    k_tiles: Any,
    stage: cutlass.Int32,
    parity: cutlass.Int32,
) -> tuple[cutlass.Int32, cutlass.Int32]:
    """acc = sum of `k_tiles` stages; a stage goes back when its MMAs complete. Where the ring stands afterwards.

    The accumulator itself is complete only after a further commit, which is the caller's.
    """
    mma = cute.make_tiled_mma(mma.op)  # of this call's own: the caller's must not change inside the loops here
    mma.set(tcgen05.Field.ACCUMULATE, False)
    for _ in cutlass.range(k_tiles, unroll=1):
        common.wait(ring.full + stage, parity)
        common.fence_tcgen05_after()
        for block in cutlass.range_constexpr(cute.size(a, mode=[2])):
            at = (None, None, block, stage)
            cute.gemm(mma, acc, a[at], b[at], acc)  # defect: no-gather-fence
            mma.set(tcgen05.Field.ACCUMULATE, True)
        with cute.arch.elect_one():
            tcgen05.commit(ring.empty + stage)
        stage, parity = common.advance(stage, parity, ring.stages)
    return stage, parity
