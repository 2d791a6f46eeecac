"""Tiles of a grouped GEMM, found by one warp and handed to the others through a short queue in shared memory.

The scheduler warp waits for `empty[q]` (count = threads that take), writes a slot and arrives on `full[q]` (count 1).
Every thread of every other warp waits for `full[q]`, reads the slot and arrives on `empty[q]`. The tile after the last
one is not valid and ends all roles.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.utils import SmemAllocator

from kernels import common

WORDS = 4  # row tile, column, expert, valid
ALIGN = 16  # bytes


@dataclass(frozen=True)
class TileQueue:
    """The queue of one CTA."""

    words: cute.Tensor  # (WORDS, slots)
    full: cute.Pointer
    empty: cute.Pointer
    slots: int

    def init(self, takers: int) -> None:
        """Initializes the barriers for `takers` threads that take; one thread, which publishes them."""
        for slot in range(self.slots):
            cute.arch.mbarrier_init(self.full + slot, 1)
            cute.arch.mbarrier_init(self.empty + slot, takers)

    @cute.jit
    def put(
        self, words: tuple[Any, Any, Any, Any], slot: cutlass.Int32, parity: cutlass.Int32
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """Hands one tile over; the slot and parity of the next one."""
        common.wait(self.empty + slot, parity)
        with cute.arch.elect_one():
            for i in cutlass.range_constexpr(WORDS):
                self.words[i, slot] = cutlass.Int32(words[i])
            common.arrive(self.full + slot)
        slot, parity = common.advance(slot, parity, self.slots)
        return slot, parity

    @cute.jit
    def take(
        self, slot: cutlass.Int32, parity: cutlass.Int32
    ) -> tuple[cutlass.Int32, cutlass.Int32, cutlass.Int32, cutlass.Int32, cutlass.Int32, cutlass.Int32]:
        """Row tile, column, expert and valid of the next tile, then the slot and parity of the one after."""
        common.wait(self.full + slot, parity)
        row, column, expert, valid = (self.words[i, slot] for i in range(WORDS))
        common.arrive(self.empty + slot)
        slot, parity = common.advance(slot, parity, self.slots)
        return row, column, expert, valid, slot, parity

    @cute.jit
    def schedule(
        self, offsets: cute.Tensor, rows: cutlass.Constexpr, columns: cutlass.Constexpr, ctas: cutlass.Constexpr = 1
    ) -> None:
        """Finds the tiles of this CTA, every grid-th of all, and hands them over; the scheduler warp.

        Neighbouring `ctas` CTAs work on the same tiles.

        Rows are sorted by expert: those of expert e end at `offsets[e]`, a multiple of `rows`, the height of a tile. An
        expert without rows has no tiles.
        """
        slot, parity = cutlass.Int32(0), cutlass.Int32(1)
        experts = cute.size(offsets)
        expert, before, start = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
        end = offsets[0] // rows
        work, step = cute.arch.block_idx()[0] // ctas, cute.arch.grid_dim()[0] // ctas
        valid = cutlass.Int32(1)
        while valid != 0:
            while valid != 0 and work >= before + (end - start) * columns:
                before += (end - start) * columns
                start = end
                expert += 1
                if expert < experts:
                    end = offsets[expert] // rows
                else:
                    valid = cutlass.Int32(0)
            row, column = start + (work - before) // columns, (work - before) % columns
            slot, parity = self.put((row, column, expert, valid), slot, parity)
            work += step


def allocate(smem: SmemAllocator, full: cute.Pointer, empty: cute.Pointer, slots: int) -> TileQueue:
    """Room for the slots."""
    return TileQueue(smem.allocate_tensor(cutlass.Int32, cute.make_layout((WORDS, slots)), ALIGN), full, empty, slots)
