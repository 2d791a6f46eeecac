"""Memory and views of it, for running the kernels' own Python on the CPU: what the emulated DSL calls a tensor.

A `View` is a box of coordinates over a `Base`, as in CuTe: an origin, and modes that each step along one dimension of
the base. The origin may be an array with one entry for each thread of a group of warps, so that a group runs as one.
Every element counts how often it was read and written. Swizzles are left out: they permute bytes of shared memory in
the same way for whoever writes and whoever reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class EmulationError(Exception):
    """The kernel did something that the hardware would not do, or that nobody can want."""


class Lanes(np.ndarray[Any, Any]):
    """One value for each thread, or several."""

    def to(self, dtype: DType) -> Lanes:
        """The values rounded to another type."""
        return dtype(self).view(Lanes)  # type: ignore[no-any-return]


class Threads(Lanes):
    """Thread indices; a comparison asks for one elected thread, whose branch is then run once."""

    def __eq__(self, other: object) -> bool:
        return bool((np.asarray(self) == other).any())

    __hash__ = None  # type: ignore[assignment]


def to_bf16(values: Any) -> Any:
    """fp32 values rounded to the nearest bf16, ties to even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isnan(values), values, rounded.astype(np.uint32).view(np.float32)).astype(np.float32)


def to_e4m3(values: Any) -> Any:
    """fp32 values rounded to the nearest e4m3, ties to even, at most 448."""
    values = np.asarray(values, np.float32)
    _, exponent = np.frexp(values)
    step = np.ldexp(np.float32(1), np.maximum(exponent - 1, -6) - 3)
    return np.clip(np.round(values / step) * step, -448, 448).astype(np.float32)


@dataclass(frozen=True)
class DType:
    """An element type; calling it converts."""

    name: str
    width: int
    numpy: Any = np.float32
    rounding: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        if self.rounding is not None:
            return self.rounding(value)
        if isinstance(value, np.ndarray):
            return value.astype(self.numpy)
        return int(value) if issubclass(self.numpy, np.integer) else np.float32(value)


OWN_AXIS = -1  # of a stride that is a plain number: whichever dimension of its base such numbers step along


@dataclass(frozen=True)
class Basis:
    """A stride: `scale` along dimension `dim` of a base."""

    dim: int
    scale: int

    def __rmul__(self, factor: int) -> Basis:
        return Basis(self.dim, factor * self.scale)

    __mul__ = __rmul__


@dataclass(frozen=True)
class Mode:
    """One mode of a view."""

    extent: int
    step: Basis


Modes = list[Any]  # of Mode and of groups, which are Modes


def flatten(modes: Modes) -> list[Mode]:
    """The modes without their grouping."""
    return [mode for each in modes for mode in (flatten(each) if isinstance(each, list) else [each])]


def along(modes: Modes, axis: int) -> Modes:
    """The modes with plain numbers as steps along `axis`."""
    return [
        along(mode, axis)
        if isinstance(mode, list)
        else Mode(mode.extent, Basis(axis if mode.step.dim == OWN_AXIS else mode.step.dim, mode.step.scale))
        for mode in modes
    ]


def extent(modes: Modes) -> int:
    """Elements of all modes together."""
    return math.prod(mode.extent for mode in flatten(modes))


@dataclass(frozen=True)
class Layout:
    """Modes without a place."""

    modes: Modes


@dataclass
class Memory:
    """Elements in a row, and how often each has been read and written."""

    data: Any
    dtype: DType
    space: str
    number: int = -1  # of an allocation in shared memory
    reads: Any = field(init=False)
    writes: Any = field(init=False)

    def __post_init__(self) -> None:
        self.reads, self.writes = np.zeros(self.data.size, np.int64), np.zeros(self.data.size, np.int64)

    def count(self, counts: Any, places: Any) -> None:
        """One more of each place, where somebody looks at it."""
        if self.space in ("global", "tmem"):
            counts[places] += 1

    @classmethod
    def poisoned(cls, size: int, dtype: DType, space: str, number: int = -1) -> Memory:
        """Memory that nobody has written: NaN, or a number that no kernel means."""
        poison = np.nan if dtype.numpy is np.float32 else 77
        return cls(np.full(size, poison, dtype.numpy), dtype, space, number)

    def recast(self, dtype: DType) -> Memory:
        """The same bytes as another type."""
        return Memory(self.data.view(dtype.numpy), dtype, self.space, self.number)


