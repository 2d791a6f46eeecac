"""The Blackwell kernels' own sources, imported against the emulated DSL, under no name that anybody else sees.

What is replaced beside the DSL are the functions of `kernels/` that only build tensor maps and layouts of shared memory
and of scale factors (`_replace_layouts`).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.kernels.emulated_dsl import (
    BF16,
    E2M1,
    E4M3,
    E8M0,
    FP32,
    INT16,
    INT32,
    INT64,
    MACHINE,
    OPAQUE,
    TF32,
    UINT8,
    Allocator,
    Kernel,
    Mma,
    Struct,
    TiledCopy,
    append,
    flat_divide,
    group_modes,
    local_tile,
    make_layout,
    make_rmem_tensor,
    make_tensor,
    recast_tensor,
    share,
    size,
    unit_mode,
)
from tests.kernels.emulated_memory import Base, EmulationError, Memory, Pointer, View, extent, linear
from tests.kernels.emulated_operations import (
    alloc_tmem,
    arrive,
    arrive_peer,
    cluster_arrive,
    cluster_wait,
    commit,
    copy,
    expect,
    gemm,
    named_barrier,
    release,
    send_async,
    tmem_pointer,
    wait,
)

KERNELS = """
    registry common operands overlap pairs boxes ring scaled expert_inputs stores tensor_core tensor_maps tile_queue
    tmem walk mailbox splitk gemm_persistent gemm_splitk_mailbox tgv_gemm splitk_projection shared_splitk
    indexer_preproj moe_gg1 moe_gg1_nvfp4 grouped grouped_gemm_quant
    grouped_gemm_srelu grouped_gemm_dsrelu grouped_gemm_wgrad
"""
OF_ONE_MMA = {32: 32, 16: 64}  # values along K, by how many share a scale factor
# Operations that only order or announce something, or that are done as soon as they start.
NOTHING = """
    relinquish_tmem_alloc_permit dealloc_tmem sync_warp fence_view_async_tmem_load fence_proxy mbarrier_init_fence
    cp_async_bulk_commit_group cp_async_bulk_wait_group cp_async_commit_group cp_async_wait_group griddepcontrol_wait
    griddepcontrol_launch_dependents fence_tcgen05_before fence_tcgen05_after fence_acquire_cluster_shared
    fence_release_cluster_shared fence_tma_desc_acquire prefetch_descriptor
