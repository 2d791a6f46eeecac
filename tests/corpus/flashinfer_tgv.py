"""The TGV GEMM of the PyPI package `flashinfer-python`: its CuTe DSL module, loaded alone.

The rest of the package wants libraries that need a GPU, so the module's file is executed by itself. Run inside a
virtual environment that has PyTorch (CPU build) and the CuTe DSL, and the package's files without its dependencies;
`build.py` does.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from types import ModuleType
from typing import Any

from tests.corpus.recorder import start

_MODULE = "flashinfer/gemm/kernels/tgv_gemm_cute_ext.py"

#: Tile rows, tile columns, stages, CTA pair, programmatic dependent launch, bias.
_CONFIGS: dict[str, dict[str, Any]] = {
    "tgv": {"cta_m": 64, "cta_n": 8, "num_ab_stage": 8, "use_2cta": False, "use_pdl": False, "has_bias": False},
    "tgv-pdl-bias": {"cta_m": 64, "cta_n": 8, "num_ab_stage": 8, "use_2cta": False, "use_pdl": True, "has_bias": True},
    "tgv-128x128": {
        "cta_m": 128,
        "cta_n": 128,
        "num_ab_stage": 3,
        "use_2cta": False,
        "use_pdl": False,
        "has_bias": False,
    },
    "tgv-2cta": {"cta_m": 64, "cta_n": 16, "num_ab_stage": 8, "use_2cta": True, "use_pdl": False, "has_bias": False},
    "tgv-2cta-pdl": {
        "cta_m": 128,
        "cta_n": 64,
        "num_ab_stage": 5,
        "use_2cta": True,
        "use_pdl": True,
        "has_bias": False,
    },
}


def _load() -> ModuleType:
    """The kernel's module, without the package around it."""
    files = metadata.files("flashinfer-python") or []
    path = next(str(file.locate()) for file in files if str(file) == _MODULE)
    spec = importlib.util.spec_from_file_location("tgv_gemm_cute_ext", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    recorder = start("flashinfer-python")
    import torch

    module = _load()
    # A is (L, M, K) and B is (L, K, N), both with K contiguous; C is (L, M, N) with M contiguous.
    layout = {"a_leading": 2, "b_leading": 1, "c_leading": 1}
    for name, config in _CONFIGS.items():
        recorder.compile(name, config, module._get_compiled_cute_ext_kernel, dtype=torch.bfloat16, cta_k=128, **layout)
    return recorder.close()


if __name__ == "__main__":
    raise SystemExit(main())
