"""The part of the CuTe DSL that the Blackwell kernels use, as plain Python over NumPy arrays.

Layouts are those of CuTe, as far as the kernels look into them; `emulated_kernels` says what is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.kernels.emulated_machine import Barrier, Machine
from tests.kernels.emulated_memory import (
    OWN_AXIS,
    Base,
    Basis,
    DType,
    EmulationError,
    Layout,
    Memory,
    Mode,
    Modes,
    Pointer,
    View,
    along,
    compact,
    extent,
    flatten,
    linear,
    to_bf16,
    to_e4m3,
    whole,
)

INT32, INT64 = DType("Int32", 32, np.int32), DType("Int64", 64, np.int64)
INT16 = DType("Int16", 16, np.int16)
UINT8, BF16 = DType("Uint8", 8, np.uint8), DType("BFloat16", 16, np.float32, to_bf16)
FP32, TF32 = DType("Float32", 32), DType("TFloat32", 32)
E4M3, E8M0 = DType("Float8E4M3FN", 8, np.float32, to_e4m3), DType("Float8E8M0FNU", 8)
E2M1 = DType("Float4E2M1FN", 4)


class Opaque:
    """Something that only the compiler needs."""

    def __getattr__(self, name: str) -> Opaque:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Opaque:
        return self

    def __or__(self, _: Any) -> Opaque:
        return self

    __ror__ = __or__


OPAQUE = Opaque()


class Bars:
    """A pointer to mbarriers in a row, or to a word of shared memory."""

    def __init__(self, bars: list[Any], at: int = 0) -> None:
        self.bars, self.at = bars, at
        self.ptr = self

    def __add__(self, distance: int) -> Bars:
        return Bars(self.bars, self.at + distance)

    def data_ptr(self) -> Bars:
        return self

    @property
    def bar(self) -> Any:
        if not 0 <= self.at < len(self.bars):
            raise EmulationError("no such mbarrier")
        return self.bars[self.at]


class Struct:
    """`cute.struct`: lists the fields of a class."""

    class MemRange:
        def __class_getitem__(cls, item: tuple[DType, int]) -> tuple[DType, int]:
            return item

    def __call__(self, cls: type) -> list[tuple[str, int]]:
        fields = cls.__annotations__.items()
        return [(name, kind[1] if isinstance(kind, tuple) else 1) for name, kind in fields]


class Mma:
    """A tiled MMA of one CTA or of a pair; the first product of a tile does not accumulate."""

    def __init__(self, op: int, ctas: int = 1, rank: int = 0) -> None:
        self.op, self.ctas, self.rank, self.accumulate = (op, ctas), ctas, rank, True
        self.k = op  # elements of one instruction

    def set(self, _: Any, value: bool) -> None:
        self.accumulate = value

    def get_slice(self, rank: int) -> Mma:
        return Mma(self.k, self.ctas, rank)

    def partition_A(self, tiles: View) -> View:
        return share(tiles, self.rank, self.ctas)

    partition_B = partition_A

    def partition_shape_C(self, shape: tuple[int, int]) -> tuple[int, int]:
        return shape[0] // self.ctas, shape[1]

    def make_fragment_C(self, shape: tuple[int, int]) -> Any:
        lanes, columns = (Mode(size, Basis(dim, 1)) for dim, size in enumerate(shape))
        return SimpleNamespace(layout=Layout([[lanes, columns], unit_mode(), unit_mode()]))

    def make_fragment_A(self, stages: View) -> View:
        """(MMA, 1, K blocks, stages)"""
        rows, k, stage = stages.modes
        block = Mode(self.k, k.step)
        blocks = Mode(k.extent // self.k, k.step * self.k)
        return View(stages.base, stages.origin, [[rows, block], unit_mode(), blocks, stage])

    make_fragment_B = make_fragment_A


class TiledCopy:
    """Registers of a thread and one row of a box: thread t has row t."""

    def get_slice(self, _: Any) -> TiledCopy:
        return self

    def retile(self, values: View) -> View:
        return values

    def partition_S(self, view: View) -> View:
        """(columns, 1, 1, ...) of the current threads."""
        rows, columns, *rest = view.modes
        lane = np.asarray(MACHINE.current.thread) % rows.extent
        origin = list(view.origin)
        origin[rows.step.dim] = origin[rows.step.dim] + lane * rows.step.scale
        return View(view.base, tuple(origin), [columns, unit_mode(), unit_mode(), *rest])

    def partition_D(self, view: Any) -> Any:
        if isinstance(view, View):
            return self.partition_S(view)
        return SimpleNamespace(shape=(view[1], 1, 1, *view[2:]))  # of an identity tensor, of which only this is used


def unit_mode() -> Mode:
    return Mode(1, Basis(0, 0))


class Kernel:
    """`cute.kernel`: calling it gives something to launch."""

    def __init__(self, body: Callable[..., None]) -> None:
        self.body = body

    def set_name_prefix(self, *_: Any, **__: Any) -> None:
        return None

    def __get__(self, instance: Any, _: Any) -> Any:
        return self if instance is None else partial(self.call, instance)

    def call(self, *arguments: Any) -> Any:
        def launch(grid: Any, block: Any, cluster: Any = None, **_: Any) -> None:
            MACHINE.launch(lambda: self.body(*arguments), grid, block[0], cluster or (1, 1, 1))

        return SimpleNamespace(launch=launch)


class Allocator:
    """`SmemAllocator`; what it gives is the same for all warps of a CTA."""

    def allocate(self, fields: list[tuple[str, int]]) -> Any:
        return MACHINE.allocate(
            lambda _: SimpleNamespace(**{name: Bars([Barrier() for _ in range(count)]) for name, count in fields})
        )

    def allocate_tensor(self, dtype: DType, layout: Layout, *_: Any) -> View:
        last = sum((mode.extent - 1) * mode.step.scale for mode in flatten(layout.modes))
        memory = MACHINE.allocate(lambda number: Memory.poisoned(last + 1, dtype, "shared", number))
        return linear(memory, layout)


MACHINE = Machine()


def reset(seed: int) -> Machine:
    """Starts anew, with another interleaving."""
    MACHINE.__init__(seed)  # type: ignore[misc]
    return MACHINE


def make_layout(shape: Any, stride: Any = None) -> Layout:
    """Compact, first mode fastest, unless strides are given."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    if stride is None:
        stride = compact(shape)
    stride = stride if isinstance(stride, tuple) else (stride,)
    steps = [step if isinstance(step, Basis) else Basis(OWN_AXIS, step) for step in stride]
    return Layout([Mode(size, step) for size, step in zip(shape, steps, strict=True)])