"""


def _thread_idx() -> tuple[Any, int, int]:
    return MACHINE.current.thread, 0, 0


def _arch() -> dict[str, Any]:
    return {
        "WARP_SIZE": 32,
        "warp_idx": lambda: MACHINE.current.first_warp,
        "make_warp_uniform": lambda value: value,
        "thread_idx": _thread_idx,
        "block_idx": lambda: MACHINE.current.cta.block,
        "grid_dim": lambda: MACHINE.current.cta.grid,
        "block_idx_in_cluster": lambda: MACHINE.current.cta.rank,
        "elect_one": lambda: MACHINE.current.elected(),
        "mbarrier_init": lambda bar, count: bar.bar.init(count),
        "mbarrier_arrive_and_expect_tx": expect,
        "barrier": named_barrier,
        "sync_threads": lambda: named_barrier(0, MACHINE.current.cta.threads),
        "cluster_arrive": cluster_arrive,
        "cluster_arrive_relaxed": cluster_arrive,
        "cluster_wait": cluster_wait,
        "store_async_dsmem": send_async,
        "alloc_tmem": alloc_tmem,
        "retrieve_tmem_ptr": tmem_pointer,
        "fmax": np.maximum,
        "rcp_approx": lambda value: np.float32(1) / value,
    }


SYNC = {  # kernels/common.py, whose functions stand for one instruction form each
    "wait": wait,
    "wait_relaxed_cluster": wait,
    "wait_acquire_cluster": wait,
    "arrive": arrive,
    "arrive_relaxed_cluster": arrive,
    "arrive_expect_relaxed_cluster": expect,
    "arrive_peer_relaxed_cluster": arrive_peer,
    "release_relaxed_cluster": release,
}


def _dsl_user_op(function: Callable[..., Any]) -> Any:
    name = function.__name__
    return _nothing if name in NOTHING.split() else SYNC.get(name, OPAQUE)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _same(value: Any) -> Any:
    return value


def _module(name: str, fields: Mapping[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(fields)
    module.__getattr__ = lambda _: OPAQUE  # type: ignore[method-assign]
    return module


def _cute() -> dict[str, Any]:
    here = (make_layout, make_tensor, append, make_rmem_tensor, recast_tensor, size, local_tile, flat_divide)
    tools = {function.__name__: function for function in (*here, group_modes, copy, gemm)}
    return tools | {
        "jit": _same,
        "kernel": Kernel,
        "struct": Struct(),
        "arch": SimpleNamespace(**_arch(), **dict.fromkeys(set(NOTHING.split()), _nothing)),
        "nvgpu": _nvgpu(),
        "autovec_copy": lambda source, target: copy(None, source, target),
        "make_tiled_mma": lambda op: Mma(*op),
        "make_tiled_copy_D": lambda *_: TiledCopy(),
        "make_identity_tensor": _same,
        "make_copy_atom": lambda *_, **__: None,
        "make_ptr": lambda _, address, *__, **___: whole_memory(MACHINE.addresses[address]),
        "tile_to_shape": lambda _, shape, order: SimpleNamespace(outer=make_layout(shape)),
        "ceil_div": lambda value, by: -(-value // by),
        "exp": lambda value, fastmath: np.exp(value),
    }


def whole_memory(memory: Memory) -> Pointer:
    """The start of memory."""
    return Pointer(Base(memory, (memory.data.size,), (1,)), (0,))


def _nvgpu() -> ModuleType:
    bulk = {
        "tma_partition": lambda _, __, ___, shared, tiles: (shared, tiles),
        "make_tiled_tma_atom": lambda _, c, *__: ("bulk", c),
        **dict.fromkeys(NOTHING.split(), _nothing),
    }
    tensor_core = {
        "commit": commit,
        "make_tmem_copy": lambda *_: TiledCopy(),
    }
    cpasync = _module("cutlass.cute.nvgpu.cpasync", bulk)
    return _module(
        "cutlass.cute.nvgpu", {"cpasync": cpasync, "tcgen05": _module("cutlass.cute.nvgpu.tcgen05", tensor_core)}
    )


def _modules() -> dict[str, ModuleType]:
    """The packages of the DSL by name."""
    numbers = {dtype.name: dtype for dtype in (INT16, INT32, INT64, UINT8, BF16, FP32, TF32, E2M1, E4M3, E8M0)}
    cute = _module("cutlass.cute", _cute())
    root = {"cute": cute, "range": _range, "range_constexpr": range, "const_expr": _same, "min": min, "max": max}
    named = {
        "cutlass": _module("cutlass", {**root, **numbers}),
        "cutlass.cute": cute,
        "cutlass.cute.nvgpu": cute.nvgpu,
        "cutlass.cutlass_dsl": _module("cutlass.cutlass_dsl", {"dsl_user_op": _dsl_user_op, **numbers}),
        "cutlass.utils": _module("cutlass.utils", {"SmemAllocator": Allocator}),
    }
    rest = "cute.runtime _mlir _mlir.dialects tensor_utils tensor_utils.tensormap"
    return named | {f"cutlass.{name}": _module(f"cutlass.{name}", {}) for name in rest.split()}


def _range(*bounds: int, unroll: int = 0) -> range:
    return range(*bounds)


@contextmanager
def _instead(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Hides the DSL and the kernels that are imported already behind other modules."""

    def concerned() -> dict[str, ModuleType]:
        return {name: m for name, m in sys.modules.items() if name.partition(".")[0] in ("cutlass", "kernels")}

    before = concerned()
    for name in before:
        del sys.modules[name]
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in concerned():
            del sys.modules[name]
        sys.modules.update(before)


def load(changed: str = "", old: str = "", new: str = "") -> Any:
    """The modules of the Blackwell kernels and of what they share, by name, as they run on the emulation.

    In module `changed`, `new` takes the place of `old`, which must be there once.
    """
    with _instead(_modules()):
        if changed:
            _import_changed(f"kernels.{changed}", old, new)
        loaded = SimpleNamespace(**{name: importlib.import_module(f"kernels.{name}") for name in KERNELS.split()})
    _replace_layouts(loaded)
    return loaded


def _import_changed(name: str, old: str, new: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise EmulationError(f"{old!r} is not in {name} once")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(text.replace(old, new), spec.origin, "exec"), module.__dict__)
    setattr(sys.modules["kernels"], name.partition(".")[2], module)


def _stages(view: Any, rows: int, columns: int, stages: int, atom: str = "bulk") -> tuple[Any, str, Any]:
    layout = make_layout((rows, columns, stages))
    return SimpleNamespace(outer=layout, inner=None, element_type=view.element_type), atom, view


