"""Operands of the GEMM kernels: matrices with a contiguous K mode, bf16 unless said otherwise, as bulk tensor loads.

Only layouts and tensor maps are built here; every barrier operation stays in the kernel that owns the protocol.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import blackwell_helpers as sm100

IN = cutlass.BFloat16
OUT = cutlass.BFloat16
ACC = cutlass.Float32
MMA_BYTES = 32  # of one row of an operand that one MMA instruction takes
TMA_ALIGN = 1024  # bytes; a 128-byte swizzle repeats every 1024


@dataclass(frozen=True)
class Tile:
    """Extent of one output tile and of one step along K, in elements."""

    m: int
    n: int
    k: int

    @property
    def mnk(self) -> tuple[int, int, int]:
        return (self.m, self.n, self.k)

    @property
    def stage_bytes(self) -> int:
        """Bytes that the two loads of one stage bring in."""
        return (self.m + self.n) * self.k * IN.width // 8


@dataclass(frozen=True)
class Loads:
    """What the load warp needs of one operand: tensor map, tiles in global memory, stages in shared memory."""

    atom: cute.CopyAtom
    tiles: cute.Tensor  # ((atom, rest), tiles, K tiles)
    stages: cute.Tensor  # ((atom, rest), stages)


def fake_matrix(rows: int, columns: int, dtype: Any = IN) -> Any:
    """A row-major matrix without data, to compile for."""
    return make_fake_compact_tensor(dtype, (rows, columns), stride_order=(1, 0), assumed_align=16)


def make_mma(tile: Tile, dtype: Any = IN, major: Any = OperandMajorMode.K) -> cute.TiledMma:
    """One-CTA tcgen05.mma, both operands in shared memory, fp32 accumulator of `tile.n` TMEM columns."""
    one, smem = tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM
    shape = (tile.m, tile.n, MMA_BYTES * 8 // dtype.width)
    if dtype is cutlass.TFloat32:
        return cute.make_tiled_mma(tcgen05.MmaTF32Op(shape, one, smem, major, major))
    return cute.make_tiled_mma(tcgen05.MmaF16BF16Op(dtype, ACC, shape, one, smem, major, major))


def make_load_a(a: cute.Tensor, mma: cute.TiledMma, tile: Tile, stages: int) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """Shared-memory layout (MMA, M, K, stages), tensor map and coordinate tensor of A."""
    layout = sm100.make_smem_layout_a(mma, tile.mnk, a.element_type, stages)
    op = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    one_stage = cute.slice_(layout, (None, None, None, 0))
    return layout, *cute.nvgpu.make_tiled_tma_atom_A(op, a, one_stage, tile.mnk, mma)


def make_load_b(b: cute.Tensor, mma: cute.TiledMma, tile: Tile, stages: int) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """Shared-memory layout (MMA, N, K, stages), tensor map and coordinate tensor of B."""
    layout = sm100.make_smem_layout_b(mma, tile.mnk, b.element_type, stages)
    op = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    one_stage = cute.slice_(layout, (None, None, None, 0))
    return layout, *cute.nvgpu.make_tiled_tma_atom_B(op, b, one_stage, tile.mnk, mma)


def make_store_c(
    c: cute.Tensor, box: tuple[int, int], stages: int, add: bool = False
) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """Shared-memory layout (M, N, stages) of one store box, tensor map and coordinate tensor of C.

    With `add` a box is added to what is there.
    """
    layout = sm100.make_smem_layout_epi(c.element_type, LayoutEnum.ROW_MAJOR, box, stages)
    op = cpasync.CopyReduceBulkTensorTileS2GOp() if add else cpasync.CopyBulkTensorTileS2GOp()
    return layout, *cpasync.make_tiled_tma_atom(op, c, cute.slice_(layout, (None, None, 0)), box)


def make_box_load(c: cute.Tensor, box: tuple[int, int], stages: int) -> tuple[Any, cute.CopyAtom, cute.Tensor]:
    """The same the other way: boxes of C that the epilogue reads."""
    layout = sm100.make_smem_layout_epi(c.element_type, LayoutEnum.ROW_MAJOR, box, stages)
    op = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    return layout, *cpasync.make_tiled_tma_atom(op, c, cute.slice_(layout, (None, None, 0)), box)


def partition_load(atom: cute.CopyAtom, tiles: cute.Tensor, stages: cute.Tensor) -> Loads:
    """Splits global tiles (MMA, M or N, K, tiles, K tiles) and shared stages the way the tensor map moves them."""
    shared, gmem = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(stages, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return Loads(atom, gmem, shared)


def store_atom(tmem_load: cute.TiledCopy, dtype: Any = OUT) -> cute.CopyAtom:
    """Register to shared-memory copy that suits what `tmem_load` leaves in the registers of a thread."""
    return sm100.get_smem_store_op(LayoutEnum.ROW_MAJOR, dtype, ACC, tmem_load)
