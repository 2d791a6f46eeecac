"""Compile CuTe DSL kernels of other packages on a machine without a GPU, and file what comes out.

Runs inside the virtual environment of the package under test, so it imports nothing of the verifier.

The packages ask PyTorch and the DSL about the GPU, allocate tensors on it, compile, and launch. `install`
answers the questions with a fake device of the wanted capability, places tensors asked for on "cuda" on the
CPU (their DLPack label still says CUDA), files PTX, cubin and compiled IR of every `cute.compile`, and hands
back a callable that does nothing, so that the launch is skipped.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
#: Streaming multiprocessors of the fake device, by compute capability.
_MULTIPROCESSORS = {(9, 0): 132, (10, 0): 148, (10, 3): 148, (10, 7): 148}
_SHARED_MEMORY_OPTIN = 232448
#: Bytes; what a GPU allocation is aligned to at least.
_ALIGNMENT = 256
_L2_BYTES = 126 * 2**20


def set_environment(arch: str) -> None:
    """Tell the DSL what to compile for and what to keep. Must run before the first import of `cutlass`."""
    os.environ["CUTE_DSL_ARCH"] = arch
    os.environ["CUTE_DSL_KEEP"] = "ptx,cubin,ir"
    # The spelling of DSL releases that do not know CUTE_DSL_KEEP yet.
    os.environ["CUTE_DSL_KEEP_PTX"] = "1"
    os.environ["CUTE_DSL_KEEP_CUBIN"] = "1"
    os.environ["CUTE_DSL_KEEP_IR"] = "1"
    os.environ["CUTE_DSL_LINEINFO"] = "1"
    os.environ["CUTE_DSL_DUMP_DIR"] = tempfile.mkdtemp(prefix="corpus-dump-")
    os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] = "1"


def capability(arch: str) -> tuple[int, int]:
    """Compute capability of an architecture name: `sm_100a` is (10, 0)."""
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if match is None:
        raise ValueError(f"{arch!r} is not an architecture such as sm_100a")
    return int(match.group(1)), int(match.group(2))


class Recorder:
    """Files the artifacts of the kernels that are compiled while a name is set."""

    def __init__(self, out: Path, package: str, version: str, arch: str) -> None:
        self.out = out
        self.package = package
        self.version = version
        self.arch = arch
        self.name: str | None = None
        self.config: dict[str, Any] = {}
        self.filed: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.only: frozenset[str] = frozenset()
        self._used: set[str] = set()

    @contextlib.contextmanager
    def kernel(self, name: str, **config: Any) -> Iterator[None]:
        """Name what is compiled inside; an exception is recorded as a failure and does not spread."""
        self.name, self.config = name, config
        filed = len(self.filed)
        try:
            yield
        except Exception as error:  # a package's own error must not stop the others
            self.failed.append((name, f"{type(error).__name__}: {error}"))
            traceback.print_exc()
        else:
            if len(self.filed) == filed:
                self.failed.append((name, "nothing was compiled"))
        finally:
            self.name = None

    def file(self, compiled: Any, seconds: float) -> None:
        """Write one compile's artifacts into a folder of its own."""
        base = self.name or "unnamed"
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base}-{number}"
        self._used.add(name)
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        artifacts = compiled.artifacts
        _write(folder / "kernel.ptx", artifacts.PTX.rstrip("\0").encode())
        _write(folder / "kernel.cubin", artifacts.CUBIN)
        mlir = artifacts.MLIR or ""
        if mlir:
            _write(folder / "kernel.mlir", mlir.encode())
        meta = self._meta(name, artifacts.PTX, mlir, seconds)
        _write(folder / "meta.json", json.dumps(meta, indent=2, sort_keys=True).encode() + b"\n")
        self.filed.append(name)
        print(f"filed {self.package}-{self.version}/{name} ({seconds:.1f} s)", flush=True)

    def _meta(self, name: str, ptx: str, mlir: str, seconds: float) -> dict[str, Any]:
        import cutlass

        return {
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "arch": self.arch,
            "entries": re.findall(r"\.entry\s+([\w$]+)", ptx),
            "package": self.package,
            "package_version": self.version,
            "config": {key: value for key, value in sorted(self.config.items())},
            "dsl": cutlass.__version__,
            "compile_seconds": round(seconds, 2),
        }

    def close(self) -> int:
        """Print the outcome; the number of failures."""
        for name, reason in self.failed:
            print(f"FAILED {self.package}-{self.version}/{name}: {reason.splitlines()[0] if reason else ''}", flush=True)
        return len(self.failed)


def _write(path: Path, data: bytes) -> None:
    """Write atomically: a reader sees the whole file or none."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


class _CompileHook:
    """Stands in for `cute.compile`, in its call form and in its `compile[options]` form."""

    def __init__(self, real: Any, recorder: Recorder) -> None:
        self._real = real
        self._recorder = recorder

    def __getitem__(self, options: Any) -> _CompileHook:
        return _CompileHook(self._real[options], self._recorder)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._real, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        compiled = self._real(*args, **kwargs)
        self._recorder.file(compiled, time.perf_counter() - started)
        return _Unlaunched(compiled)


class _Unlaunched:
    """A compiled kernel whose call does nothing: there is no GPU to run it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._compiled, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


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
            name = getattr(func, "__name__", "")
            if name == "cuda":
                return args[0]
            if name in ("to", "new_empty", "new_zeros"):
                args = tuple("cpu" if on_cpu(value) else value for value in args)
            return _aligned(torch, func(*args, **kwargs), name)

    OnCpu().__enter__()


def install(recorder: Recorder) -> None:
    """Put the fake device and the compile hook in place. `set_environment` ran before."""
    with contextlib.suppress(ImportError):
        _fake_torch(recorder.arch)
    import cutlass
    import cutlass.cute as cute
    import cutlass.utils
    import cutlass.utils.hardware_info

    _FakeHardware.multiprocessors = _MULTIPROCESSORS.get(capability(recorder.arch), 148)
    cutlass.utils.HardwareInfo = _FakeHardware
    cutlass.utils.hardware_info.HardwareInfo = _FakeHardware
    cute.compile = _CompileHook(cute.compile, recorder)


def start(distribution: str) -> Recorder:
    """Read the command line of a corpus script, prepare the process, and return the recorder."""
    import argparse
    from importlib import metadata

    parser = argparse.ArgumentParser(description=f"Compile kernels of {distribution} on the CPU.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the artifact folders")
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument("--only", action="append", default=[], help="kernel to compile (repeatable); all when absent")
    options = parser.parse_args()
    set_environment(options.arch)
    recorder = Recorder(options.out, distribution, metadata.version(distribution), options.arch)
    recorder.only = frozenset(options.only)
    install(recorder)
    return recorder