def make_tensor(pointer: Pointer, layout: Any) -> View:
    """A layout at some place."""
    base = pointer.base
    if base.memory.space != "global":
        return View(base, pointer.origin, along(layout.modes, base.axis))
    if isinstance(layout, Base):  # scale factors, in the order of `tile_atom_to_shape_SF`
        return whole(Base(base.memory, layout.shape, layout.strides, base.offset, layout.divide))
    shape = tuple(mode.extent for mode in layout.modes)
    return whole(Base(base.memory, shape, tuple(mode.step.scale for mode in layout.modes), base.offset))


def append(layout: Layout, more: Layout) -> Layout:
    """Further modes, which step along the columns of TMEM."""
    return Layout([*layout.modes, *along(more.modes, 1)])


def make_rmem_tensor(shape: Any, dtype: DType) -> View:
    """Registers of each thread of the group."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    size, lanes = int(np.prod(shape)), MACHINE.current.lanes
    base = Base(MACHINE.registers(size, dtype), (lanes, size), (size, 1), axis=1)
    modes: Modes = [Mode(each, Basis(1, step)) for each, step in zip(shape, compact(shape), strict=True)]
    return View(base, (np.arange(lanes), 0), modes)


def recast_tensor(view: View, dtype: DType) -> View:
    """The same bits as another type of the same size."""
    base = view.base
    return view.through(Base(base.memory.recast(dtype), base.shape, base.strides, axis=base.axis))


def size(what: Any, mode: list[int] | None = None) -> int:
    """Elements, or those of one mode."""
    modes = what.modes
    if mode is not None:
        modes = modes[mode[0]]
    return extent(modes if isinstance(modes, list) else [modes])


def local_tile(view: View, shape: tuple[int, ...], place: tuple[Any, ...]) -> View:
    """(tile..., tiles..., other modes), at `place` of the tiles and other modes."""
    divided = flat_divide(view, shape)
    return divided.at((None,) * len(shape) + place)


def flat_divide(view: View, shape: tuple[int, ...]) -> View:
    """(tile..., tiles..., other modes)"""
    cut = view.modes[: len(shape)]
    tiles = [Mode(count, mode.step) for count, mode in zip(shape, cut, strict=True)]
    rest = [Mode(-(-mode.extent // count), mode.step * count) for count, mode in zip(shape, cut, strict=True)]
    return View(view.base, view.origin, [*tiles, *rest, *view.modes[len(shape) :]])


def group_modes(view: View, first: int, last: int) -> View:
    """Some modes as one."""
    modes = view.modes
    return View(view.base, view.origin, [*modes[:first], modes[first:last], *modes[last:]])


def share(view: View, rank: int, ranks: int) -> View:
    """The part of one rank, of the first mode."""
    first, *rest = view.modes
    part = Mode(first.extent // ranks, first.step)
    origin = list(view.origin)
    origin[first.step.dim] = origin[first.step.dim] + rank * part.extent * first.step.scale
    return View(view.base, tuple(origin), [part, *rest])
