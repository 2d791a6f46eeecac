"""Block-scaled operands of tcgen05.mma, with their scale factors in shared and tensor memory.

    MXFP8    values e4m3; 32 neighbours along K share one e8m0 scale factor
    NVFP4    values e2m1; 16 neighbours along K share one e4m3 scale factor

Scale factors come into shared memory with the values and go on to TMEM by `tcgen05.cp` before the MMA that reads them.
Each stage of the ring has TMEM columns of its own, so that a copy never writes what an earlier MMA may still read: the
stage is refilled only after that MMA has completed. (An MMA and a later copy by the same thread are not ordered by
themselves.)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.utils import SmemAllocator, blackwell_helpers, blockscaled_layout

from kernels import common, operands, pairs
from kernels.operands import ACC, OUT, TMA_ALIGN, Loads, Tile
from kernels.ring import Ring

VALUE = cutlass.Float8E4M3FN
SCALE = cutlass.Float8E8M0FNU
VECTOR = 32  # values along K that share a scale factor
LARGEST = 448.0  # of e4m3
EXPONENT_BIAS = 127  # of fp32 and of e8m0
MANTISSA_BITS = 23  # of fp32
WORD = cutlass.Int16  # in which scale factors are moved
BLOCK = 128  # rows, and values along K, of the blocks in which scale factors lie
ROWS_OF_COLUMN, FACTORS_OF_COLUMN = 32, 4  # rows, and factors of each along K, that fill one TMEM column


@dataclass(frozen=True)
class Format:
    """Element types, and how many values along K share a scale factor."""

    value: Any
    scale: Any
    vector: int


MXFP8 = Format(VALUE, SCALE, VECTOR)
NVFP4 = Format(cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, 16)


@dataclass(frozen=True)
class Scaled:
    """Tensor maps of the values and of the scale factors of one operand, and how they lie in shared memory."""

    atom: cute.CopyAtom
    map: cute.Tensor
    layout: Any
    scale_atom: cute.CopyAtom
    scale_map: cute.Tensor
    scale_layout: Any


@dataclass(frozen=True)
class Stages:
    """One operand in shared memory."""

    values: cute.Tensor  # (MMA, M or N, K, stages)
    scales: cute.Tensor  # (MMA, M or N, K, stages)


@dataclass(frozen=True)
class ScaledLoads:
    """What the load warp needs of one operand."""

    values: Loads
    scales: Loads


@dataclass(frozen=True)
class ScaleFactors:
    """The way of one operand's scale factors from shared memory to the MMA."""

    copy: cute.TiledCopy
    source: cute.Tensor  # (copy, 1, M or N, K, stages), descriptors of shared memory
    target: cute.Tensor  # (copy, 1, M or N, K, stages) in TMEM
    tmem: cute.Tensor  # (MMA, M or N, K, stages): the same as the MMA sees it


