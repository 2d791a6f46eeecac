"""Reading an event's operands from a fiber."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from verifier.analyses.protocol.control import Undecided
from verifier.analyses.protocol.fiber import Fiber
from verifier.analyses.protocol.layout import Layout
from verifier.analyses.protocol.values import LaneValue, Unknown, pick
from verifier.model.program import AddressExpr, Arg


class Place(msgspec.Struct, frozen=True):
    """Slot and byte offset of an address operand."""

    slot: int
    offset: int
    what: str

    def value(self, fiber: Fiber) -> LaneValue:
        """The address, per lane where lanes differ."""
        base = fiber.regs[self.slot]
        if isinstance(base, int):
            return base + self.offset
        if isinstance(base, tuple) and self.offset:
            return _shifted(base, self.offset)
        return base

    def one(self, fiber: Fiber) -> int:
        """The address all active lanes agree on."""
        value = fiber.regs[self.slot]
        if isinstance(value, tuple):
            value = _agree(value, fiber, self.what)
        if isinstance(value, int):
            return value + self.offset
        assert isinstance(value, Unknown)
        raise Undecided(f"{self.what}: {value.why}")

    def by_address(self, fiber: Fiber) -> list[tuple[int, int]]:
        """(address, number of active lanes that name it)."""
        value = fiber.regs[self.slot]
        if isinstance(value, int):
            return [(value + self.offset, len(fiber.lanes))]
        counts: dict[int, int] = {}
        for lane in fiber.lanes:
            address = pick(value, lane)
            if not isinstance(address, int):
                raise Undecided(f"{self.what}: {address.why}")
            counts[address + self.offset] = counts.get(address + self.offset, 0) + 1
        return list(counts.items())


@lru_cache(maxsize=4096)
def _shifted(base: tuple[int | Unknown, ...], offset: int) -> tuple[int | Unknown, ...]:
    return tuple(x + offset if isinstance(x, int) else x for x in base)


def _agree(value: tuple[object, ...], fiber: Fiber, what: str) -> int | Unknown:
    found = {value[lane] for lane in fiber.lanes}
    if len(found) != 1:
        raise Undecided(f"{what} differs between lanes")
    single = found.pop()
    assert isinstance(single, (int, Unknown))
    return single


class Scalar(msgspec.Struct, frozen=True):
    """Slot of a scalar operand."""

    slot: int
    what: str

    def one(self, fiber: Fiber) -> int:
        value: LaneValue = fiber.regs[self.slot]
        if isinstance(value, tuple):
            value = _agree(value, fiber, self.what)
        if isinstance(value, int):
            return value
        assert isinstance(value, Unknown)
        raise Undecided(f"{self.what}: {value.why}")


def place(layout: Layout, expr: AddressExpr | None, what: str) -> Place | None:
    if expr is None:
        return None
    if len(expr.terms) == 1:
        return Place(layout.slot(expr.terms[0]), expr.offset, what)
    return None


def scalar(layout: Layout, arg: Arg | None, what: str) -> Scalar | None:
    return None if arg is None else Scalar(layout.slot(arg), what)
