"""Two accumulator regions that share columns of tensor memory, read and given back by the epilogue.

Two regions of 256 columns do not fit beside what else TMEM must hold, so they overlap:

    region 0    columns [0, 256)
    region 1    columns [stride, stride + 256)

The MMA writes one region while the epilogue still reads the other. The epilogue therefore reads the shared end of its
region first (region 0 from the last subtile down, region 1 from the first subtile up) and releases the accumulator in
the step that reads the last shared columns, by the canonical chain: `tcgen05.ld`, `tcgen05.wait::ld`,
`tcgen05.fence::before_thread_sync`, arrive.

Defects (of every kernel that overlaps its accumulators)
    release-before-load   the release stands before the load of the last shared subtile
    no-wait-ld            `tcgen05.wait::ld` is missing between the load and the release
    no-fence              `tcgen05.fence::before_thread_sync` is missing before the relaxed release
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Constexpr, cute
from cutlass.cute.nvgpu import tcgen05

from kernels import common
from kernels.operands import ACC

SUBTILE = 32  # columns that one step reads


@dataclass(frozen=True)
class Subtiles:
    """One thread's way through both regions, in steps of SUBTILE columns of its TMEM lane."""

    load: cute.TiledCopy
    source: cute.Tensor  # (T2R, 1, 1, 1, subtiles, region) in TMEM
    values: cute.Tensor  # fp32 registers that a step fills
    empty: cute.Pointer  # barrier on which every thread releases the accumulator
    steps: int
    release_step: int
    ctas: int  # whose epilogues release together, at the barrier of the first

    @cute.jit
    def read(self, step: Any, region: Any, defect: Constexpr) -> cutlass.Int32:
        """Reads the subtile of a step, and releases the accumulator if the rest is not shared; the subtile's number."""
        subtile = cutlass.Int32(step)
        if region == 0:
            subtile = self.steps - 1 - step
        last_shared = step == self.release_step
        if cutlass.const_expr(defect == "release-before-load"):  # noqa: SIM102 - compile time around run time
            if last_shared:
                cute.arch.fence_view_async_tmem_load()
                common.fence_tcgen05_before()
                common.release_relaxed_cluster(self.empty, self.ctas)  # defect: release-before-load
        cute.copy(self.load, self.source[(None, None, None, 0, subtile, region)], self.values)
        if cutlass.const_expr(defect != "no-wait-ld"):
            cute.arch.fence_view_async_tmem_load()  # tcgen05.wait::ld
        if cutlass.const_expr(defect != "release-before-load"):  # noqa: SIM102 - compile time around run time
            if last_shared:
                if cutlass.const_expr(defect != "no-fence"):
                    common.fence_tcgen05_before()
                common.release_relaxed_cluster(self.empty, self.ctas)  # defect: no-wait-ld, no-fence
        return subtile


def release_step(columns: int, stride: int) -> int:
    """The step that reads the last of the columns that regions of `columns` columns, `stride` apart, share."""
    return -(-(columns - stride) // SUBTILE) - 1


def regions(acc: cute.Tensor, stride: int) -> cute.Tensor:
    """Both regions (MMA, 1, 1, 2), the first one where the accumulator `acc` (MMA, 1, 1) is."""
    return cute.make_tensor(acc.iterator, cute.append(acc.layout, cute.make_layout(2, stride=stride)))


def subtiles(both: cute.Tensor, tile: tuple[int, int], stride: int, empty: cute.Pointer, ctas: int = 1) -> Subtiles:
    """For this thread and both regions (MMA, 1, 1, 2) of an M x N tile of one CTA, `stride` columns apart."""
    source = cute.flat_divide(both[((None, None), 0, 0, None)], (tile[0], SUBTILE))
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(SUBTILE)), ACC)
    load = tcgen05.make_tmem_copy(atom, source[(None, None, 0, 0, 0)])
    mine = load.get_slice(cute.arch.thread_idx()[0])
    row = mine.partition_D(cute.make_identity_tensor((tile[0], SUBTILE)))
    return Subtiles(
        load=load,
        source=mine.partition_S(source),
        values=cute.make_rmem_tensor(row.shape, ACC),
        empty=empty,
        steps=tile[1] // SUBTILE,
        release_step=release_step(tile[1], stride),
        ctas=ctas,
    )
