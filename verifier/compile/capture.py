"""Inside the child process: take PTX, cubin, IR, launch facts and assembler messages from the CuTe DSL.

The DSL hands the files out itself (CUTE_DSL_KEEP); launch facts are read from its IR through its own MLIR bindings.
Three of its functions are wrapped for that, all present from 4.5.0 to 4.8.1; where a later version lacks one,
only what that one gives is missing.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verifier.compile.jobs import Capture
from verifier.launch import Dim3, LaunchFacts

# The last pass turns `cute.kernel_smem_size @kernel` into the constant that the launch uses.
_PIPELINE = "builtin.module(canonicalize,cse,infer-kernel-smem-usage)"
_PTXAS_REMARK = "RemarkPTXAS"
_PTXAS_PREFIX = "ptxas output:"


class Recorder:
    """Collects every module that the DSL compiles while it is installed and writes its files into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._launches: dict[str, LaunchFacts] = {}
        self._mlir = ""
        self._log = ""
        self.captures: list[Capture] = []

    def install(self, *, skip_launch: bool) -> None:
        """Wrap the DSL's functions; with `skip_launch` calling a compiled function does nothing."""
        diagnostics, dsl, jit_executor = (
            _module(f"base_dsl.{name}") for name in ("diagnostics", "dsl", "jit_executor")
        )
        _before(dsl.BaseDSL, "build_module", lambda _dsl, module, *_args, **_kwargs: self._on_module(module))
        _before(
            diagnostics, "finalize_compiler_diagnostics", lambda context: self._on_diagnostics(diagnostics, context)
        )
        _after(jit_executor.JitCompiledFunction, "__init__", self._on_function)
        if skip_launch:
            self._skip_launches(jit_executor)

    @staticmethod
    def _skip_launches(jit_executor: Any) -> None:
        def do_nothing(*_args: object, **_kwargs: object) -> int:
            return 0

        classes = (jit_executor.JitCompiledFunction, jit_executor.JitExecutor)
        for cls in (*classes, _module("cutlass_dsl.cuda_jit_executor").CudaDialectJitCompiledFunction):
            for name in ("__call__", "run_compiled_program"):
                setattr(cls, name, do_nothing)

    def _on_module(self, module: Any) -> None:
        # A copy: the compiler goes on with the original.
        copy = _module("_mlir.ir").Module.parse(str(module))
        _module("_mlir.passmanager").PassManager.parse(_PIPELINE).run(copy.operation)
        self._mlir = str(copy)
        self._launches = launches_of(copy)

    def _on_diagnostics(self, diagnostics: Any, context: Any) -> None:
        bindings = diagnostics._load_diagnostic_bindings()
        for item in bindings.get_collected_remarks(context) if bindings else ():
            remark = diagnostics.compiler_diagnostic_from_remark(item)
            if remark is not None and remark.name == _PTXAS_REMARK:
                self._log += remark.message.strip().removeprefix(_PTXAS_PREFIX).strip() + "\n"

    def _on_function(self, function: Any) -> None:
        kept = function.artifacts
        if kept is None or not isinstance(kept.PTX, str) or not isinstance(kept.CUBIN, bytes):
            return
        stem = f"{len(self.captures):03d}"
        # CuTe DSL 4.5.0 ends some PTX with a NUL byte.
        (self._folder / f"{stem}.ptx").write_text(kept.PTX.rstrip("\0"))
        (self._folder / f"{stem}.cubin").write_bytes(kept.CUBIN)
        if self._mlir:
            (self._folder / f"{stem}.mlir").write_text(self._mlir)
        name = str(function.function_name)
        self.captures.append(Capture(stem=stem, function=name, log=self._log, launches=self._launches))
        self._launches, self._mlir, self._log = {}, "", ""


def _module(name: str) -> Any:
    # Untyped on purpose: these modules are the DSL's own business and change with its version.
    return importlib.import_module(f"cutlass.{name}")


def _before(owner: Any, name: str, action: Callable[..., None]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        action(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, action: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        action(self)
        return result

    setattr(owner, name, wrapped)


def launches_of(module: Any) -> dict[str, LaunchFacts]:
    """Kernel symbol -> launch facts, from the `cuda.launch_ex` and `cuda.launch_cfg.*` operations of a module.

    A kernel that is launched in several ways keeps the facts that all of them share.
    """
    ir = _module("_mlir.ir")
    found: dict[str, LaunchFacts] = {}

    def visit(operation: Any) -> Any:
        if operation.name == "cuda.launch_ex":
            view = operation.opview
            kernel = ir.SymbolRefAttr(view.attributes["callee"]).value[-1]
            facts = _facts_of(view.launch_cfg)
            found[kernel] = _shared(found[kernel], facts) if kernel in found else facts
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _facts_of(config: Any) -> LaunchFacts:
    create = config.owner.opview
    if create.operation.name != "cuda.launch_cfg.create":
        return LaunchFacts()
    attributes = {use.owner.operation.name.rpartition(".")[2]: use.owner for use in config.uses}
    cluster: Dim3 | None = (1, 1, 1)
    if "preferred_cluster_dim" in attributes:
        cluster = None  # the driver may choose either shape
    elif "cluster_dim" in attributes:
        dim = attributes["cluster_dim"].opview
        cluster = _whole(dim.clusterDimX, dim.clusterDimY, dim.clusterDimZ)
    return LaunchFacts(
        grid=(_constant(create.gridDimX), _constant(create.gridDimY), _constant(create.gridDimZ)),
        cluster=cluster,
        block=_whole(create.blockDimX, create.blockDimY, create.blockDimZ),
        dynamic_smem=_constant(create.dynamicSmemBytes),
    )


def _constant(value: Any) -> int | None:
    ir = _module("_mlir.ir")
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _whole(x: Any, y: Any, z: Any) -> Dim3 | None:
    a, b, c = _constant(x), _constant(y), _constant(z)
    return None if a is None or b is None or c is None else (a, b, c)


def _shared(a: LaunchFacts, b: LaunchFacts) -> LaunchFacts:
    grid = None
    if a.grid is not None and b.grid is not None:
        x, y, z = (left if left == right else None for left, right in zip(a.grid, b.grid, strict=True))
        grid = (x, y, z)
    return LaunchFacts(
        grid=grid,
        cluster=a.cluster if a.cluster == b.cluster else None,
        block=a.block if a.block == b.block else None,
        dynamic_smem=a.dynamic_smem if a.dynamic_smem == b.dynamic_smem else None,
    )