@dataclass(frozen=True)
class Base:
    """A matrix in memory; `divide` neighbours along a dimension are one element."""

    memory: Memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    divide: tuple[int, ...] = ()
    axis: int = 0  # along which a plain number steps

    def locate(self, coordinates: Sequence[Any], clip: bool) -> tuple[Any, Any]:
        """Places in memory, and which of them are inside of the matrix; without `clip` they must be."""
        flat, inside = np.asarray(self.offset), np.asarray(True)
        for dim, at in enumerate(coordinates):
            if at.min() < 0 or at.max() >= self.shape[dim]:
                if not clip:
                    raise EmulationError(f"outside of a matrix of {self.shape}")
                inside = inside & (at >= 0) & (at < self.shape[dim])
            flat = flat + (at // self.divide[dim] if self.divide else at) * self.strides[dim]
        return flat, inside


@dataclass(frozen=True)
class Pointer:
    """A place in a base."""

    base: Base
    origin: tuple[Any, ...]

    def __add__(self, distance: int) -> Pointer:
        base = self.base
        if base.memory.space == "global":
            return Pointer(Base(base.memory, base.shape, base.strides, base.offset + distance), self.origin)
        moved = [at + distance * (dim == base.axis) for dim, at in enumerate(self.origin)]
        return Pointer(base, tuple(moved))


@dataclass(frozen=True)
class View:
    """A tensor."""

    base: Base
    origin: tuple[Any, ...]
    modes: Modes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(mode.extent for mode in flatten(self.modes))

    @property
    def stride(self) -> tuple[Any, ...]:
        if self.base.memory.space == "global":
            return self.base.strides
        return tuple(mode.step for mode in flatten(self.modes))

    @property
    def layout(self) -> Layout:
        if self.base.memory.space == "global":
            steps = zip(self.base.shape, self.base.strides, strict=True)
            return Layout([Mode(size, Basis(0, stride)) for size, stride in steps])
        return Layout(self.modes)

    @property
    def iterator(self) -> Pointer:
        return Pointer(self.base, self.origin)

    @property
    def element_type(self) -> DType:
        return self.base.memory.dtype

    def coordinates(self) -> list[Any]:
        """Index arrays that broadcast to (threads, extents...), one for each dimension of the base."""
        modes = flatten(self.modes)
        found = []
        for dim, start in enumerate(self.origin):
            at = np.asarray(start).reshape((-1,) + (1,) * len(modes))
            for axis, mode in enumerate(modes):
                if mode.step.dim == dim:
                    steps = np.arange(mode.extent) * mode.step.scale
                    at = at + steps.reshape((-1,) + (1,) * (len(modes) - 1 - axis))
            found.append(at)
        return found

    def read(self, clip: bool = False) -> Any:
        """Elements (threads, extents...); with `clip`, zeros outside of the matrix, as bulk tensor loads bring them."""
        flat, inside = self.base.locate(self.coordinates(), clip)
        memory = self.base.memory
        if inside.all():
            memory.count(memory.reads, flat)
            return memory.data[flat].view(Lanes)
        memory.count(memory.reads, flat[np.broadcast_to(inside, flat.shape)])
        return np.where(inside, memory.data[np.where(inside, flat, 0)], 0).view(Lanes)

    def write(self, values: Any, clip: bool = False) -> None:
        """Stores elements (threads, extents...); with `clip`, those inside of the matrix."""
        flat, inside = self.base.locate(self.coordinates(), clip)
        memory = self.base.memory
        rounding = memory.dtype.rounding if memory.space == "global" else None
        if rounding is not None and not np.array_equal(rounding(values), values, equal_nan=True):
            raise EmulationError(f"values that are not {memory.dtype.name} are stored as such")
        if not inside.all():
            inside = np.broadcast_to(inside, flat.shape)
            flat, values = flat[inside], np.broadcast_to(np.asarray(values), flat.shape)[inside]
        memory.data[flat] = values
        memory.count(memory.writes, flat)

    def load(self) -> Any:
        """All elements, to compute with."""
        return self.read()

    def store(self, values: Any) -> None:
        """Takes what `load` of a view of this shape gave."""
        self.write(np.asarray(values).reshape((-1, *self.shape), order="F"))

    def fill(self, value: float) -> None:
        """Sets all elements."""
        self.write(np.full((1, *self.shape), value))

    def __getitem__(self, index: Any) -> Any:
        view = self.at(index)
        if view.modes:
            return view
        values = view.read()
        return values if values.size > 1 or any(np.ndim(start) for start in view.origin) else values.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        view = self.at(index)
        view.write(np.asarray(value))

    def at(self, index: Any) -> View:
        """The part at some coordinates; None keeps a mode. One number goes through all modes, the first one fastest."""
        origin = list(self.origin)
        modes = self.modes
        if not isinstance(index, tuple):
            modes, index = flatten(modes), tuple(_unravel(index, self.shape))
        kept = _fix(modes, index, origin)
        return View(self.base, tuple(origin), kept)

    def through(self, base: Base) -> View:
        """The same coordinates of another matrix."""
        return View(base, self.origin, self.modes)

    def lane(self, lane: int) -> View:
        """What one thread sees of registers."""
        return View(self.base, (np.array([lane]), *self.origin[1:]), self.modes)


def _unravel(index: Any, shape: Sequence[int]) -> Iterator[Any]:
    for size in shape[:-1]:
        yield index % size
        index = index // size
    yield index


def _fix(modes: Modes, index: tuple[Any, ...], origin: list[Any]) -> Modes:
    """Adds fixed coordinates to the origin; the modes that are left."""
    if len(index) != len(modes):
        raise EmulationError(f"{len(index)} coordinates for {len(modes)} modes")
    kept: Modes = []
    for mode, at in zip(modes, index, strict=True):
        if at is None:
            kept.append(mode)
        elif isinstance(mode, list):
            kept += _fix(mode, at, origin)
        elif not (0 <= at < mode.extent if isinstance(at, int) else at.min() >= 0 and at.max() < mode.extent):
            raise EmulationError(f"coordinate {at} in a mode of {mode.extent}")
        else:
            origin[mode.step.dim] = origin[mode.step.dim] + at * mode.step.scale
    return kept


def whole(base: Base) -> View:
    """All of a matrix."""
    modes: Modes = [Mode(size, Basis(dim, 1)) for dim, size in enumerate(base.shape)]
    return View(base, (0,) * len(base.shape), modes)


def compact(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides where the first mode is the fastest."""
    return tuple(math.prod(shape[:dim]) for dim in range(len(shape)))


def matrix(values: Any, dtype: DType, order: str = "", divide: tuple[int, ...] = ()) -> View:
    """A matrix in global memory with these values, `order` naming its dimensions from the slowest to the fastest.

    `divide` says how many coordinates share one value.
    """
    values = np.asarray(values, dtype.numpy)
    dims = [int(dim) for dim in order] or list(range(values.ndim))
    strides = [0] * values.ndim
    for place, dim in enumerate(dims):
        strides[dim] = math.prod(values.shape[other] for other in dims[place + 1 :])
    memory = Memory(values.transpose(dims).ravel().copy(), dtype, "global")
    shape = tuple(size * (divide[dim] if divide else 1) for dim, size in enumerate(values.shape))
    return whole(Base(memory, shape, tuple(strides), 0, divide))


def linear(memory: Memory, layout: Layout) -> View:
    """A layout over memory in a row."""
    base = Base(memory, (memory.data.size,), (1,))
    return View(base, (0,), along(layout.modes, 0))
