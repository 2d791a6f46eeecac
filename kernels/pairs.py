"""Pairs of CTAs that multiply as one (cta_group::2): the two CTAs of a cluster, of which the first leads.

Each CTA has one half of the rows of A and of the columns of B in its shared memory, and the accumulator of its rows in
its own TMEM. The tensor cores of both work on MMAs that the leader alone issues.

    loads      both CTAs load their halves; all bytes count on the leader's `full`, which the leader alone waits for
    commits    the leader's, multicast: the same barrier of both CTAs is signalled
    release    both epilogues arrive at the leader's `acc_empty`
    TMEM       allocated and freed by both together (kernels/tmem.py)

Everything here takes the number of CTAs that multiply together, and is what any kernel does where that is 1.
"""

from typing import Any

import cutlass
from cutlass import Constexpr, cute
from cutlass.cute.nvgpu import tcgen05

BOTH = 0b11  # multicast mask


def group(ctas: int) -> tcgen05.CtaGroup:
    """The qualifier of instructions of the tensor core."""
    return tcgen05.CtaGroup.TWO if ctas == 2 else tcgen05.CtaGroup.ONE


def rank(ctas: int) -> Any:
    """Which of its pair this CTA is; 0 leads."""
    return cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster()) if ctas == 2 else 0


@cute.jit
def begin(ctas: Constexpr) -> None:
    """The barriers that one thread has published are initialized, in both CTAs."""
    if cutlass.const_expr(ctas == 2):
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    else:
        cute.arch.sync_threads()


@cute.jit
def end(ctas: Constexpr) -> None:
    """No CTA leaves while the other's MMAs may read its shared memory, or signals may arrive there."""
    if cutlass.const_expr(ctas == 2):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@cute.jit
def expect(full: cute.Pointer, size: Constexpr, ctas: Constexpr) -> None:
    """The leader's load warp expects the bytes of both CTAs."""
    if cutlass.const_expr(ctas == 2):
        if rank(ctas) == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, size)
    else:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, size)


@cute.jit
def commit(bar: cute.Pointer, ctas: Constexpr) -> None:
    """One arrival, at this barrier of both CTAs, once the MMAs so far are complete; the leader's mma warp."""
    with cute.arch.elect_one():
        if cutlass.const_expr(ctas == 2):
            tcgen05.commit(bar, BOTH, tcgen05.CtaGroup.TWO)
        else:
            tcgen05.commit(bar)
