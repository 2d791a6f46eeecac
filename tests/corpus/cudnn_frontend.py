"""Grouped-GEMM kernels of the PyPI package `nvidia-cudnn-frontend`, compiled through the package's own API.

Run inside a virtual environment that has the package, PyTorch (CPU build) and the CuTe DSL; `build.py` does.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.corpus.recorder import Recorder, start

#: Experts, rows of all experts together, columns of the weights, reduction length. The kernels are compiled
#: with symbolic extents, so these only have to pass the package's own checks.
EXPERTS, ROWS, COLUMNS, DEPTH = 4, 1024, 1024, 512
VECTOR = 32


def _scales(torch: Any, rows: int, depth: int, batches: int) -> Any:
    """Scale factors in the package's 128x4 atom layout: (32, 4, rows/128, 4, depth/128, batches)."""
    blocks = (batches, -(-rows // 128), -(-depth // (4 * VECTOR)), 32, 4, 4)
    return torch.empty(blocks, dtype=torch.float8_e8m0fnu).permute(3, 4, 1, 5, 2, 0)


def _operands(torch: Any) -> dict[str, Any]:
    """The arguments that the forward and backward kernels share: fp8 operands with e8m0 scale factors."""
    fp8 = torch.float8_e4m3fn
    return {
        "a_tensor": torch.empty_strided((ROWS, DEPTH, 1), (DEPTH, 1, ROWS * DEPTH), dtype=fp8),
        "b_tensor": torch.empty((EXPERTS, COLUMNS, DEPTH), dtype=fp8).permute(1, 2, 0),
        "sfa_tensor": _scales(torch, ROWS, DEPTH, 1),
        "sfb_tensor": _scales(torch, COLUMNS, DEPTH, EXPERTS),
        "padded_offsets": torch.arange(1, EXPERTS + 1, dtype=torch.int32) * (ROWS // EXPERTS),
        "alpha_tensor": torch.ones(EXPERTS, dtype=torch.float32),
        "prob_tensor": torch.ones((ROWS, 1, 1), dtype=torch.float32),
        "norm_const_tensor": torch.ones(1, dtype=torch.float32),
        "d_dtype": fp8,
        "sf_vec_size": VECTOR,
    }


#: Configurations of the overlapping accumulator: N = 256 leaves one accumulator stage, which switches it on.
SHAPES = {
    "": {"mma_tiler_mn": (256, 256), "cluster_shape_mn": (2, 1)},
    "-1cta": {"mma_tiler_mn": (128, 256), "cluster_shape_mn": (1, 1)},
}


def _pair_one(recorder: Recorder) -> None:
    """`quant`, `srelu`, `dsrelu` with static and dynamic scheduler, two CTAs and one; `glu` and `dglu` beside them."""
    import torch
    from cudnn.gemm.cutedsl.grouped.dglu.api import grouped_gemm_dglu_wrapper_sm100 as dglu
    from cudnn.gemm.cutedsl.grouped.dsrelu.api import grouped_gemm_dsrelu_wrapper_sm100 as dsrelu
    from cudnn.gemm.cutedsl.grouped.glu.api import grouped_gemm_glu_wrapper_sm100 as glu
    from cudnn.gemm.cutedsl.grouped.quant.api import grouped_gemm_quant_wrapper_sm100 as quant
    from cudnn.gemm.cutedsl.grouped.srelu.api import grouped_gemm_srelu_wrapper_sm100 as srelu

    operands = _operands(torch)
    gate = torch.empty((1, ROWS, COLUMNS), dtype=torch.bfloat16).permute(1, 2, 0)
    wide = torch.empty((1, ROWS, 2 * COLUMNS), dtype=torch.bfloat16).permute(1, 2, 0)
    sums = {
        "beta_tensor": torch.ones(EXPERTS, dtype=torch.float32),
        "dprob_tensor": torch.zeros((ROWS, 1, 1), dtype=torch.float32),
    }
    for suffix, shape in SHAPES.items():
        for dynamic in (False, True):
            config = {**shape, "use_dynamic_sched": dynamic}
            tail = suffix + ("-dynamic" if dynamic else "")
            recorder.compile("quant" + tail, config, quant, **operands)
            recorder.compile("srelu" + tail, config, srelu, **operands)
            recorder.compile("dsrelu" + tail, config, dsrelu, c_tensor=gate, **operands)
            recorder.compile("glu" + tail, config, glu, **operands)
            recorder.compile("dglu" + tail, config, dglu, c_tensor=wide, **operands, **sums)


def _wgrad(recorder: Recorder) -> None:
    """`wgrad`, whose helper kernel writes tensor maps that the main kernel loads and stores through."""
    import torch
    from cudnn.gemm.cutedsl.grouped.wgrad.api import grouped_gemm_wgrad_wrapper_sm100 as wgrad

    fp8, scale = torch.float8_e4m3fn, torch.float8_e8m0fnu
    tokens = ROWS
    columns = -(-tokens // (4 * VECTOR)) * 4
    offsets = torch.arange(1, EXPERTS + 1, dtype=torch.int32) * (tokens // EXPERTS)
    scaled = {
        "a_tensor": torch.empty((COLUMNS, tokens), dtype=fp8),
        "b_tensor": torch.empty((DEPTH, tokens), dtype=fp8).t(),
        "sfa_tensor": torch.empty((COLUMNS, columns), dtype=scale),
        "sfb_tensor": torch.empty((DEPTH, columns), dtype=scale),
        "sf_vec_size": VECTOR,
    }
    plain = {
        "a_tensor": torch.empty((COLUMNS, tokens), dtype=torch.bfloat16),
        "b_tensor": torch.empty((tokens, DEPTH), dtype=torch.bfloat16),
        "sfa_tensor": None,
        "sfb_tensor": None,
    }
    # Any address that passes the package's check of alignment: nothing is launched.
    pointers = torch.full((EXPERTS,), 4096, dtype=torch.int64)
    for family, operands in (("wgrad", scaled), ("wgrad-bf16", plain)):
        for mode, order, (suffix, shape) in itertools.product(
            ("dense", "discrete"), ("tensor2d", "tensor_ragged"), SHAPES.items()
        ):
            config = {**shape, "output_mode": mode, "input_order": order}
            name = f"{family}-{mode}" + ("-ragged" if order == "tensor_ragged" else "") + suffix
            outputs = {"wgrad_ptrs": pointers} if mode == "discrete" else {}
            recorder.compile(name, config, wgrad, offsets_tensor=offsets, **operands, **outputs)


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    recorder = start("nvidia-cudnn-frontend")
    if recorder.release < (1, 30):
        _pair_one(recorder)
    else:
        _wgrad(recorder)
    return recorder.close()


if __name__ == "__main__":
    raise SystemExit(main())
