"""Boxes of a matrix C that an epilogue reads: loaded ahead by a warp of their own, in the order of the epilogue.

The c load warp waits for `empty[i]` (count 128), expects the bytes of one box on `full[i]` (count 1) and loads it.
Every thread of the epilogue waits for `full[i]`, reads its row and arrives on `empty[i]`.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

from kernels import common
from kernels.operands import ACC, OUT
from kernels.overlap import SUBTILE

READERS = 128


@dataclass(frozen=True)
class Boxes:
    """The buffers of one CTA."""

    room: cute.Tensor  # (M, SUBTILE, buffers)
    full: cute.Pointer
    empty: cute.Pointer
    buffers: int

    def init(self) -> None:
        """Initializes the barriers; one thread, which publishes them."""
        for buffer in range(self.buffers):
            cute.arch.mbarrier_init(self.full + buffer, 1)
            cute.arch.mbarrier_init(self.empty + buffer, READERS)

    def partition(self, atom: cute.CopyAtom, tiles: cute.Tensor) -> tuple[cute.Tensor, cute.Tensor]:
        """The buffers (box, buffers), and tiles (M, N, rows, columns) cut into (box, 1, subtiles, rows, columns)."""
        parts = cute.flat_divide(tiles, (cute.size(self.room, mode=[0]), SUBTILE))
        boxes, sources = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(self.room, 0, 2), cute.group_modes(parts, 0, 2)
        )
        return boxes, sources

    @cute.jit
    def load(self, atom: cute.CopyAtom, source: cute.Tensor, box: cute.Tensor, buffer: Any, parity: Any) -> None:
        """Loads `source` into the box of one buffer once it is empty."""
        size = cute.size(self.room, mode=[0]) * SUBTILE * OUT.width // 8
        common.wait(self.empty + buffer, parity)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(self.full + buffer, size)
        cute.copy(atom, source, box, tma_bar_ptr=self.full + buffer)

    @cute.jit
    def drain(self, buffer: cutlass.Int32, parity: cutlass.Int32) -> None:
        """Waits until every buffer has been given back, so that no load outlives the c load warp."""
        for _ in cutlass.range(self.buffers, unroll=1):
            common.wait(self.empty + buffer, parity)
            buffer, parity = common.advance(buffer, parity, self.buffers)

    @cute.jit
    def read(self, row: cute.Tensor, buffer: Any, parity: Any) -> None:
        """This thread's row of one buffer, as fp32; then the buffer goes back."""
        loaded = cute.make_rmem_tensor(SUBTILE, OUT)
        common.wait(self.full + buffer, parity)
        cute.autovec_copy(self.room[(cute.arch.thread_idx()[0], None, buffer)], loaded)
        common.arrive(self.empty + buffer)
        for i in cutlass.range_constexpr(SUBTILE):
            row[i] = loaded[i].to(ACC)
