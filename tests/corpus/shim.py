"""A fake GPU for packages that compile CuTe DSL kernels: nothing here needs a GPU, a driver or a CUDA build of PyTorch.

The packages ask PyTorch and the DSL about the GPU, allocate tensors on it, compile, and launch. `install` answers the
questions with a fake device of the wanted capability, and places tensors asked for on "cuda" on the CPU, while their
DLPack label still says CUDA. Calling a compiled kernel does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Mapping
from typing import Any

#: Streaming multiprocessors of the fake device, by compute capability.
_MULTIPROCESSORS = {(9, 0): 132, (10, 0): 148, (10, 3): 148, (10, 7): 148}
_SHARED_MEMORY_OPTIN = 232448
#: Bytes; what a GPU allocation is aligned to at least.
_ALIGNMENT = 256
_DLPACK_CUDA = 2
_L2_BYTES = 126 * 2**20


def capability(arch: str) -> tuple[int, int]:
    """Compute capability of an architecture name: `sm_100a` is (10, 0)."""
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if match is None:
        raise ValueError(f"{arch!r} is not an architecture such as sm_100a")
    return int(match.group(1)), int(match.group(2))


class _FakeHardware:
    """Answers the DSL's `HardwareInfo` for the fake device."""

    multiprocessors = 148

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id

    def get_max_active_clusters(self, cluster_size: int, stream: Any = None) -> int:
        return self.multiprocessors // cluster_size

    def get_device_multiprocessor_count(self) -> int:
        return self.multiprocessors

    def get_l2_cache_size_in_bytes(self) -> int:
        return _L2_BYTES


class _FakeProperties:
    """What `torch.cuda.get_device_properties` says of the fake device."""

    def __init__(self, major: int, minor: int) -> None:
        self.name = "fake device"
        self.major, self.minor = major, minor
        self.multi_processor_count = _MULTIPROCESSORS.get((major, minor), 148)
        self.shared_memory_per_block_optin = _SHARED_MEMORY_OPTIN
        self.shared_memory_per_multiprocessor = _SHARED_MEMORY_OPTIN + 1024
        self.L2_cache_size = _L2_BYTES
        self.warp_size = 32
        self.total_memory = 180 * 2**30


class _FakeStream:
    """A stream with the null handle."""

    cuda_stream = 0
    device = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _FakeStream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def synchronize(self) -> None:
        return None

    wait_stream = record_event = wait_event = lambda self, *args: None


def _aligned(torch: Any, tensor: Any, function: str) -> Any:
    """A new tensor at an address that a GPU allocation would have: the CPU allocator aligns to 64 bytes only."""
    if function not in ("empty", "zeros", "empty_strided") or not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.data_ptr() % _ALIGNMENT == 0 or not tensor.is_contiguous():
        return tensor
    size = tensor.numel() * tensor.element_size()
    bytes_ = torch.zeros(size + _ALIGNMENT, dtype=torch.uint8)
    offset = -bytes_.data_ptr() % _ALIGNMENT
    return bytes_[offset : offset + size].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def _fake_torch(arch: str) -> None:
    """Answer `torch.cuda` with one device, and place tensors asked for on "cuda" on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    properties = _FakeProperties(*capability(arch))
    answers: Mapping[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *a: None,
        "synchronize": lambda *a: None,
        "empty_cache": lambda: None,
        "get_device_capability": lambda *a: capability(arch),
        "get_device_name": lambda *a: properties.name,
        "get_device_properties": lambda *a: properties,
        "current_stream": _FakeStream,
        "default_stream": _FakeStream,
        "Stream": _FakeStream,
        "stream": lambda *a: _FakeStream(),
        "device": lambda *a: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "_lazy_init": lambda: None,
    }
    for attribute, answer in answers.items():
        setattr(torch.cuda, attribute, answer)
    torch.Tensor.record_stream = lambda tensor, stream: None

    def on_cpu(device: Any) -> bool:
        return str(device).startswith("cuda") if isinstance(device, (str, torch.device)) else False

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        """Rewrites the device argument of every tensor function from CUDA to CPU."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if on_cpu(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            if func == torch.Tensor.is_cuda.__get__:
                return True
            name = getattr(func, "__name__", "")
            if name == "cuda":
                return args[0]
            if name in ("to", "new_empty", "new_zeros"):
                args = tuple("cpu" if on_cpu(value) else value for value in args)
            return _aligned(torch, func(*args, **kwargs), name)

    OnCpu().__enter__()


def _relabel(capsule: Any) -> None:
    """Write "CUDA device 0" into the device field of a DLPack capsule.

    The layout is that of `dlpack.h`: the tensor is the first field of the plain form, and follows version (8 bytes),
    two pointers and flags (8 bytes) in the versioned one; in both its device (two 32-bit integers) follows the
    data pointer.
    """
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name, offset in ((b"dltensor", 0), (b"dltensor_versioned", 32)):
        if api.PyCapsule_IsValid(capsule, name):
            tensor = api.PyCapsule_GetPointer(capsule, name) + offset
            (ctypes.c_int32 * 2).from_address(tensor + ctypes.sizeof(ctypes.c_void_p))[:] = [_DLPACK_CUDA, 0]


def _relabel_tensors() -> None:
    """Let the DSL take CPU tensors for CUDA tensors: it derives the state space of a pointer from the DLPack device."""
    from cutlass.cute import runtime

    real = runtime._Tensor.load_dltensor

    def load(tensor: Any) -> None:
        if tensor._dltensor_wrapper is None:
            _relabel(tensor._dlpack_data)
        real(tensor)

    runtime._Tensor.load_dltensor = load
    with contextlib.suppress(ImportError):
        import tvm_ffi

        real_from = tvm_ffi.from_dlpack
        tvm_ffi.from_dlpack = lambda tensor: real_from(_Relabelled(real_from(tensor)))


class _Relabelled:
    """Hands out a tensor's DLPack capsule with the device field rewritten."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        _relabel(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CUDA, 0


def install(arch: str) -> None:
    """Put the fake device in place. The variables that tell the DSL its architecture are set before."""
    with contextlib.suppress(ImportError):
        _fake_torch(arch)
    import cutlass.utils
    import cutlass.utils.hardware_info
    from cutlass import cute

    _FakeHardware.multiprocessors = _MULTIPROCESSORS.get(capability(arch), 148)
    cutlass.utils.HardwareInfo = _FakeHardware
    cutlass.utils.hardware_info.HardwareInfo = _FakeHardware
    _relabel_tensors()
    cute.compile = _CompileHook(cute.compile)
    with contextlib.suppress(ImportError):
        from cutlass.cute import experimental

        experimental.compile = _CompileHook(experimental.compile)


class _CompileHook:
    """Stands in for `cute.compile`, also in its form `compile[options]`: what it returns launches nothing."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getitem__(self, options: Any) -> _CompileHook:
        return _CompileHook(self._real[options])

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._real, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Unlaunched(self._real(*args, **kwargs))


class _Unlaunched:
    """A compiled kernel whose call does nothing.

    The capture makes the DSL's own classes do nothing when called; functions of the tvm-ffi interface are called
    in C++ and would refuse the tensors for being on the CPU.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._compiled, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None
