"""Kernels of the PyPI package `quack-kernels`: tcgen05 GEMMs, and reductions that use clusters and `st.async`.

Run inside a virtual environment that has the package, PyTorch (CPU build) and the CuTe DSL; `build.py` does.
"""

from __future__ import annotations

import os
from typing import Any

from tests.corpus import shim

#: Rows, columns, reduction length, batches. The kernels are compiled with symbolic extents.
ROWS, COLUMNS, DEPTH, BATCHES = 512, 512, 512, 2
#: Columns of a reduction: short enough for one CTA, and long enough for a cluster of CTAs.
SHORT, LONG = 4096, 131072

_GEMMS: dict[str, dict[str, Any]] = {
    "gemm-2cta": {"tile_M": 256, "tile_N": 256, "cluster_M": 2, "cluster_N": 1},
    "gemm-2cta-dynamic": {
        "tile_M": 256,
        "tile_N": 128,
        "cluster_M": 2,
        "cluster_N": 1,
        "is_dynamic_persistent": True,
    },
    "gemm-1cta": {"tile_M": 128, "tile_N": 128, "cluster_M": 1, "cluster_N": 1},
    "gemm-split-k": {"tile_M": 128, "tile_N": 128, "cluster_M": 1, "cluster_N": 1, "split_k": 2},
    "gemm-cluster2x2": {"tile_M": 256, "tile_N": 128, "cluster_M": 2, "cluster_N": 2},
}


def _gemms(recorder: shim.Recorder) -> None:
    """GEMM (bf16) through the package's dispatch: one and two CTAs, static and dynamic scheduler, split K."""
    import torch
    from quack.gemm import gemm

    a = torch.empty((BATCHES, ROWS, DEPTH), dtype=torch.bfloat16)
    b = torch.empty((BATCHES, COLUMNS, DEPTH), dtype=torch.bfloat16)
    d = torch.empty((BATCHES, ROWS, COLUMNS), dtype=torch.bfloat16)
    for name, config in _GEMMS.items():
        with recorder.kernel(name, **config):
            gemm(a, b, d, None, None, **config)
    with recorder.kernel("gemm-c-bias", **_GEMMS["gemm-2cta"]):
        bias = torch.empty((BATCHES, COLUMNS), dtype=torch.bfloat16)
        gemm(a, b, d, torch.empty_like(d), None, rowvec_bias=bias, beta=0.5, **_GEMMS["gemm-2cta"])
    with recorder.kernel("gemm-varlen-m", **_GEMMS["gemm-2cta"]):
        offsets = torch.arange(BATCHES + 1, dtype=torch.int32) * ROWS
        flat = torch.empty((BATCHES * ROWS, DEPTH), dtype=torch.bfloat16)
        out = torch.empty((BATCHES * ROWS, COLUMNS), dtype=torch.bfloat16)
        gemm(flat, b, out, None, None, cu_seqlens_m=offsets, **_GEMMS["gemm-2cta"])


def _reductions(recorder: shim.Recorder) -> None:
    """Row reductions; the long rows are split over a cluster, whose CTAs exchange partial results."""
    from cutlass import BFloat16, Float32, Int64
    from quack.cross_entropy import CrossEntropy
    from quack.rmsnorm import _compile_rmsnorm_bwd, _compile_rmsnorm_fwd
    from quack.softmax import Softmax, SoftmaxBackward
    from quack.topk import TopK

    for suffix, columns in (("", SHORT), ("-cluster", LONG)):
        with recorder.kernel("rmsnorm-forward" + suffix, columns=columns):
            _compile_rmsnorm_fwd(
                BFloat16, BFloat16, None, Float32, None, None, columns, True, False, False, False
            )
        with recorder.kernel("rmsnorm-backward" + suffix, columns=columns // 4):
            _compile_rmsnorm_bwd(
                columns // 4, BFloat16, BFloat16, BFloat16, Float32, False, None, None, True
            )
        with recorder.kernel("softmax-forward" + suffix, columns=columns):
            Softmax.compile(BFloat16, BFloat16, columns)
        with recorder.kernel("softmax-backward" + suffix, columns=columns // 2):
            SoftmaxBackward.compile(BFloat16, BFloat16, BFloat16, columns // 2)
        with recorder.kernel("cross-entropy" + suffix, columns=columns):
            CrossEntropy.compile(BFloat16, Int64, None, columns, True, False, None, None)
    with recorder.kernel("topk", columns=1024, k=16):
        TopK.compile(BFloat16, 1024, 16, False)


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    os.environ["QUACK_CACHE_ENABLED"] = "0"
    recorder = shim.start("quack-kernels")
    _gemms(recorder)
    _reductions(recorder)
    return 1 if recorder.close() else 0


if __name__ == "__main__":
    raise SystemExit(main())
