"""Launches the compiled Hopper kernels on torch tensors, with nothing but the CUDA driver.

A machine with a GPU needs neither the CuTe DSL nor this project's dependencies: the folder of a compiled kernel
(kernel.cubin, meta.json) travels there. The tensor maps are encoded here, for the boxes that the kernels' shared
memory layouts ask for; a kernel is compiled for one shape, so the tensors must have it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

MAP_BYTES = 128
MAP_ALIGN = 64
BF16 = 9  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
SWIZZLE = {32: 1, 64: 2, 128: 3}  # bytes of a box row -> CUtensorMapSwizzle
PROMOTE_128 = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, padding to 8 bytes, a union of 64 bytes of which the cluster takes the first 12."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _check(result: int, what: str) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()} ({result})")


class TensorMap:
    """Tensor map of a row-major bf16 matrix, for boxes of `rows` x `columns`, swizzled over the bytes of a box row.

    Raises RuntimeError when the driver refuses it.
    """

    def __init__(self, matrix: torch.Tensor, rows: int, columns: int) -> None:
        self.keep = (matrix, ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN))
        start = ctypes.addressof(self.keep[1])
        self.address = start + -start % MAP_ALIGN
        height, width = matrix.shape
        _check(
            _driver().cuTensorMapEncodeTiled(
                ctypes.c_void_p(self.address),
                BF16,
                2,
                ctypes.c_void_p(matrix.data_ptr()),
                (ctypes.c_uint64 * 2)(width, height),
                (ctypes.c_uint64 * 1)(matrix.stride(0) * matrix.element_size()),
                (ctypes.c_uint32 * 2)(columns, rows),
                (ctypes.c_uint32 * 2)(1, 1),
                0,  # no interleave
                SWIZZLE[columns * matrix.element_size()],
                PROMOTE_128,
                0,  # zeros outside
            ),
            "cuTensorMapEncodeTiled",
        )


class Kernel:
    """The kernel of one artifact folder. Needs a current CUDA context; raises RuntimeError when the driver refuses."""

    def __init__(self, folder: Path) -> None:
        torch.zeros((), device="cuda")  # makes the context, and makes it current
        meta = json.loads((folder / "meta.json").read_text())
        self.config: dict[str, Any] = meta["config"]
        self.launch: dict[str, Any] = meta["launch"]
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = _driver()
        _check(driver.cuModuleLoadData(ctypes.byref(module), (folder / "kernel.cubin").read_bytes()), "load")
        entry = meta["entry"].encode()
        _check(driver.cuModuleGetFunction(ctypes.byref(self.function), module, entry), f"entry {entry!r}")
        shared = self.launch["dynamic_smem"]
        _check(driver.cuFuncSetAttribute(self.function, MAX_DYNAMIC_SHARED, shared), f"{shared} bytes of shared memory")

    def __call__(self, parameters: Sequence[TensorMap | torch.Tensor]) -> None:
        """Launches on torch's current stream; a tensor parameter stands for its address."""
        values = [ctypes.c_void_p(p.data_ptr()) for p in parameters if isinstance(p, torch.Tensor)]
        pointers = iter(values)
        addresses = [p.address if isinstance(p, TensorMap) else ctypes.addressof(next(pointers)) for p in parameters]
        attribute = _Attribute(id=CLUSTER_DIMENSION, value=(ctypes.c_uint * 16)(*self.launch["cluster"]))
        config = _Config(
            grid=(ctypes.c_uint * 3)(*self.launch["grid"]),
            block=(ctypes.c_uint * 3)(*self.launch["block"]),
            shared=self.launch["dynamic_smem"],
            stream=torch.cuda.current_stream().cuda_stream,
            attributes=ctypes.pointer(attribute),
            count=1,
        )
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), self.function, table, None), "launch")


def gemm_persistent(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, box: int = 64
) -> Callable[[], None]:
    """A call that computes C = A B^T with hopper_gemm_persistent. A (m, k), B (n, k) and C (m, n): bf16, row-major."""
    return _bind(kernel, a, b, c, box, ())


def splitk_mailbox(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, table: torch.Tensor | None = None
) -> Callable[[], None]:
    """A call that computes C = act(A B^T) with hopper_splitk_mailbox; `table` (fp32) as the kernel was configured."""
    box = kernel.config["tile_n"] // kernel.config["split_k"]
    return _bind(kernel, a, b, c, box, () if table is None else (table,))


def _bind(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, box: int, more: tuple[torch.Tensor, ...]
) -> Callable[[], None]:
    config = kernel.config
    m, n, k = config["m"], config["n"], config["k"]
    if (a.shape, b.shape, c.shape) != ((m, k), (n, k), (m, n)):
        raise ValueError(f"compiled for m = {m}, n = {n}, k = {k}")
    if more and more[0].numel() != config["table"]:
        raise ValueError(f"compiled for a table of {config['table']} entries")
    parameters = (
        TensorMap(a, config["tile_m"], config["tile_k"]),
        TensorMap(b, config["tile_n"], config["tile_k"]),
        TensorMap(c, config["tile_m"], box),
        *more,
    )
    return lambda: kernel(parameters)


def reference(a: torch.Tensor, b: torch.Tensor, table: torch.Tensor | None = None) -> torch.Tensor:
    """fp32 result that both kernels approximate; the table covers [-8, 8) and is read at its nearest entry."""
    product = a.float() @ b.float().T
    if table is None:
        return product
    entries = table.numel()
    return table[(product * (entries / 16) + entries / 2 + 0.5).to(torch.int64).clamp(0, entries - 1)]
