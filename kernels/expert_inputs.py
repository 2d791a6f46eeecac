"""Inputs of a weight gradient on their way into shared memory: two operands, each with a load warp and tensor maps.

The maps of ragged inputs stand in global memory, for each expert its own (kernels/tensor_maps.py). Each load warp
acquires those that it goes through when it comes to an expert, the maps of values and of scale factors alike, and goes
on using them for all of the expert's tiles.

Defects (of every kernel that loads its inputs so)
    no-acquire             neither load warp acquires the maps
    acquire-in-one-warp    the second load warp relies on the acquire of the first
    acquire-wrong-slot     the second load warp acquires the maps of the first
    no-scale-acquire       the load warps acquire the maps of the values, not those of the scale factors
    acquire-every-tile     the load warps acquire again for each tile: right, but each acquire costs
"""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync
from cutlass.utils import SmemAllocator

from kernels import operands, scaled, tensor_maps
from kernels.operands import IN, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring
from kernels.scaled import Scaled, ScaledLoads, Stages
from kernels.tensor_maps import Experts
from kernels.walk import Run

X_MAP, Y_MAP, W_MAP, X_SCALES, Y_SCALES, MAPS = range(6)  # slots of an expert in the workspace
SCALES_OF = {X_MAP: X_SCALES, Y_MAP: Y_SCALES}


class ExpertInputs:
    """The part of a weight gradient that loads its operands, in bf16 or in MXFP8."""

    def __init__(self, config: Mapping[str, Any], defect: str | None) -> None:
        self.tile = Tile(config["tile_m"], config["tile_n"], config["tile_k"])
        self.stages = config["stages"]
        self.ragged = config["ragged"]
        self.scaled = config["scaled"]
        self.defect = defect

    def make_mma(self) -> cute.TiledMma:
        """Both operands have their features contiguous, not their tokens."""
        if self.scaled:
            return scaled.make_mma(self.tile, 1, OperandMajorMode.MN)
        return operands.make_mma(self.tile, IN, OperandMajorMode.MN)

    def input(self, x: cute.Tensor, scales: cute.Tensor | None, is_a: bool) -> Scaled:
        """Tensor maps of an operand; bf16 has no scale factors."""
        if self.scaled:
            return scaled.make_loads(x, scales, self.tile, 1, self.stages, is_a, OperandMajorMode.MN)
        make = operands.make_load_a if is_a else operands.make_load_b
        layout, atom, coordinates = make(x, self.make_mma(), self.tile, self.stages)
        return Scaled(atom, coordinates, layout, None, None, None)

    def room(self, smem: SmemAllocator, x: Scaled) -> Stages:
        """Room for the stages of one operand."""
        if self.scaled:
            return scaled.allocate(smem, x.layout, x.scale_layout)
        return Stages(smem.allocate_tensor(IN, x.layout.outer, TMA_ALIGN, x.layout.inner), None)

    def loads(self, x: Scaled, stages: Stages, is_a: bool) -> ScaledLoads:
        """One operand cut into tiles (rows or columns, K tiles, experts), as its load warp needs it."""
        if self.scaled:
            return scaled.loads(x, stages, self.tile, 1, is_a)
        mine = self.make_mma().get_slice(0)
        tiles = cute.local_tile(x.map, (self.tile.m if is_a else self.tile.n, self.tile.k), (None, None, None))
        tiles = mine.partition_A(tiles) if is_a else mine.partition_B(tiles)
        return ScaledLoads(operands.partition_load(x.atom, tiles, stages.values), None)

    @cute.jit
    def k_tiles(self, experts: Experts, expert: Any, most: Any) -> Any:
        """K tiles of an expert."""
        if cutlass.const_expr(self.ragged):
            first, last = tensor_maps.tokens(experts.ends, expert)
            return (last - first + self.tile.k - 1) // self.tile.k
        return cutlass.Int32(most)

    @cute.jit
    def load_warp(
        self, x: ScaledLoads, number: cutlass.Constexpr, ring: Ring, run: Run, experts: Experts, most: Any
    ) -> None:
        """Loads one operand, expert by expert, tile after tile; acquires its maps once for each expert."""
        values = (self.tile.m if number == X_MAP else self.tile.n) * self.tile.k
        size = values * IN.width // 8
        if self.scaled:
            size = values + values // scaled.VECTOR
        stage, parity = cutlass.Int32(0), cutlass.Int32(1)
        tile = run.first
        while tile < run.last:
            expert, end = run.expert(tile)
            k_range = (0, self.k_tiles(experts, expert, most))
            self.acquire(experts, expert, number, self.defect != "acquire-every-tile")
            loads = self.of_expert(x, number, experts, expert)
            while tile < end:
                self.acquire(experts, expert, number, self.defect == "acquire-every-tile")
                row, column = run.coordinates(tile)
                place = row if number == X_MAP else column
                stage, parity = ring.fill_one(loads, place, k_range, size, stage, parity)
                tile += 1
        ring.drain(stage, parity)

    def of_expert(
        self, x: ScaledLoads, number: int, experts: Experts, expert: Any
    ) -> tuple[tuple[Loads, cute.Pointer | None], ...]:
        """The loads of an expert's values and scale factors, each with its map where the input is ragged."""
        found = []
        for load, slot in ((x.values, number), (x.scales, SCALES_OF[number])):
            if load is not None:
                tiles = load.tiles[(None, None, None, 0 if self.ragged else expert)]
                tensor_map = experts.maps.map(expert, slot) if self.ragged else None
                found.append((Loads(load.atom, tiles, load.stages), tensor_map))
        return tuple(found)

    @cute.jit
    def acquire(self, experts: Experts, expert: Any, number: cutlass.Constexpr, here: cutlass.Constexpr) -> None:
        """Acquires the maps of a ragged input, if this is the place to do it."""
        slot = X_MAP if self.defect == "acquire-wrong-slot" else number
        skipped = self.defect == "no-acquire" or (self.defect == "acquire-in-one-warp" and number == Y_MAP)
        slots = (slot, SCALES_OF[slot]) if self.scaled and self.defect != "no-scale-acquire" else (slot,)
        if cutlass.const_expr(self.ragged and here and not skipped):
            for each in slots:
                cpasync.fence_tma_desc_acquire(experts.maps.map(expert, each))  # defect: acquire-every-tile