def _replace_layouts(kernels: Any) -> None:
    """Tensor maps are the matrices themselves, stages and boxes in shared memory are compact."""
    operands = kernels.operands
    operands.make_mma = lambda tile, dtype=BF16, major=None: Mma(operands.MMA_BYTES * 8 // dtype.width)
    operands.make_load_a = lambda a, mma, tile, stages: _stages(a, tile.m, tile.k, stages)
    operands.make_load_b = lambda b, mma, tile, stages: _stages(b, tile.n, tile.k, stages)
    operands.make_box_load = lambda c, box, stages: _stages(c, box[0], box[1], stages)
    operands.make_store_c = lambda c, box, stages, add=False: _stages(c, *box, stages, "add" if add else "bulk")
    operands.store_atom = lambda *_: None
    operands.partition_load = lambda atom, tiles, stages: operands.Loads(
        atom, group_modes(tiles, 0, 2), group_modes(stages, 0, 2)
    )
    maps = kernels.tensor_maps.MapSlots
    maps.map = lambda self, expert, number: MACHINE.maps[(expert, number)]
    maps.write = lambda self, expert, updates: MACHINE.maps.update(
        {(expert, number): matrix.base for number, _, matrix in updates}
    )
    _replace_scaled(kernels)
    for kernel, name in ((kernels.tgv_gemm.TgvGemm, "store"), (kernels.indexer_preproj.IndexerPreproj, "store_both")):
        setattr(kernel, name, _thread_by_thread(getattr(kernel, name)))


def _replace_scaled(kernels: Any) -> None:
    """Scale factors stand beside the values, once for each of the values that share one."""
    scaled = kernels.scaled

    def make_loads(
        values: View, scales: View, tile: Any, ctas: int, stages: int, is_a: bool, major: Any = None, form: Any = None
    ) -> Any:
        rows = tile.m if is_a else tile.n
        layout = _stages(values, rows // ctas, tile.k, stages)[0]
        factors = _stages(values, rows // ctas if is_a else rows, tile.k, stages)[0]
        plain = SimpleNamespace(outer=factors.outer, modes=factors.outer.modes)
        atom = "pair" if ctas == 2 else "bulk"
        return scaled.Scaled(atom, values, layout, atom, scales, plain)

    def layouts(mma: Mma, tile: Any, stages: int, is_a: bool, form: Any) -> Any:
        """Of an operand that threads gather: with each scale factor once."""
        values, scales = (make_layout((tile.m, k, stages)) for k in (tile.k, tile.k // form.vector))
        return SimpleNamespace(outer=values, inner=None), SimpleNamespace(outer=scales, modes=scales.modes)

    def make_factors(
        tile: Any, ctas: int, shared: View, start: Pointer, columns: int, is_a: bool, form: Any = scaled.MXFP8
    ) -> Any:
        stage = shared.modes
        block = OF_ONE_MMA[form.vector] * shared.shape[1] // tile.k
        own = MACHINE.registers(extent(stage), E8M0)
        target = linear(own, make_layout(shared.shape)) if ctas == 1 else shared  # a pair's are where both find them
        units = [unit_mode()] * 3
        fives = [View(x.base, x.origin, [x.modes[:2], *units, x.modes[2]]) for x in (shared, target)]
        return scaled.ScaleFactors(TiledCopy(), *fives, Mma(block).make_fragment_A(target))

    def partition(atom: Any, tiles: View, stages: View, rank: int = 0, ctas: int = 1) -> Any:
        return kernels.operands.partition_load(atom, share(tiles, rank, ctas), share(stages, rank, ctas))

    scaled.make_mma = lambda tile, ctas, major=None, form=scaled.MXFP8: Mma(OF_ONE_MMA[form.vector], ctas)
    scaled.layouts = layouts
    kernels.moe_gg1_nvfp4.MoeGg1Nvfp4.factors_of_rows = lambda self, scales: scales
    scaled.make_loads, scaled.make_factors, scaled.partition = make_loads, make_factors, partition
    scaled.blockscaled_layout = kernels.grouped.blockscaled_layout = SimpleNamespace(
        tile_atom_to_shape_SF=lambda shape, vector: Base(None, shape, (shape[1] // vector, 1, 0), 0, (1, vector, 1))  # type: ignore[arg-type]
    )


def _thread_by_thread(function: Callable[..., None]) -> Callable[..., None]:
    """Runs a function of (self, registers, ...) once for each thread, as branches of it depend on the thread."""

    def run(kernel: Any, total: View, *arguments: Any) -> None:
        group = MACHINE.current
        threads, lanes = group.thread, group.lanes
        group.lanes = 1
        for lane in range(lanes):
            group.thread = int(threads[lane])
            function(kernel, total.lane(lane), *arguments)
        group.thread, group.lanes = threads, lanes

    return run
