"""Synchronization vocabulary shared by the kernels: one small wrapper for each instruction form they use.

The DSL's own helpers are used where they emit the wanted form. These wrappers exist because the kernels choose
order and scope of every barrier operation on purpose:

* `wait*` always retries: `mbarrier.try_wait` may give up at a time limit, so one attempt proves nothing.
* a wait or arrive that hands over shared memory between threads of one CTA keeps the default acquire/release at CTA
  scope; a hand-over of tensor memory uses the relaxed cluster form of the PTX manual, ordered by `tcgen05.fence`.
* data that a peer CTA wrote is read only after a wait at cluster scope and a cluster-scope acquire.

Every wrapper takes its source location from its caller, so PTX line tables point into the kernel and not here.
"""

from typing import Any

from cutlass import Constexpr, cute
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, nvvm, scf
from cutlass.cutlass_dsl import Boolean, Int32, T, dsl_user_op

Loc = ir.Location | None
Point = ir.InsertionPoint | None
ACQUIRE = nvvm.MemOrderKind.ACQUIRE
RELAXED = nvvm.MemOrderKind.RELAXED
RELEASE = nvvm.MemOrderKind.RELEASE
CTA = nvvm.MBarrierScopeKind.CTA
CLUSTER = nvvm.MBarrierScopeKind.CLUSTER


def _attempt(bar: cute.Pointer, parity: Any, order: Any, scope: Any, limit: int, loc: Loc, ip: Point) -> ir.Value:
    """One `mbarrier.try_wait.parity`; the result is an i1 that is true once the phase has completed.

    It gives up after `limit` nanoseconds, or, with 0, after a time that the hardware chooses.
    """
    address = bar.to_llvm_ptr(loc=loc, ip=ip)
    phase = Int32(parity).ir_value(loc=loc, ip=ip)
    where: dict[str, Any] = {"order": order, "scope": scope, "loc": loc, "ip": ip}
    if limit:
        return nvvm.mbarrier_try_wait_parity_timelimit(address, phase, Int32(limit).ir_value(loc=loc, ip=ip), **where)
    return nvvm.mbarrier_wait_parity(address, phase, nvvm.MBarrierWaitKind.TRY, **where)


def _retry(bar: cute.Pointer, parity: Any, order: Any, scope: Any, limit: int, loc: Loc, ip: Point) -> None:
    """`while not attempt: pass`, written as one loop so that all of it carries the caller's location."""
    loop = scf.WhileOp([], [], loc=loc, ip=ip)
    with ir.InsertionPoint(loop.before.blocks.append()):
        done = _attempt(bar, parity, order, scope, limit, loc, None)
        true = arith.constant(T.bool(), 1, loc=loc)
        scf.condition(arith.xori(done, true, loc=loc), [], loc=loc)
    with ir.InsertionPoint(loop.after.blocks.append()):
        scf.yield_([], loc=loc)


@dsl_user_op
def wait(bar: cute.Pointer, parity: Any, *, loc: Loc = None, ip: Point = None) -> None:
    """Blocks until the phase of `parity` has completed; acquires at CTA scope."""
    _retry(bar, parity, ACQUIRE, CTA, 0, loc, ip)


@dsl_user_op
def wait_relaxed_cluster(bar: cute.Pointer, parity: Any, limit: int = 0, *, loc: Loc = None, ip: Point = None) -> None:
    """Blocks until the phase of `parity` has completed; orders nothing by itself, a fence must follow.

    An attempt that gives up after `limit` nanoseconds is repeated: the limit sets how often the thread wakes up.
    """
    _retry(bar, parity, RELAXED, CLUSTER, limit, loc, ip)


@dsl_user_op
def wait_acquire_cluster(bar: cute.Pointer, parity: Any, *, loc: Loc = None, ip: Point = None) -> None:
    """Blocks until the phase of `parity` has completed; acquires at cluster scope (each attempt invalidates L1)."""
    _retry(bar, parity, ACQUIRE, CLUSTER, 0, loc, ip)


