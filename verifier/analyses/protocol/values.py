"""Values of registers on the abstract machine: a number, one number a lane, or unknown with the reason why.

Only the lanes that are active where a value is computed mean anything; a plain int says that all active lanes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

from verifier.isa.compute import mask

WARP = 32
ALL_LANES = tuple(range(WARP))


class Unknown:
    """A value that the script does not determine. `why` says where it came from."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"Unknown({self.why})"


class Parts(Unknown):
    """Two halves packed into one register, of which at least one is unknown."""

    __slots__ = ("half", "high", "low")

    def __init__(self, low: LaneValue, high: LaneValue, half: int) -> None:
        super().__init__("a register pair with an unknown half")
        self.low = low
        self.high = high
        self.half = half


Scalar = int | Unknown
LaneValue = int | Unknown | tuple[Scalar, ...]
Lanes = tuple[int, ...]
Operation = Callable[..., int]

UNDEFINED = Unknown("a register that was never written")


def spread(value: LaneValue) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,) * WARP


def pick(value: LaneValue, lane: int) -> Scalar:
    return value[lane] if isinstance(value, tuple) else value


def collapse(values: tuple[Scalar, ...], lanes: Lanes) -> LaneValue:
    """One value if all active lanes agree."""
    first = values[lanes[0]]
    if len(lanes) == WARP:
        return first if values.count(first) == WARP else values
    for lane in lanes:
        if values[lane] != first:
            return values
    return first


def merge(old: LaneValue, new: LaneValue, lanes: Lanes, everyone: Lanes) -> LaneValue:
    """`new` in `lanes`, `old` in the others; `everyone` is the union of interest."""
    if old is new or (isinstance(old, int) and old == new):
        return old
    if len(lanes) == WARP:
        return new
    values = list(spread(old))
    for lane in lanes:
        values[lane] = pick(new, lane)
    return collapse(tuple(values), everyone)


def apply(op: str, function: Operation, width: int, args: Sequence[LaneValue], lanes: Lanes) -> LaneValue:
    """One operation on values that are not all plain ints."""
    if not any(isinstance(a, tuple) for a in args):
        return _scalar(op, function, width, args)  # type: ignore[arg-type]
    if len(lanes) == 1:
        return _scalar(op, function, width, [pick(a, lanes[0]) for a in args])
    columns = [a if isinstance(a, tuple) else repeat(a, WARP) for a in args]
    try:
        values: tuple[Scalar, ...] = tuple(map(function, repeat(width, WARP), *columns))
    except (TypeError, AttributeError):  # some lane is unknown
        values = _lane_by_lane(op, function, width, args, lanes)
    return collapse(values, lanes)


def _lane_by_lane(
    op: str, function: Operation, width: int, args: Sequence[LaneValue], lanes: Lanes
) -> tuple[Scalar, ...]:
    columns = [spread(a) for a in args]
    values: list[Scalar] = [UNDEFINED] * WARP
    for lane in lanes:
        values[lane] = _scalar(op, function, width, [column[lane] for column in columns])
    return tuple(values)


class Memo:
    """Results of one instruction on whole warps: the same few operands come back tile after tile."""

    __slots__ = ("_function", "_known", "_op", "_width")
    _LIMIT = 256

    def __init__(self, op: str, function: Operation, width: int) -> None:
        self._op = op
        self._function = function
        self._width = width
        self._known: dict[tuple[LaneValue, ...], LaneValue] = {}

    def __call__(self, args: tuple[LaneValue, ...], lanes: Lanes) -> LaneValue:
        if len(lanes) != WARP:
            return apply(self._op, self._function, self._width, args, lanes)
        found = self._known.get(args)
        if found is None:
            found = apply(self._op, self._function, self._width, args, lanes)
            if len(self._known) < self._LIMIT:
                self._known[args] = found
        return found


def _scalar(op: str, function: Operation, width: int, args: Sequence[Scalar]) -> Scalar:
    unknown = None
    for a in args:
        if isinstance(a, Unknown):
            unknown = a
            break
    if unknown is None:
        return function(width, *args)
    rule = _PARTIAL.get(op)
    return unknown if rule is None else rule(width, args, unknown)


def _and(width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    return 0 if any(isinstance(a, int) and a & mask(width) == 0 for a in args) else unknown


def _or(width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    everything = mask(width)
    return everything if any(isinstance(a, int) and a & everything == everything for a in args) else unknown


def _mul(_width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    return 0 if any(isinstance(a, int) and a == 0 for a in args[:2]) else unknown


def _selp(_width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    chosen = args[2]
    if isinstance(chosen, int):
        return args[0] if chosen & 1 else args[1]
    return args[0] if args[0] == args[1] else unknown


def _same(_width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    return args[0]


def _pack(_width: int, args: Sequence[Scalar], _unknown: Unknown) -> Scalar:
    half = args[2]
    assert isinstance(half, int)
    return Parts(args[0], args[1], half)


def _field(width: int, args: Sequence[Scalar], unknown: Unknown) -> Scalar:
    whole, position = args
    if isinstance(whole, Parts) and whole.half == width and isinstance(position, int):
        part = whole.low if position == 0 else whole.high
        assert not isinstance(part, tuple)
        return part
    return unknown


# What stays known although an operand is not.
_PARTIAL: dict[str, Callable[[int, Sequence[Scalar], Unknown], Scalar]] = {
    "and": _and,
    "or": _or,
    "mul": _mul,
    "selp": _selp,
    "mov": _same,
    "zext": _same,
    "sext": _same,
    "pack": _pack,
    "field": _field,
}
