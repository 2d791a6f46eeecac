"""That the tests of the arithmetic would notice: each kernel here is wrong in one place, and one of them fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("numpy")

from tests.kernels import test_arithmetic as arithmetic
from tests.kernels.emulated_kernels import load
from tests.kernels.emulated_memory import EmulationError


def two_ranks() -> None:
    arithmetic.test_splitk_mailbox(256, 2)


def paired() -> None:
    arithmetic.test_grouped_quant_by_pairs_of_ctas((0, 256, 512), 0)


def all_seeds() -> None:
    for seed in range(4):
        arithmetic.check(*arithmetic.dense(128, 768, 64, {**arithmetic.PERSISTENT, "max_ctas": 1}, seed)[2:])


MUTANTS: dict[str, tuple[str, str, str, Callable[[], None]]] = {
    "tiles of a row too few": ("walk", "tile % self.columns", "tile % (self.columns - 1)", all_seeds),
    "columns in another order": ("overlap", "self.steps - 1 - step", "(self.steps - step) % self.steps", all_seeds),
    "accumulator released early": ("overlap", "// SUBTILE) - 1", "// SUBTILE) - 2", all_seeds),
    "K tile left out": (
        "splitk",
        "cutlass.min(rank * share,",
        "cutlass.min(rank * share + 1,",
        lambda: arithmetic.test_tgv(384, 2),
    ),
    "sent to the wrong rank": (
        "mailbox",
        "(rank + slot + 1)",
        "(rank + slot + 2)",
        two_ranks,
    ),
    "slots overlap": (
        "mailbox",
        "VECTOR, values * threads)",
        "VECTOR, VECTOR)",
        lambda: arithmetic.test_splitk_mailbox(64, 4),
    ),
    "other half": ("shared_splitk", "total[self.width + i]", "total[i]", arithmetic.test_shared_expert_up),
    "first output only": (
        "indexer_preproj",
        "column < KEYS",
        "column < KEYS - VECTOR",
        arithmetic.test_indexer_preprojection,
    ),
    "gate is up": ("moe_gg1", "0, steps + step,", "0, step,", arithmetic.test_gathered_grouped_gemm),
    "scale factors of another row": (
        "moe_gg1_nvfp4",
        "self.own_row()]",
        "self.own_row() // 2]",
        arithmetic.test_gathered_grouped_gemm_nvfp4,
    ),
    "scale factors of another K tile": (
        "moe_gg1_nvfp4",
        "k * self.words + word",
        "k + word",
        arithmetic.test_gathered_grouped_gemm_nvfp4,
    ),
    "alpha of another expert": (
        "moe_gg1_nvfp4",
        "alpha[routing.experts[row_tile]]",
        "alpha[0]",
        arithmetic.test_gathered_grouped_gemm_nvfp4,
    ),
    "one expert skipped": (
        "tile_queue",
        "expert += 1",
        "expert += 2",
        lambda: arithmetic.test_grouped_quant(arithmetic.ENDS["empty ones"]),
    ),
    "rows of the other CTA": ("grouped", "+ pairs.rank(self.ctas)", "+ 1 - pairs.rank(self.ctas)", paired),
    "bytes of one CTA only": ("scaled", "(tile.m + ctas * tile.n)", "(tile.m + tile.n)", paired),
    "commit to one CTA only": ("pairs", "BOTH = 0b11", "BOTH = 0b01", paired),
    "released by one CTA only": ("grouped", "EPILOGUE_THREADS * self.ctas", "EPILOGUE_THREADS", paired),
    "scale factors of another expert": (
        "scaled",
        "first * rows // VECTOR, layout",
        "first * rows // VECTOR // 2, layout",
        lambda: arithmetic.test_weight_gradient(True, True, True, False),
    ),
    "scale factors of the other operand": (
        "expert_inputs",
        "(x.scales, SCALES_OF[number])",
        "(x.scales, SCALES_OF[X_MAP])",
        lambda: arithmetic.test_weight_gradient(True, False, True, False),
    ),
    "written over": (
        "grouped_gemm_wgrad",
        "self.buffers, self.accumulate)",
        "self.buffers, False)",
        lambda: arithmetic.test_weight_gradient(False, False, False, True),
    ),
    "range of e4m3": (
        "scaled",
        "LARGEST = 448.0",
        "LARGEST = 240.0",
        lambda: arithmetic.test_scale_factor_at_the_edge_of_the_range(0),
    ),
    "rounded down": (
        "scaled",
        " + ((1 << MANTISSA_BITS) - 1))",
        ")",
        lambda: arithmetic.test_scale_factor_at_the_edge_of_the_range(0),
    ),
    "ReLU not squared": ("grouped_gemm_srelu", "positive * positive *", "positive *", arithmetic.test_grouped_srelu),
    "derivative halved": ("grouped_gemm_dsrelu", "(2.0 *", "(1.0 *", arithmetic.test_grouped_dsrelu),
    "last tile of a CTA": (
        "grouped_gemm_wgrad",
        "cta * share + share",
        "cta * share + share - 1",
        lambda: arithmetic.test_weight_gradient(True, True, False, False),
    ),
    "gradient without tokens": (
        "grouped_gemm_wgrad",
        "values.fill(0.0)",
        "values.fill(1.0)",
        lambda: arithmetic.test_weight_gradient(True, True, False, False),
    ),
}


@pytest.mark.parametrize(("module", "old", "new", "test"), MUTANTS.values(), ids=MUTANTS)
def test_changed_kernel_fails(
    module: str, old: str, new: str, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic, "KERNELS", load(module, old, new))
    with pytest.raises((AssertionError, EmulationError)):
        test()