@dsl_user_op
def attempt_relaxed_cluster(
    bar: cute.Pointer, parity: Any, limit: int = 0, *, loc: Loc = None, ip: Point = None
) -> Boolean:
    """One relaxed attempt at cluster scope, which may fail; never a replacement for a wait."""
    return Boolean(_attempt(bar, parity, RELAXED, CLUSTER, limit, loc, ip))


@dsl_user_op
def arrive(bar: cute.Pointer, *, loc: Loc = None, ip: Point = None) -> None:
    """One arrival of each executing thread; releases at CTA scope."""
    nvvm.mbarrier_arrive(bar.to_llvm_ptr(loc=loc, ip=ip), loc=loc, ip=ip)


@dsl_user_op
def arrive_relaxed_cluster(bar: cute.Pointer, *, loc: Loc = None, ip: Point = None) -> None:
    """One arrival of each executing thread without order: `tcgen05.fence::before_thread_sync` must precede it."""
    nvvm.mbarrier_arrive(bar.to_llvm_ptr(loc=loc, ip=ip), scope=nvvm.MemScopeKind.CLUSTER, relaxed=True, loc=loc, ip=ip)


@dsl_user_op
def arrive_expect_relaxed_cluster(bar: cute.Pointer, size: int, *, loc: Loc = None, ip: Point = None) -> None:
    """Expects `size` bytes from other CTAs of the cluster and arrives; orders nothing."""
    nvvm.mbarrier_arrive_expect_tx(
        bar.to_llvm_ptr(loc=loc, ip=ip),
        Int32(size).ir_value(loc=loc, ip=ip),
        scope=nvvm.MemScopeKind.CLUSTER,
        relaxed=True,
        loc=loc,
        ip=ip,
    )


@dsl_user_op
def fence_tcgen05_before(*, loc: Loc = None, ip: Point = None) -> None:
    """Orders earlier tcgen05 work of this thread before the synchronization that follows."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, loc=loc, ip=ip)


@dsl_user_op
def fence_tcgen05_after(*, loc: Loc = None, ip: Point = None) -> None:
    """Orders later tcgen05 work of this thread after the synchronization that precedes."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, loc=loc, ip=ip)


@cute.jit
def advance(stage: Int32, parity: Int32, stages: Constexpr) -> tuple[Int32, Int32]:
    """The next stage of a ring, and the parity to wait with there; the parity flips on each round."""
    stage += 1
    if stage == stages:
        stage = Int32(0)
        parity ^= 1
    return stage, parity


@dsl_user_op
def fence_acquire_cluster_shared(*, loc: Loc = None, ip: Point = None) -> None:
    """Acquires the cluster's shared memory after a relaxed cluster wait; costs no instruction."""
    nvvm.fence_sync_restrict(ACQUIRE, loc=loc, ip=ip)


@dsl_user_op
def fence_release_cluster_shared(*, loc: Loc = None, ip: Point = None) -> None:
    """Releases this CTA's shared memory to the cluster, for a relaxed cluster arrive that follows."""
    nvvm.fence_sync_restrict(RELEASE, loc=loc, ip=ip)


@dsl_user_op
def arrive_peer_relaxed_cluster(bar: cute.Pointer, rank: Any, *, loc: Loc = None, ip: Point = None) -> None:
    """One arrival on the barrier at the same offset in the CTA of `rank`; orders nothing, a fence must precede."""
    cute.arch.mbarrier_arrive(bar, rank, relaxed=True, scope=nvvm.MemScopeKind.CLUSTER, loc=loc, ip=ip)


@dsl_user_op
def release_relaxed_cluster(bar: cute.Pointer, ctas: int, *, loc: Loc = None, ip: Point = None) -> None:
    """One arrival on this CTA's barrier, or on that of the first of `ctas` = 2 that work together; orders nothing."""
    if ctas == 2:
        arrive_peer_relaxed_cluster(bar, 0, loc=loc, ip=ip)
    else:
        arrive_relaxed_cluster(bar, loc=loc, ip=ip)
