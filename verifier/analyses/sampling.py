"""Addresses as numbers: shared objects laid out, loop counters given the values they take, lanes spread.

Swizzled addresses are not affine (`base + (offset ^ row bits)`), but once the unknowns in them have numbers, they can
be computed like any other. A sample assigns numbers to the counters an address is made of; what such addresses show
about overlap holds for the values that counters take, which wrap soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from verifier.analyses.rewriting import Rewriter, TooDeep, atoms
from verifier.model.program import Function
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value, spread

Numbers = Mapping[Symbol, Value]
_COUNTERS = frozenset({"phi", "iter"})
_SHARED_ALIGN = 1024


def layout(function: Function) -> dict[str, int]:
    """An address for each shared object, in the order declared; an open one (`[]`, dynamic) comes last."""
    addresses: dict[str, int] = {}
    top = _SHARED_ALIGN
    objects = [o for o in function.objects if o.space.startswith("shared")]
    for item in sorted(objects, key=lambda o: o.size is None or o.size == 0):
        top = -(-top // max(item.align, 16)) * max(item.align, 16)
        addresses[item.name] = top
        top += item.size or 0
    return addresses


class Sampler:
    """Numbers for the addresses of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._objects = layout(stream.function)

    def objects(self) -> dict[Symbol, Value]:
        """Addresses of the shared objects."""
        table = self._stream.evaluator.table
        found: dict[Symbol, Value] = {}
        for item in self._stream.function.objects:
            if item.name in self._objects:
                symbol = table.get("sym", item.space, item.name, uniform=True, align=item.align)
                found[symbol] = Value(self._objects[item.name])
        return found

    def counters(self, values: Iterable[Value]) -> frozenset[Symbol]:
        """Loop counters that occur."""
        return frozenset(s for value in values for s in atoms(value) if s.kind in _COUNTERS)

    def numbers(self, value: Value, known: Numbers) -> tuple[int, ...] | None:
        """The value in each lane; None when something in it has no number."""
        try:
            result = Rewriter(self._stream.evaluator.table, known).value(value)
        except TooDeep:
            return None
        return None if result.terms else spread(result.lanes)
