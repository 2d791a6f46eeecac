"""Results on their way out of a CTA: registers -> rounded -> shared memory -> bulk tensor store, box after box.

Four warps fill a box, thread 0 stores it. The buffers take turns: one store per further buffer may stay in flight while
the next box is staged, and all of them must have been read before the CTA leaves. The staged values are written through
the generic proxy and read through the async proxy, so each thread fences before the barrier behind which one stores.

Defects (of every kernel whose registry entry names them)
    no-drain           the storing thread leaves while its last stores still read shared memory
    late-store-wait    the storing thread lets one store too many in flight, so a buffer is rewritten under it
    no-proxy-fence     the staged values are not made visible to the async proxy before the store reads them
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Constexpr, cute
from cutlass.cute.nvgpu import cpasync

from kernels import operands

STORE_BARRIER = 1
THREADS = 128


@dataclass(frozen=True)
class Stores:
    """What the four warps need to stage a box of this thread's row, and thread 0 to store it."""

    copy: cute.TiledCopy  # registers of a TMEM load -> shared memory
    staged: cute.Tensor  # (R2S, 1, columns, buffers)
    atom: cute.CopyAtom
    boxes: cute.Tensor  # (box, buffers)
    targets: cute.Tensor  # (box, ...) of the result
    buffers: int

    @cute.jit
    def put(
        self,
        values: cute.Tensor,
        buffer: Any,
        target: Any,
        defect: Constexpr,
        tensor_map: cute.Pointer | None = None,
    ) -> None:
        """Stages `values` in one buffer, has it stored to `target`, and frees the buffer that comes next.

        `tensor_map` takes the place of the one in the copy atom; whoever passes it has acquired it.
        """
        rounded = cute.make_rmem_tensor(self.copy.retile(values).shape, self.staged.element_type)
        rounded.store(self.copy.retile(values).load().to(self.staged.element_type))
        cute.copy(self.copy, rounded, self.staged[(None, None, None, buffer)])  # defect: late-store-wait
        if cutlass.const_expr(defect != "no-proxy-fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=THREADS)
        if cute.arch.thread_idx()[0] == 0:
            what = (self.atom, self.boxes[(None, buffer)], self.targets[(None, *target)])
            cute.copy(*what, tma_desc_ptr=tensor_map)  # defect: no-drain, no-proxy-fence, no-store-acquire
            cute.arch.cp_async_bulk_commit_group()
            in_flight = self.buffers if defect == "late-store-wait" else self.buffers - 1
            cute.arch.cp_async_bulk_wait_group(in_flight, read=True)
        cute.arch.barrier(barrier_id=STORE_BARRIER, number_of_threads=THREADS)

    @cute.jit
    def drain(self, defect: Constexpr) -> None:
        """Waits until shared memory has been read; the issuing thread, before it leaves."""
        if cutlass.const_expr(defect != "no-drain"):  # noqa: SIM102 - compile time around run time
            if cute.arch.thread_idx()[0] == 0:
                cute.arch.cp_async_bulk_wait_group(0, read=True)


def make(load: cute.TiledCopy, atom: cute.CopyAtom, room: cute.Tensor, targets: cute.Tensor) -> Stores:
    """For rows as `load` leaves them, boxes in `room` (M, N, buffers) and a result cut into `targets` (M, N, ...)."""
    copy = cute.make_tiled_copy_D(operands.store_atom(load, room.element_type), load)
    boxes, places = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(room, 0, 2), cute.group_modes(targets, 0, 2)
    )
    staged = copy.get_slice(cute.arch.thread_idx()[0]).partition_D(room)
    return Stores(copy, staged, atom, boxes, places, cute.size(room, mode=[2]))
