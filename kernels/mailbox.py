"""Mailbox of a split-K cluster: the peers' partial sums, written into this CTA's shared memory with `st.async`.

Slot i comes from the CTA i + 1 ranks below (modulo the size of the cluster), so a CTA of rank r sends to the slot i of
the CTA of rank r + i + 1. A slot holds one row of values for each thread; its barrier `full[i]` (count 1) is armed with
the bytes of the slot and completed by the stores themselves. They complete it with a release at cluster scope, and only
an acquire at cluster scope meets that: a relaxed cluster wait, then `fence.acquire.sync_restrict::shared::cluster`,
which compiles to no instruction.

Defects (of every kernel that has a mailbox)
    cta-scope-wait         the mailbox is acquired at CTA scope only
    acquire-cluster-wait   the mailbox wait itself acquires at cluster scope: right, but each attempt invalidates L1
    wait-not-retried       one relaxed attempt stands for the mailbox wait
    time-limit-trusted     the same where the attempt has a time limit of its own, at which it gives up
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Constexpr, cute
from cutlass.utils import SmemAllocator

from kernels import common
from kernels.operands import ACC

VECTOR = 4  # fp32 values of one st.async
ALIGN = 128  # bytes


def owner_of(rank: Any, slot: Any, split: int) -> Any:
    """Rank of the CTA in whose slot `slot` the CTA of `rank` writes."""
    return (rank + slot + 1) % split


def slot_at(owner: Any, rank: Any, split: int) -> Any:
    """The slot of the CTA `owner` in which the CTA of `rank` writes."""
    return (owner - rank - 1 + split) % split


def sender_of(rank: Any, slot: Any, split: int) -> Any:
    """Rank of the CTA that writes in slot `slot` of the CTA of `rank`."""
    return (rank - slot - 1 + split) % split


@dataclass(frozen=True)
class Mailbox:
    """What one CTA receives into; the peers address it by the same offsets in their own shared memory."""

    slots: cute.Tensor | None  # (VECTOR, values / VECTOR, thread, slot); None where there are no peers
    full: cute.Pointer
    count: int  # slots, one for each peer
    slot_bytes: int
    time_limit: int = 0  # nanoseconds after which an attempt to receive gives up and is repeated; 0: hardware's choice

    def init(self) -> None:
        """Initializes the barriers; one thread, which publishes them and then arms them."""
        for slot in range(self.count):
            cute.arch.mbarrier_init(self.full + slot, 1)

    def arm(self) -> None:
        """Expects one phase of every slot; one thread, before any peer may send."""
        for slot in range(self.count):
            common.arrive_expect_relaxed_cluster(self.full + slot, self.slot_bytes)

    def send(self, values: cute.Tensor, slot: Any, owner: Any, thread: Any) -> None:
        """Writes this thread's values into its row of slot `slot` in the mailbox of the CTA of rank `owner`."""
        bits = cute.recast_tensor(values, cutlass.Int32)
        box = cute.recast_tensor(self.slots, cutlass.Int32)
        for vector in range(cute.size(values) // VECTOR):
            words = tuple(bits[vector * VECTOR + i] for i in range(VECTOR))
            cute.arch.store_async_dsmem(box[(None, vector, thread, slot)].iterator, words, self.full + slot, owner)

    @cute.jit
    def receive(self, slot: Any, parity: Any, defect: Constexpr) -> None:
        """Blocks until the slot holds what the peer sent in the phase of `parity`, and makes it readable."""
        if cutlass.const_expr(defect == "cta-scope-wait"):
            common.wait(self.full + slot, parity)  # defect: cta-scope-wait
        elif cutlass.const_expr(defect == "acquire-cluster-wait"):
            common.wait_acquire_cluster(self.full + slot, parity)  # defect: acquire-cluster-wait
        elif cutlass.const_expr(defect in ("wait-not-retried", "time-limit-trusted")):
            common.attempt_relaxed_cluster(  # defect: wait-not-retried, time-limit-trusted
                self.full + slot, parity, self.time_limit
            )
            common.fence_acquire_cluster_shared()
        else:
            common.wait_relaxed_cluster(self.full + slot, parity, self.time_limit)
            common.fence_acquire_cluster_shared()

    @cute.jit
    def add(self, total: cute.Tensor, parity: Any, thread: Any, defect: Constexpr) -> None:
        """Adds every peer's values to `total`, in the order of the slots, each as soon as it has arrived."""
        received = cute.make_rmem_tensor((VECTOR, cute.size(total) // VECTOR), ACC)
        for slot in cutlass.range(self.count, unroll=1):
            self.receive(slot, parity, defect)
            cute.autovec_copy(self.slots[(None, None, thread, slot)], received)
            for i in cutlass.range_constexpr(cute.size(total)):
                total[i] = total[i] + received[i]


def allocate(
    smem: SmemAllocator, full: cute.Pointer, values: int, threads: int, count: int, time_limit: int = 0
) -> Mailbox:
    """`count` slots of `values` fp32 for each of `threads` threads; neighbours' vectors stand side by side."""
    slot_bytes = values * threads * ACC.width // 8
    if count == 0:
        return Mailbox(None, full, count, slot_bytes, time_limit)
    layout = cute.make_layout(
        (VECTOR, values // VECTOR, threads, count),
        stride=(1, VECTOR * threads, VECTOR, values * threads),
    )
    return Mailbox(smem.allocate_tensor(ACC, layout, ALIGN), full, count, slot_bytes, time_limit)