def columns(tile: Tile, ctas: int, form: Format = MXFP8) -> int:
    """TMEM columns that the scale factors of one stage take."""
    return (tile.m // ctas + tile.n) // ROWS_OF_COLUMN * (tile.k // form.vector // FACTORS_OF_COLUMN)


def stage_bytes(tile: Tile, ctas: int) -> int:
    """Bytes that the loads of one stage bring in, of all CTAs; the scale factors of B go to each of them."""
    values, scales = (tile.m + tile.n) * tile.k, (tile.m + ctas * tile.n) * tile.k // VECTOR
    return values * VALUE.width // 8 + scales * SCALE.width // 8


def fake_values(rows: int, k: int, experts: int, form: Format = MXFP8) -> Any:
    """A matrix for each expert, row-major, without data, to compile for."""
    return make_fake_compact_tensor(form.value, (rows, k, experts), stride_order=(1, 0, 2), assumed_align=16)


def fake_scales(rows: int, k: int, experts: int, form: Format = MXFP8) -> Any:
    """The scale factors of such matrices, in the order in which the tensor core takes them."""
    return make_fake_compact_tensor(form.scale, (rows * k // form.vector * experts,), assumed_align=16)


def fake_arguments(config: Mapping[str, Any], factors: int, with_c: bool) -> tuple[Any, ...]:
    """Arguments to compile a kernel of kernels/grouped.py with; it takes `factors` factors, and C if `with_c`."""
    rows, n, k, experts = config["rows"], config["n"], config["k"], config["experts"]
    return (
        fake_values(rows, k, 1),
        fake_scales(rows, k, 1),
        fake_values(n, k, experts),
        fake_scales(n, k, experts),
        make_fake_compact_tensor(cutlass.Int32, (experts,), assumed_align=16),
        make_fake_compact_tensor(ACC, (factors,), assumed_align=16),
        operands.fake_matrix(rows, n, OUT) if with_c else None,
        operands.fake_matrix(rows, n, VALUE),
        make_fake_compact_tensor(cutlass.Uint8, (rows * n // VECTOR,), assumed_align=16),
        make_fake_stream(),
    )


def part(scales: cute.Tensor, rows: Any, first: Any, last: Any) -> cute.Tensor:
    """The scale factors of K elements [first, last), multiples of BLOCK, where those of each expert lie together."""
    layout = blockscaled_layout.tile_atom_to_shape_SF((rows, cutlass.max(last - first, BLOCK), 1), VECTOR)
    return cute.make_tensor(scales.iterator + first * rows // VECTOR, layout)


def make_mma(tile: Tile, ctas: int, major: Any = OperandMajorMode.K, form: Format = MXFP8) -> cute.TiledMma:
    """Block-scaled tcgen05.mma of one CTA or of a pair, with fp32 accumulator; `tile` is that of all CTAs."""
    return blackwell_helpers.make_blockscaled_trivial_tiled_mma(
        form.value, form.value, major, major, form.scale, form.vector, pairs.group(ctas), (tile.m, tile.n)
    )


def make_loads(
    values: cute.Tensor,
    scales: cute.Tensor,
    tile: Tile,
    ctas: int,
    stages: int,
    is_a: bool,
    major: Any = OperandMajorMode.K,
    form: Format = MXFP8,
) -> Scaled:
    """Tensor maps of operand A (M, K, experts) or B (N, K, experts)."""
    mma = make_mma(tile, ctas, major, form)
    factors = cute.make_tensor(scales.iterator, blockscaled_layout.tile_atom_to_shape_SF(values.shape, form.vector))
    op = cpasync.CopyBulkTensorTileG2SOp(pairs.group(ctas))
    layout, scale_layout = layouts(mma, tile, stages, is_a, form)
    if is_a:
        atom, coordinates = cute.nvgpu.make_tiled_tma_atom_A(op, values, one_of(layout), tile.mnk, mma)
        loads = cute.nvgpu.make_tiled_tma_atom_A(op, factors, one_of(scale_layout), tile.mnk, mma, internal_type=WORD)
    else:
        atom, coordinates = cute.nvgpu.make_tiled_tma_atom_B(op, values, one_of(layout), tile.mnk, mma)
        # Both CTAs of a pair need all scale factors of B: each loads one half for both.
        if ctas == 2:
            op = cpasync.CopyBulkTensorTileG2SMulticastOp(tcgen05.CtaGroup.TWO)
        one_tile = scale_tile(tile, ctas)
        one_cta, shape = make_mma(one_tile, 1, form=form), (1, ctas, 1, 1)
        loads = cute.nvgpu.make_tiled_tma_atom_B(
            op, factors, one_of(scale_layout), one_tile.mnk, one_cta, shape, internal_type=WORD
        )
    return Scaled(atom, coordinates, layout, *loads, scale_layout)


def layouts(mma: cute.TiledMma, tile: Tile, stages: int, is_a: bool, form: Format) -> tuple[Any, Any]:
    """How the stages of an operand's values and scale factors lie in shared memory."""
    if is_a:
        layout = blackwell_helpers.make_smem_layout_a(mma, tile.mnk, form.value, stages)
        return layout, blockscaled_layout.make_smem_layout_sfa(mma, tile.mnk, form.vector, stages)
    layout = blackwell_helpers.make_smem_layout_b(mma, tile.mnk, form.value, stages)
    return layout, blockscaled_layout.make_smem_layout_sfb(mma, tile.mnk, form.vector, stages)


def one_of(layout: Any) -> Any:
    """The layout of one stage."""
    return cute.slice_(layout, (None, None, None, 0))


def scale_tile(tile: Tile, ctas: int) -> Tile:
    """The tile whose scale factors of B one CTA needs."""
    return Tile(tile.m // ctas, tile.n, tile.k)


def allocate(smem: SmemAllocator, layout: Any, scale_layout: Any, form: Format = MXFP8) -> Stages:
    """Room for the stages of one operand."""
    return Stages(
        smem.allocate_tensor(form.value, layout.outer, TMA_ALIGN, layout.inner),
        smem.allocate_tensor(form.scale, scale_layout, TMA_ALIGN),
    )


def loads(x: Scaled, stages: Stages, tile: Tile, ctas: int, is_a: bool, form: Format = MXFP8) -> ScaledLoads:
    """One operand cut into tiles (rows or columns, K tiles, experts) and stages, as this CTA's load warp needs it."""
    rank = pairs.rank(ctas)
    shape = (tile.m if is_a else tile.n, tile.k)
    mine = make_mma(tile, ctas, form=form).get_slice(rank)
    values, scales = (cute.local_tile(y, shape, (None, None, None)) for y in (x.map, x.scale_map))
    if is_a:
        return ScaledLoads(
            partition(x.atom, mine.partition_A(values), stages.values),
            partition(x.scale_atom, mine.partition_A(scales), stages.scales),
        )
    every = make_mma(scale_tile(tile, ctas), 1, form=form).get_slice(0)
    return ScaledLoads(
        partition(x.atom, mine.partition_B(values), stages.values),
        partition(x.scale_atom, every.partition_B(scales), stages.scales, rank, ctas),
    )


def partition(atom: cute.CopyAtom, tiles: cute.Tensor, stages: cute.Tensor, rank: Any = 0, ctas: int = 1) -> Loads:
    """Splits global tiles (MMA, M or N, K, tiles, K tiles, experts) and shared stages as the tensor map moves them.

    Where `ctas` CTAs share a tile, each loads the part of its rank for all.
    """
    shared, gmem = cpasync.tma_partition(
        atom, rank, cute.make_layout(ctas), cute.group_modes(stages, 0, 3), cute.group_modes(tiles, 0, 3)
    )
    return Loads(atom, cute.filter_zeros(gmem), cute.filter_zeros(shared))


def make_factors(
    tile: Tile, ctas: int, smem: cute.Tensor, start: cute.Pointer, stage_columns: int, is_a: bool, form: Format = MXFP8
) -> ScaleFactors:
    """The scale factors of one operand: stage s in the TMEM columns from `start` + s * `stage_columns` on."""
    make = blockscaled_layout.make_tmem_layout_sfa if is_a else blockscaled_layout.make_tmem_layout_sfb
    layout = make(make_mma(tile, ctas, form=form), tile.mnk, form.vector, one_of(smem.layout))
    stages = cute.size(smem, mode=[3])
    layout = cute.append(layout, cute.make_layout(stages, stride=stage_columns * FACTORS_OF_COLUMN))
    tmem = cute.make_tensor(cute.recast_ptr(start, dtype=form.scale), layout)
    source, target = cute.filter_zeros(smem), cute.filter_zeros(tmem)
    atom = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(pairs.group(ctas)), form.scale)
    copy = tcgen05.make_s2t_copy(atom, target[(None, None, None, 0)])
    mine = copy.get_slice(0)
    return ScaleFactors(
        copy=copy,
        source=tcgen05.get_s2t_smem_desc_tensor(copy, mine.partition_S(source)),
        target=mine.partition_D(target),
        tmem=tmem,
    )


@cute.jit
def fill(
    ring: Ring,
    a: ScaledLoads,
    b: ScaledLoads,
    tile: tuple[Any, Any, Any],
    k_tiles: Any,
    stage: cutlass.Int32,
    parity: cutlass.Int32,
    ctas: cutlass.Constexpr,
) -> tuple[cutlass.Int32, cutlass.Int32]:
    """Loads all K tiles of one tile (row, column, expert) into the ring; where the ring stands afterwards."""
    row, column, expert = tile
    both = cutlass.Int16(pairs.BOTH) if ctas == 2 else None
    for k in cutlass.range(k_tiles, unroll=1):
        common.wait(ring.empty + stage, parity)
        full = ring.full + stage
        pairs.expect(full, ring.stage_bytes, ctas)
        for x, place in ((a.values, (row, k, 0)), (a.scales, (row, k, 0)), (b.values, (column, k, expert))):
            cute.copy(x.atom, x.tiles[(None, *place)], x.stages[(None, stage)], tma_bar_ptr=full)
        x, place = b.scales, (column, k, expert)
        cute.copy(x.atom, x.tiles[(None, *place)], x.stages[(None, stage)], tma_bar_ptr=full, mcast_mask=both)
        stage, parity = common.advance(stage, parity, ring.stages)
    return stage, parity


@cute.jit
def multiply(
    mma: cute.TiledMma,
    acc: cute.Tensor,
    a: cute.Tensor,
    b: cute.Tensor,
    factors: tuple[ScaleFactors, ScaleFactors],
    ring: Ring,
    k_tiles: Any,
    stage: cutlass.Int32,
    parity: cutlass.Int32,
    ctas: cutlass.Constexpr,
) -> tuple[cutlass.Int32, cutlass.Int32]:
    """acc = sum of `k_tiles` stages of the ring, scaled; the accumulator is complete only after a further commit."""
    mma = cute.make_tiled_mma(mma.op)  # of this call's own: the caller's must not change inside the loops here
    mma.set(tcgen05.Field.ACCUMULATE, False)
    scale_a, scale_b = factors
    for _ in cutlass.range(k_tiles, unroll=1):
        common.wait(ring.full + stage, parity)
        common.fence_tcgen05_after()
        at_stage = (None, None, None, None, stage)
        cute.copy(scale_a.copy, scale_a.source[at_stage], scale_a.target[at_stage])
        cute.copy(scale_b.copy, scale_b.source[at_stage], scale_b.target[at_stage])
        for block in cutlass.range_constexpr(cute.size(a, mode=[2])):
            at = (None, None, block, stage)
            cute.gemm(mma, acc, [a[at], scale_a.tmem[at]], [b[at], scale_b.tmem[at]], acc)  # defect: no-gather-fence
            mma.set(tcgen05.Field.ACCUMULATE, True)
        pairs.commit(ring.empty + stage, ctas)
        stage, parity = common.advance(stage, parity, ring.stages)
    return stage, parity


def exponent_of(bits: Any) -> Any:
    """Biased exponent of the smallest power of two that is not below a positive fp32 number, given as its bits."""
    return (bits + ((1 << MANTISSA_BITS) - 1)) >> MANTISSA_BITS


def inverse_of(exponent: Any) -> Any:
    """Bits of the fp32 number 1 / 2^(exponent - bias)."""
    return (2 * EXPONENT_BIAS - exponent) << MANTISSA_BITS


def quantize(values: cute.Tensor) -> cutlass.Uint8:
    """Divides VECTOR values by the smallest power of two that brings them into the range of e4m3; it, as e8m0."""
    largest = cutlass.Float32(0.0)
    for i in range(VECTOR):
        largest = cute.arch.fmax(largest, cute.arch.fmax(values[i], -values[i]))
    quotient = cute.make_rmem_tensor(1, ACC)
    bits = cute.recast_tensor(quotient, cutlass.Int32)
    quotient[0] = largest * (1.0 / LARGEST)
    exponent = exponent_of(bits[0])
    bits[0] = inverse_of(exponent)
    for i in range(VECTOR):
        values[i] = values[i] * quotient[0]
    return cutlass.Uint8(exponent)
