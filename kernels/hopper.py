"""bf16 operands in shared memory and wgmma over them, shared by the Hopper kernels."""

from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from kernels import common
from kernels.operands import ACC, IN, MMA_BYTES, OUT, Loads, Tile
from kernels.ring import Ring

GROUP_ROWS = 64  # rows of C that one warpgroup computes


def make_mma(tile: Tile) -> cute.TiledMma:
    """wgmma that adds to its accumulator; warpgroup g computes rows [64 g, 64 g + 64) of the tile."""
    major = OperandMajorMode.K
    op = warpgroup.MmaF16BF16Op(
        IN, ACC, (GROUP_ROWS, tile.n, MMA_BYTES * 8 // IN.width), warpgroup.OperandSource.SMEM, major, major
    )
    mma = cute.make_tiled_mma(cute.make_mma_atom(op), (tile.m // GROUP_ROWS, 1, 1))
    mma.set(warpgroup.Field.ACCUMULATE, True)
    return mma


def make_load(matrix: cute.Tensor, rows: int, columns: int, stages: int) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """Shared-memory layout (rows, K, stages), tensor map and coordinate tensor of A or B, K contiguous."""
    kind = warpgroup.SmemLayoutAtomKind.K_SW128
    layout = cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, IN), (rows, columns, stages), order=(0, 1, 2))
    op = cpasync.CopyBulkTensorTileG2SOp()
    one_stage = cute.slice_(layout, (None, None, 0))
    return layout, *cpasync.make_tiled_tma_atom(op, matrix, one_stage, (rows, columns))


def make_store(c: cute.Tensor, box: tuple[int, int], buffers: int) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """Shared-memory layout (M, N, buffers) of one store box, tensor map and coordinate tensor of C."""
    layout = hopper_helpers.make_smem_layout_epi(OUT, LayoutEnum.ROW_MAJOR, box, buffers)
    op = cpasync.CopyBulkTensorTileS2GOp()
    return layout, *cpasync.make_tiled_tma_atom(op, c, cute.slice_(layout, (None, None, 0)), box)


def partition_load(atom: cute.CopyAtom, tiles: cute.Tensor, stages: cute.Tensor) -> Loads:
    """Splits global tiles (rows, K, tiles, K tiles) and stages (rows, K, stages) as the tensor map moves them."""
    shared, gmem = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(stages, 0, 2), cute.group_modes(tiles, 0, 2)
    )
    return Loads(atom, gmem, shared)


def make_stage(mma: cute.TiledMma) -> cute.TiledCopy:
    """Accumulator registers to shared memory, as bf16 through `stmatrix`."""
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), OUT)
    return cute.make_tiled_copy_S(atom, cute.make_tiled_copy_C_atom(atom, mma))


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
    """acc = sum of `k_tiles` stages of the ring, one wgmma group in flight; where the ring stands afterwards."""
    acc.fill(0.0)
    previous = stage
    for k in cutlass.range(k_tiles, unroll=1):
        common.wait(ring.full + stage, parity)
        warpgroup.fence()
        for block in cutlass.range_constexpr(cute.size(a, mode=[2])):
            cute.gemm(mma, acc, a[(None, None, block, stage)], b[(None, None, block, stage)], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(1)
        if k > 0:
            with cute.arch.elect_one():
                common.arrive(ring.empty + previous)
        previous = stage
        stage, parity = common.advance(stage, parity, ring.stages)
    warpgroup.wait_group(0)
    if k_tiles > 0:
        with cute.arch.elect_one():
            common.arrive(ring.empty + previous)
    return stage, parity
