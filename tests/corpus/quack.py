"""Kernels of the PyPI package `quack-kernels`: tcgen05 GEMMs, and reductions that use clusters and `st.async`.

Run inside a virtual environment that has the package, PyTorch (CPU build) and the CuTe DSL; `build.py` does.
"""

from __future__ import annotations

import os
from typing import Any

from tests.corpus.recorder import Recorder, start

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


def _gemms(recorder: Recorder) -> None:
    """GEMM (bf16) through the package's dispatch: one and two CTAs, static and dynamic scheduler, split K."""
    import torch
    from quack.gemm import gemm

    a = torch.empty((BATCHES, ROWS, DEPTH), dtype=torch.bfloat16)
    b = torch.empty((BATCHES, COLUMNS, DEPTH), dtype=torch.bfloat16)
    d = torch.empty((BATCHES, ROWS, COLUMNS), dtype=torch.bfloat16)
    for name, config in _GEMMS.items():
        if "dynamic" in name and recorder.arch == "sm_90a":
            continue  # there the dynamic scheduler needs a semaphore in global memory; here it asks the hardware
        recorder.compile(name, config, gemm, a, b, d, None, None)
    config = _GEMMS["gemm-2cta"]
    bias = torch.empty((BATCHES, COLUMNS), dtype=torch.bfloat16)
    recorder.compile("gemm-c-bias", config, gemm, a, b, d, torch.empty_like(d), None, rowvec_bias=bias, beta=0.5)
    offsets = torch.arange(BATCHES + 1, dtype=torch.int32) * ROWS
    flat, out = a.flatten(0, 1), d.flatten(0, 1)
    recorder.compile("gemm-varlen-m", config, gemm, flat, b, out, None, None, cu_seqlens_m=offsets)


def _reductions(recorder: Recorder) -> None:
    """Row reductions; the long rows are split over a cluster, whose CTAs exchange partial results."""
    from cutlass import BFloat16, Float32, Int64
    from quack.cross_entropy import CrossEntropy
    from quack.rmsnorm import _compile_rmsnorm_bwd, _compile_rmsnorm_fwd
    from quack.softmax import Softmax, SoftmaxBackward
    from quack.topk import TopK

    def rmsnorm(columns: int) -> None:
        _compile_rmsnorm_fwd(BFloat16, BFloat16, None, Float32, None, None, columns, True, False, False, False)

    def rmsnorm_backward(columns: int) -> None:
        _compile_rmsnorm_bwd(columns, BFloat16, BFloat16, BFloat16, Float32, False, None, None, True)

    def cross_entropy(columns: int) -> None:
        CrossEntropy.compile(BFloat16, Int64, None, columns, True, False, None, None)

    for suffix, columns in (("", SHORT), ("-cluster", LONG)):
        recorder.compile("rmsnorm-forward" + suffix, {"columns": columns}, rmsnorm)
        recorder.compile("rmsnorm-backward" + suffix, {"columns": columns // 4}, rmsnorm_backward)
        recorder.compile("softmax-forward" + suffix, {"N": columns}, Softmax.compile, BFloat16, BFloat16)
        recorder.compile(
            "softmax-backward" + suffix, {"N": columns // 2}, SoftmaxBackward.compile, BFloat16, BFloat16, BFloat16
        )
        recorder.compile("cross-entropy" + suffix, {"columns": columns}, cross_entropy)
    recorder.compile("topk", {"N": 1024, "k": 16, "softmax": False}, TopK.compile, BFloat16)


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    os.environ["QUACK_CACHE_ENABLED"] = "0"
    recorder = start("quack-kernels")
    _gemms(recorder)
    _reductions(recorder)
    return recorder.close()


if __name__ == "__main__":
    raise SystemExit(main())
