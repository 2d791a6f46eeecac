"""Grouped-GEMM kernels of the PyPI package `nvidia-cudnn-frontend`, compiled through the package's own API.

Run inside a virtual environment that has the package, PyTorch (CPU build) and the CuTe DSL; `build.py` does.
"""

from __future__ import annotations

from typing import Any

from tests.corpus import shim

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


def _pair_one(recorder: shim.Recorder) -> None:
    """`quant`, `srelu`, `dsrelu` with static and dynamic scheduler, two CTAs and one."""
    import torch

    operands = _operands(torch)
    gate = torch.empty((1, ROWS, COLUMNS), dtype=torch.bfloat16).permute(1, 2, 0)
    for suffix, shape in SHAPES.items():
        for dynamic in (False, True):
            config = {**shape, "use_dynamic_sched": dynamic}
            tail = suffix + ("-dynamic" if dynamic else "")
            with recorder.kernel("quant" + tail, **config):
                from cudnn.gemm.cutedsl.grouped.quant.api import grouped_gemm_quant_wrapper_sm100

                grouped_gemm_quant_wrapper_sm100(**operands, **config)
            with recorder.kernel("srelu" + tail, **config):
                from cudnn.gemm.cutedsl.grouped.srelu.api import grouped_gemm_srelu_wrapper_sm100

                grouped_gemm_srelu_wrapper_sm100(**operands, **config)
            with recorder.kernel("dsrelu" + tail, **config):
                from cudnn.gemm.cutedsl.grouped.dsrelu.api import grouped_gemm_dsrelu_wrapper_sm100

                grouped_gemm_dsrelu_wrapper_sm100(**operands, c_tensor=gate, **config)


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    recorder = shim.start("nvidia-cudnn-frontend")
    _pair_one(recorder)
    return 1 if recorder.close() else 0


if __name__ == "__main__":
    raise SystemExit(main())
