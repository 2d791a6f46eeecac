"""The ring of operand stages between the load warp and whoever multiplies: pairs of mbarriers, bulk tensor loads.

The load warp waits for `empty[s]`, expects the bytes of two loads on `full[s]` (count 1) and issues them; where each
operand has a load warp of its own, each expects its own bytes (count 2). Whoever multiplies waits for `full[s]`, and
gives the stage back through `empty[s]` once nothing reads it any more: by `tcgen05.commit` (count 1), or by one thread
of each warp after `wgmma.wait_group` (count = warps).
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute

from kernels import common
from kernels.operands import Loads


@dataclass(frozen=True)
class Ring:
    """Barriers of the operand stages; `stage_bytes` is what the two loads of one stage bring in."""

    full: cute.Pointer
    empty: cute.Pointer
    stages: int
    stage_bytes: int

    def init(self, releases: int, loads: int = 1) -> None:
        """Initializes the barriers for `loads` load warps and `releases` arrivals that empty a stage; one thread."""
        for stage in range(self.stages):
            cute.arch.mbarrier_init(self.full + stage, loads)
            cute.arch.mbarrier_init(self.empty + stage, releases)

    @cute.jit
    def fill(
        self, a: Loads, b: Loads, tile: Any, k_tiles: tuple[Any, Any], stage: cutlass.Int32, parity: cutlass.Int32
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """Loads K tiles [first, last) of one tile of C into the ring; where the ring stands afterwards."""
        row, column = tile
        first_k, last_k = k_tiles
        for k in cutlass.range(first_k, last_k, unroll=1):
            common.wait(self.empty + stage, parity)
            full = self.full + stage
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, self.stage_bytes)
            cute.copy(a.atom, a.tiles[(None, row, k)], a.stages[(None, stage)], tma_bar_ptr=full)
            cute.copy(b.atom, b.tiles[(None, column, k)], b.stages[(None, stage)], tma_bar_ptr=full)
            stage, parity = common.advance(stage, parity, self.stages)
        return stage, parity

    @cute.jit
    def fill_one(
        self,
        loads: tuple[tuple[Loads, cute.Pointer | None], ...],
        tile: Any,
        k_tiles: tuple[Any, Any],
        size: int,
        stage: cutlass.Int32,
        parity: cutlass.Int32,
    ) -> tuple[cutlass.Int32, cutlass.Int32]:
        """The share of one operand in `fill`: `size` bytes a stage in one or more loads, by a load warp of its own.

        Beside each load stands a tensor map to use instead of its own, or None; whoever passes it has acquired it.
        """
        first_k, last_k = k_tiles
        for k in cutlass.range(first_k, last_k, unroll=1):
            common.wait(self.empty + stage, parity)
            full = self.full + stage
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, size)
            for x, tensor_map in loads:
                self.load(x, x.tiles[(None, tile, k)], stage, tensor_map)
            stage, parity = common.advance(stage, parity, self.stages)
        return stage, parity

    @cute.jit
    def load(self, x: Loads, box: cute.Tensor, stage: cutlass.Int32, tensor_map: cute.Pointer | None) -> None:
        """One load into a stage, whose barrier expects its bytes."""
        cute.copy(  # defect: early-weights, no-acquire, acquire-in-one-warp, acquire-wrong-slot, no-scale-acquire
            x.atom, box, x.stages[(None, stage)], tma_bar_ptr=self.full + stage, tma_desc_ptr=tensor_map
        )

    @cute.jit
    def drain(self, stage: cutlass.Int32, parity: cutlass.Int32) -> None:
        """Waits until every stage has been given back, so that no load and no MMA outlives the load warp."""
        for _ in cutlass.range(self.stages, unroll=1):
            common.wait(self.empty + stage, parity)
            stage, parity = common.advance(stage, parity, self.stages)
