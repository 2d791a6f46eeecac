"""What the Blackwell kernels compute, by running their own Python on an emulated machine, against NumPy.

No GPU takes part. Inputs are small integers, so that sums are exact in fp32 whatever their order; outputs are poisoned
with NaN. Every element of an output must be written exactly once, every operand element be loaded as often as there are
tiles that need it, and every accumulator column be read once a tile. That the tests fail for kernels that are wrong in
one place is shown in test_changed_kernels.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.kernels import emulated_dsl as dsl  # noqa: E402 - needs NumPy
from tests.kernels import emulated_memory as memory  # noqa: E402
from tests.kernels.emulated_dsl import BF16, E2M1, E4M3, E8M0, FP32, INT32, INT64, TF32, UINT8  # noqa: E402
from tests.kernels.emulated_kernels import load  # noqa: E402
from tests.kernels.emulated_memory import View, matrix, to_bf16, to_e4m3  # noqa: E402

KERNELS = load()
TILE = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 3, "store_buffers": 2}
# Tokens of three experts; tiles that the CTAs take in turn, or in runs, cross experts without any.
ENDS = {"no expert is empty": (128, 256, 512), "empty ones": (0, 256, 256), "the last are empty": (128, 128, 128)}


def test_every_blackwell_kernel_is_emulated() -> None:
    registered = (case for case in KERNELS.registry.CASES if case.archs != KERNELS.registry.HOPPER)
    assert {case.module.partition(".")[2] for case in registered} <= set(vars(KERNELS))


def integers(seed: int, *shape: int, most: int = 2) -> Any:
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.float32)


def poisoned(*shape: int, dtype: Any = BF16) -> View:
    return matrix(np.full(shape, np.nan if dtype.numpy is np.float32 else 77), dtype)


def content(view: View) -> Any:
    """What a row-major matrix holds."""
    data = view.base.memory.data
    return data.reshape([size // (view.base.divide or (1, 1, 1))[dim] for dim, size in enumerate(view.base.shape)])


def counts(view: View, kind: str) -> set[int]:
    """How often elements of a matrix have been read or written."""
    return {int(count) for count in getattr(view.base.memory, kind)}


def check(view: View, expected: Any) -> None:
    """Each element was written once and is what NumPy says."""
    assert counts(view, "writes") == {1}
    np.testing.assert_array_equal(content(view), expected)


def dense(m: int, n: int, k: int, config: dict[str, int], seed: int = 0) -> tuple[View, View, View, Any]:
    """Runs `gemm_persistent`; A, B, C and what C ought to be."""
    dsl.reset(seed)
    a, b = integers(1, m, k), integers(2, n, k)
    views = (matrix(a, BF16), matrix(b, BF16), poisoned(m, n))
    KERNELS.gemm_persistent.PersistentGemm(config, None)(*views, None)
    return *views, to_bf16(a @ b.T)


PERSISTENT = {**TILE, "tile_n": 256, "reserved_columns": 48, "max_ctas": 2}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("max_ctas", [1, 4])
def test_persistent_gemm(max_ctas: int, seed: int) -> None:
    a, b, c, expected = dense(300, 520, 160, {**PERSISTENT, "max_ctas": max_ctas}, seed)  # no size is a multiple
    check(c, expected)
    assert counts(a, "reads") == {3}  # columns of tiles
    assert counts(b, "reads") == {3}


def test_overlapping_epilogue_reads_each_column_once_and_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = tmem_reads(monkeypatch)
    dense(128, 512, 64, {**PERSISTENT, "max_ctas": 1})
    (columns,) = reads()
    mma_reads = 3  # one K tile of four MMAs: all but the first read the accumulator that they add to
    covered = np.zeros(512, int)
    covered[:256] += 1
    covered[208:464] += 1
    assert (columns == covered * (1 + mma_reads)).all()


def tmem_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """How often each TMEM column of each CTA has been read, in all lanes alike."""
    seen: list[Any] = []
    poison = memory.Memory.poisoned

    def remember(size: int, dtype: Any, space: str, number: int = -1) -> Any:
        made = poison(size, dtype, space, number)
        if space == "tmem":
            seen.append(made)
        return made

    monkeypatch.setattr(memory.Memory, "poisoned", remember)

    def reads() -> list[Any]:
        tables = [each.reads.reshape(128, -1) for each in seen]
        assert all((table == table[0]).all() for table in tables)
        return [table[0] for table in tables]

    return reads


@pytest.mark.parametrize(("k", "ranks"), [(576, 4), (64, 4), (256, 2)], ids=["last rank idle", "three idle", "even"])
def test_splitk_mailbox(k: int, ranks: int) -> None:
    a, b = matrix(integers(1, 130, k), BF16), matrix(integers(2, 256, k), BF16)
    c = poisoned(130, 256)
    dsl.reset(k)
    KERNELS.gemm_splitk_mailbox.SplitKGemm({**TILE, "split_k": ranks}, None)(a, b, c, None)
    check(c, to_bf16(content(a) @ content(b).T))
    assert counts(a, "reads") == {2}  # each K tile by one rank only
    assert counts(b, "reads") == {2}


@pytest.mark.parametrize(("k", "ranks"), [(384, 2), (128, 2), (256, 1)], ids=["three K tiles", "idle rank", "alone"])
def test_tgv(k: int, ranks: int) -> None:
    w, x = matrix(integers(1, 200, k), BF16), matrix(integers(2, 8, k), BF16)  # both cut by the edge of their tile
    c = poisoned(8, 200)
    dsl.reset(k)
    config = {**TILE, "tile_n": 16, "tile_k": 128, "split_k": ranks}
    KERNELS.tgv_gemm.TgvGemm(config, None)(w, x, c, None)
    check(c, to_bf16(content(x) @ content(w).T))
    assert counts(w, "reads") == {1}


def test_splitk_projection() -> None:
    w, x, scale = matrix(integers(1, 256, 192), BF16), matrix(integers(2, 64, 192), BF16), integers(3, 256)
    c = poisoned(64, 256)
    dsl.reset(0)
    config = {**TILE, "tile_n": 64, "split_k": 2}
    KERNELS.splitk_projection.SplitKProjection(config, None)(w, matrix(scale, FP32), x, c, None)
    check(c, to_bf16(content(x) @ content(w).T * scale))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x.astype(np.float64)))


def close_bf16(view: View, expected: Any) -> None:
    """Each element was written once, and is off by less than one step of bf16."""
    assert counts(view, "writes") == {1}
    np.testing.assert_allclose(content(view), expected, rtol=2**-8, atol=1e-30)


def test_shared_expert_up() -> None:
    x, gate, up = integers(1, 128, 320), integers(2, 128, 320, most=1), integers(3, 128, 320)
    c = poisoned(128, 128)
    dsl.reset(0)
    config = {**TILE, "split_k": 4, "swiglu": True}
    KERNELS.shared_splitk.SharedSplitK(config, None)(matrix(x, BF16), matrix(alternate(gate, up), BF16), c, None)
    close_bf16(c, silu(x @ gate.T) * (x @ up.T))


def alternate(gate: Any, up: Any) -> Any:
    """Blocks of 64 rows of two matrices in turn."""
    blocks = zip(np.split(gate, len(gate) // 64), np.split(up, len(up) // 64), strict=True)
    return np.concatenate([block for pair in blocks for block in pair])


def test_shared_expert_down() -> None:
    x, w = matrix(integers(1, 128, 192), BF16), matrix(integers(2, 256, 192), BF16)
    c = poisoned(128, 256)
    dsl.reset(0)
    KERNELS.shared_splitk.SharedSplitK({**TILE, "split_k": 2, "swiglu": False}, None)(x, w, c, None)
    check(c, to_bf16(content(x) @ content(w).T))


def test_indexer_preprojection() -> None:
    x, w = matrix(integers(1, 64, 320), TF32), matrix(integers(2, 160, 320), TF32)
    keys, weights = poisoned(64, 128), poisoned(64, 32, dtype=FP32)
    dsl.reset(0)
    config = {**TILE, "tile_n": 160, "tile_k": 32, "split_k": 8, "time_limit_ns": 1000}
    KERNELS.indexer_preproj.IndexerPreproj(config, None)(x, w, keys, weights, None)
    expected = content(x) @ content(w).T
    check(keys, to_bf16(expected[:, :128]))
    check(weights, expected[:, 128:])


def gathered(name: str, x: tuple[View, Any], w: tuple[View, Any], alpha: View | None, tile_k: int) -> tuple[View, Any]:
    """Runs `moe_gg1` or its relative on four row tiles, of which the last is not in use; C, and tokens and experts."""
    experts, tokens = np.array([2, 0, 0, 1]), np.random.default_rng(5).integers(0, 40, 512)
    c = poisoned(512, 128)
    dsl.reset(0)
    kernel = getattr(getattr(KERNELS, name), "".join(part.title() for part in name.split("_")))
    routing = (matrix(tokens, INT32), matrix(experts, INT32), alpha, matrix([3], INT32))
    kernel({**TILE, "tile_k": tile_k, "max_ctas": 4}, None)(*x, *w, c, *routing, None)
    written = c.base.memory.writes.reshape(512, 128)
    assert (written[:384] == 1).all()
    assert (written[384:] == 0).all()
    return c, (tokens, experts.repeat(128))


def check_swiglu(c: View, gate: Any, up: Any) -> None:
    np.testing.assert_allclose(content(c)[:384], (silu(gate) * up)[:384], rtol=2**-8, atol=1e-30)


def test_gathered_grouped_gemm() -> None:
    x, gate, up = integers(1, 40, 192), integers(2, 3, 128, 192, most=1), integers(3, 3, 128, 192)
    weights = np.concatenate([alternate(g, u) for g, u in zip(gate, up, strict=True)])
    c, (tokens, expert) = gathered("moe_gg1", (matrix(x, BF16), None), (matrix(weights, BF16), None), None, 64)
    check_swiglu(c, *(np.einsum("rk,rnk->rn", x[tokens], each[expert]) for each in (gate, up)))


def test_gathered_grouped_gemm_nvfp4() -> None:
    k, random = 512, np.random.default_rng(7)
    x, gate, up = integers(1, 40, k), integers(2, 3, 128, k, most=1), integers(3, 3, 128, k, most=1)
    scale_x, *scale_w = (np.exp2(random.integers(-1, 2, (*shape, k // 16))) for shape in ((40,), (3, 128), (3, 128)))
    weights, scales = (
        np.concatenate([alternate(g, u) for g, u in zip(*both, strict=True)])[:, :, None]
        for both in ((gate, up), scale_w)
    )
    alpha = np.array([0.5, 1, 2], np.float32) / 64
    w = matrix(weights, E2M1), matrix(scales, E4M3, divide=(1, 16, 1))
    c, (tokens, expert) = gathered(
        "moe_gg1_nvfp4", (matrix(x, E2M1), matrix(scale_x, E4M3)), w, matrix(alpha, FP32), 256
    )
    full_x = (x * scale_x.repeat(16, 1))[tokens]
    full = ((each * scale.repeat(16, 2))[expert] for each, scale in zip((gate, up), scale_w, strict=True))
    check_swiglu(c, *(alpha[expert][:, None] * np.einsum("rk,rnk->rn", full_x, each) for each in full))


def quantized(values: Any) -> tuple[Any, Any]:
    """MXFP8 by its definition: per 32 columns the smallest power of two 2^(s - 127) that 448 of it are enough; e4m3."""
    blocks = values.astype(np.float64).reshape(len(values), -1, 32)
    largest = np.abs(blocks).max(2)
    scale = np.ceil(np.log2(largest / 448))
    values = np.ldexp(blocks, -scale.astype(int)[:, :, None])
    return to_e4m3(values.astype(np.float32)).reshape(len(blocks), -1), (scale + 127).astype(np.uint8)


GROUPED = {**TILE, "tile_n": 256, "tile_k": 128, "max_ctas": 3, "ctas": 1}
PAIRED = {**GROUPED, "tile_m": 256, "max_ctas": 4, "ctas": 2}


def run_grouped(
    name: str, ends: tuple[int, ...], factors: Any, c: View | None, config: dict[str, int] = GROUPED, seed: int = 0
) -> tuple[Any, ...]:
    """Runs a kernel on 512 rows, 512 columns, K of 256: the sums, then D and its scale factors."""
    k, n, experts = 256, 512, len(ends)
    random = np.random.default_rng(seed)
    a, b = integers(1, 512, k), integers(2, n, k, experts, most=1)
    scale_a, scale_b = (np.exp2(random.integers(-1, 2, shape)) for shape in ((512, k // 32, 1), (n, k // 32, experts)))
    d, scales = poisoned(512, n, dtype=E4M3), poisoned(512 * n // 32, dtype=UINT8)
    divide = (1, 32, 1)
    dsl.reset(seed)
    kernel = getattr(getattr(KERNELS, name), "".join(part.title() for part in name.split("_")))
    views: tuple[View, ...] = (matrix(a[:, :, None], E4M3), matrix(scale_a, E8M0, divide=divide))
    views += (matrix(b, E4M3), matrix(scale_b, E8M0, divide=divide), matrix(ends, INT32), matrix(factors, FP32))
    kernel(config, None)(*views, c, d, scales, None)
    full_a, full_b = a * scale_a[:, :, 0].repeat(32, 1), b * scale_b.repeat(32, 1)
    expert = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    sums = [full_a[: ends[-1]][expert == e] @ full_b[:, :, e].T for e in range(experts)]
    return np.concatenate(sums), d, scales


def check_quantized(values: Any, d: View, scales: View) -> None:
    """D and its scale factors are those of `values`, written once, and rows beyond the last expert are left alone."""
    rows = len(values)
    expected, expected_scales = quantized(values)
    writes = d.base.memory.writes.reshape(512, -1)
    assert (writes[:rows] == 1).all()
    assert (writes[rows:] == 0).all()
    np.testing.assert_array_equal(content(d)[:rows], expected)
    np.testing.assert_array_equal(content(scales).reshape(512, -1)[:rows], expected_scales)
    assert (scales.base.memory.writes.reshape(512, -1)[:rows] == 1).all()


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_grouped_quant(ends: tuple[int, ...]) -> None:
    alpha = np.array([0.5, 1, 3], np.float32)
    sums, d, scales = run_grouped("grouped_gemm_quant", ends, alpha, None)
    factor = alpha[np.searchsorted(ends, np.arange(len(sums)), side="right")]
    check_quantized(sums * factor[:, None], d, scales)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ends", [(256, 256, 512), (0, 0, 512), (0, 256, 256)])
def test_grouped_quant_by_pairs_of_ctas(ends: tuple[int, ...], seed: int) -> None:
    alpha = np.array([0.5, 1, 3], np.float32)
    sums, d, scales = run_grouped("grouped_gemm_quant", ends, alpha, None, PAIRED, seed)
    factor = alpha[np.searchsorted(ends, np.arange(len(sums)), side="right")]
    check_quantized(sums * factor[:, None], d, scales)


def test_grouped_srelu() -> None:
    probability, c = integers(4, 512, most=4), poisoned(512, 512)
    probability[probability == 0] = 8
    sums, d, scales = run_grouped("grouped_gemm_srelu", (0, 256, 512), probability, c)
    check(c, to_bf16(sums))
    check_quantized(np.maximum(sums, 0) ** 2 * probability[:, None], d, scales)


def test_grouped_dsrelu() -> None:
    probability, c = np.exp2(integers(4, 512)), integers(5, 512, 512, most=9)
    view = matrix(c, BF16)
    sums, d, scales = run_grouped("grouped_gemm_dsrelu", (256, 256, 512), probability, view)
    check_quantized(probability[:, None] * 2 * np.maximum(c, 0) * sums, d, scales)
    assert counts(view, "reads") == {1}


def test_scale_factors_and_accumulators_share_no_tmem() -> None:
    kernel = KERNELS.grouped_gemm_quant.GroupedGemmQuant(registered(), None)
    assert kernel.region_stride + kernel.tile.n <= kernel.first_scale_column
    assert kernel.first_scale_column + kernel.stages * kernel.scale_columns <= 512


def registered() -> dict[str, Any]:
    """What the registry compiles."""
    return dict(KERNELS.registry.case("grouped_gemm_quant").config)


SCALES = (1, 32, 1)  # tokens that share one


def scaled_input(seed: int, features: int, tokens: int, bounds: list[tuple[int, int]], ragged: bool) -> tuple[Any, ...]:
    """Values and scale factors of an operand as views, and what they mean."""
    values = integers(seed, features, tokens)
    scales = np.exp2(np.random.default_rng(seed).integers(-1, 2, (features, tokens // 32))).astype(np.float32)
    shape = (features, -1, 1 if ragged else len(bounds))
    views = (
        matrix(values.reshape(shape, order="F"), E4M3, "210"),
        matrix(scales.reshape(shape, order="F"), E8M0, "", SCALES),
    )
    if ragged:  # the scale factors of each expert lie together
        parts = [scales[:, first // 32 : last // 32].ravel() for first, last in bounds]
        views[1].base.memory.data[:] = np.concatenate(parts)
    return *views, values * scales.repeat(32, 1)


def plain_input(seed: int, features: int, tokens: int, experts: int, ragged: bool) -> tuple[Any, ...]:
    """The same in bf16, without scale factors."""
    values = integers(seed, features, tokens)
    return matrix(values.reshape((features, -1, 1 if ragged else experts), order="F"), BF16, "210"), None, values


@pytest.mark.parametrize("ragged", [True, False], ids=["ragged", "dense input"])
@pytest.mark.parametrize("discrete", [True, False], ids=["discrete", "dense output"])
@pytest.mark.parametrize("scaled", [True, False], ids=["MXFP8", "bf16"])
@pytest.mark.parametrize("accumulate", [True, False], ids=["added", "written"])
def test_weight_gradient(ragged: bool, discrete: bool, scaled: bool, accumulate: bool) -> None:
    m, n, experts, ends = 256, 256, 3, (128, 128, 384) if scaled else (100, 100, 230)
    each = ends[0]
    bounds = list(pairwise((0, *ends))) if ragged else [(e * each, e * each + each) for e in range(experts)]
    machine = dsl.reset(0)
    if scaled:
        (x, x_scales, full_x), (y, y_scales, full_y) = (scaled_input(s, m, 3 * each, bounds, ragged) for s in (1, 2))
    else:
        (x, x_scales, full_x), (y, y_scales, full_y) = (plain_input(s, m, 3 * each, experts, ragged) for s in (1, 2))
    before = integers(3, experts, m, n) if accumulate else np.full((experts, m, n), np.nan)
    outputs = [matrix(part, BF16) for part in before]
    machine.addresses.update({100 + e: output.base.memory for e, output in enumerate(outputs)})
    w = matrix(np.full((m, n, 1), np.nan) if discrete else before.transpose(1, 2, 0), BF16, "201")
    config = {**TILE, "tile_k": 128 if scaled else 64, "max_ctas": 5, "experts": experts}
    config |= {"ragged": ragged, "discrete": discrete, "scaled": scaled, "accumulate": accumulate}
    rest = (matrix(ends, INT32), matrix(100 + np.arange(experts), INT64), None, None)
    KERNELS.grouped_gemm_wgrad.GroupedGemmWgrad(config, None)(x, x_scales, y, y_scales, w, *rest)
    expected = np.array([to_bf16(full_x[:, first:last] @ full_y[:, first:last].T) for first, last in bounds])
    got = [content(each) for each in outputs] if discrete else w.base.memory.data.reshape(experts, m, n)
    assert all(counts(each, "writes") == {1} for each in (outputs if discrete else [w]))
    np.testing.assert_array_equal(got, to_bf16(before + expected) if accumulate else expected)


def quantize(values: Any) -> tuple[Any, int]:
    """What `scaled.quantize` makes of 32 values; the quotients before rounding, and the scale factor."""
    answer: list[Any] = []

    def body() -> None:
        row = dsl.make_rmem_tensor(32, FP32)
        row.write(np.asarray(values, np.float32)[None])
        scale = KERNELS.scaled.quantize(row)
        answer.extend((row.read()[0], int(np.asarray(scale)[0])))

    dsl.reset(0).launch(body, (1, 1, 1), 32, (1, 1, 1))
    return answer[0], answer[1]


@pytest.mark.parametrize("power", [-40, -1, 0, 1, 60])
def test_scale_factor_at_the_edge_of_the_range(power: int) -> None:
    edge = np.float32(448 * 2.0**power)
    for largest, scale in ((edge, power), (np.nextafter(edge, np.float32(np.inf)), power + 1)):
        values, exponent = quantize([-largest, *[0.5 * largest] * 31])
        assert exponent == scale + 127
        assert np.abs(values).max() <= 448
        assert np.abs(values).max() == np.float32(largest * 2.0**-scale)


def test_row_of_zeros_is_quantized_to_zeros() -> None:
    values, exponent = quantize(np.zeros(32))
    assert exponent == 0
    assert (values == 0).all()
