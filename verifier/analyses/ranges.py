"""Which numbers are never negative: what tells an index from the -1 that stands for "none yet".

Told from how a number is made: loads of fewer bits than it has, masks, shifts, special registers, counters that start
at zero or more and only grow. Such a counter is taken not to wrap: that would take some billion rounds.
"""

from __future__ import annotations

from verifier.analyses.flow import EventFlow
from verifier.isa.compute import signed
from verifier.model.events import Kind
from verifier.model.values import Symbol, Value

WORD = 32
_DEPTH = 24
_SMALL = 1 << 16  # what a counter may grow by in one round
_SREGS = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "cluster", "ncluster")
_EITHER = frozenset({"and", "max_s"})  # one part that is never negative is enough
_ALL = frozenset({"min_s", "min_u", "max_u", "or", "xor", "rem_s", "div_s", "selp"})


class Ranges:
    """Answers for one stream."""

    def __init__(self, flow: EventFlow) -> None:
        self._stream = flow.stream
        self._loads = {e.instr: e for e in flow.events if e.kind is Kind.LOAD and e.registers}

    def never_negative(self, value: Value) -> bool:
        """Whether a 32-bit number is at least zero on every path."""
        return self._value(value, frozenset(), 0)

    def _value(self, value: Value, assumed: frozenset[Symbol], depth: int) -> bool:
        lanes = (value.lanes,) if isinstance(value.lanes, int) else value.lanes
        if depth > _DEPTH or any(signed(lane, WORD) < 0 for lane in lanes):
            return False
        if not value.terms:
            return True
        if len(value.terms) > 1:
            return False  # a sum may wrap
        ((symbol, coef),) = value.terms
        steps = _SMALL if symbol.kind == "iter" else 1
        more = _SMALL if symbol.kind in ("iter", "phi", "sreg") else 0
        return 0 < coef <= steps and max(lanes) <= more and self._symbol(symbol, assumed, depth + 1)

    def _symbol(self, symbol: Symbol, assumed: frozenset[Symbol], depth: int) -> bool:
        if symbol.kind == "iter" or symbol in assumed:
            return True
        if symbol.kind == "sreg":
            return str(symbol.key[1]).startswith(_SREGS)
        if symbol.kind == "phi":
            return self._phi(symbol, assumed | {symbol}, depth)
        if symbol.kind == "def":
            return self._loaded(symbol)
        return self._computed(symbol, [part for part in symbol.key[2:] if isinstance(part, Value)], assumed, depth)

    def _computed(self, symbol: Symbol, parts: list[Value], assumed: frozenset[Symbol], depth: int) -> bool:
        kind = symbol.kind
        if kind in ("zext", "shr_u") and len(parts) > 1:
            bits = parts[1].constant
            return bits is not None and 0 < bits < WORD and (kind == "zext" or symbol.key[1] == WORD)
        if kind in _EITHER:
            return any(self._value(part, assumed, depth) for part in parts)
        if kind in _ALL:
            return all(self._value(part, assumed, depth) for part in parts[: 1 if kind == "rem_s" else 2])
        return False

    def _phi(self, symbol: Symbol, assumed: frozenset[Symbol], depth: int) -> bool:
        """Every way into the merge brings such a number, or the merge itself and more."""
        assert isinstance(symbol.key[1], int)
        evaluator = self._stream.evaluator
        phi = self._stream.ssa.values[symbol.key[1]]
        ways = [v for block, v in (phi.incoming or {}).items() if (block, phi.block) in evaluator.feasible]
        return bool(ways) and all(self._value(evaluator.value(way), assumed, depth) for way in ways)

    def _loaded(self, symbol: Symbol) -> bool:
        """A load that fills up with zeros."""
        assert isinstance(symbol.key[1], int)
        event = self._loads.get(self._stream.ssa.values[symbol.key[1]].instr)
        if event is None:
            return False
        narrow = event.width * 8 < WORD * len(event.registers)
        return narrow and not {"s8", "s16"}.intersection(event.opcode.split("."))


def is_far(number: int, bits: int, most: int) -> bool:
    """Whether a number is no index into an array of at most `most`: it stands for none."""
    return not 0 <= signed(number, bits) < most
