"""Bytes of tensor copies, which PTX does not state, from where copies go and what barriers expect.

A copy through one tensor map always moves the same box. Its destination stages bound the box from above: it ends at
the latest where the next destination begins. Each phase of a barrier gives an equation: bytes expected by those who
knew the phase to be under way = bytes of the copies issued by those who knew the same. A map whose address is not known
has a negative key: that two copies go through the same one is then a guess, good enough to solve equations with, not to
call a sum wrong.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.traffic import Boxes

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine

_GRAIN = 16  # a bulk copy moves a multiple of 16 bytes
_HALVINGS = 6  # a stage may be padded: its box is then smaller by a power of two


class Equation(msgspec.Struct, frozen=True):
    """One phase's sum: `expected` bytes, `sized` bytes of known copies, and how many copies through each map."""

    expected: int
    sized: int
    maps: tuple[tuple[int, int], ...]  # (tensor map, number of copies)

    def difference(self, boxes: Mapping[int, int]) -> int | None:
        """Delivered minus expected bytes; None while a box is not known."""
        total = self.sized - self.expected
        for key, count in self.maps:
            if key not in boxes:
                return None
            total += boxes[key] * count
        return total

    def most(self, known: Bytes) -> int | None:
        """The most bytes that the copies can deliver; None while a box has no bound."""
        total = self.sized
        for key, count in self.maps:
            box = known.bounds.get(key, known.boxes.loads.get(key))
            if box is None:
                return None
            total += box * count
        return total


class Sum(enum.Enum):
    """What one equation shows."""

    EVEN = "even"
    SHORT = "short"  # even boxes that fill their stages deliver too little
    OVER = "over"  # copies of stated sizes deliver too much
    OVER_IF_DENSE = "over if dense"  # tensor copies deliver too much if their boxes fill their stages
    OPEN = "open"


def judge(equation: Equation, known: Bytes) -> Sum:
    """Whether a phase's expected and delivered bytes are the same.

    Nothing delivered yet to an announced phase is the tail of a ring, not a mismatch.
    """
    difference = equation.difference(known.boxes.loads)
    if difference == 0 or (not equation.maps and not equation.sized):
        return Sum.EVEN
    if not equation.maps:
        return Sum.OVER if equation.sized > equation.expected else Sum.SHORT
    most = equation.most(known)
    if most is None or any(key < 0 for key, _ in equation.maps):
        return Sum.OPEN
    if most < equation.expected:
        return Sum.SHORT
    return Sum.OVER_IF_DENSE if all(key in known.tight for key, _ in equation.maps) else Sum.OPEN


class Balance(msgspec.Struct, frozen=True):
    """Equations of one barrier, and the instructions that expect its bytes."""

    barrier: int
    label: str
    equations: tuple[Equation, ...]
    expecting: tuple[int, ...]
    copying: tuple[int, ...]


class Bytes(msgspec.Struct, frozen=True):
    """What is known about the bytes of a kernel.

    `bounds` is the most that a box may have, `tight` the maps whose copies line up one behind the other.
    """

    boxes: Boxes
    bounds: dict[int, int]
    tight: frozenset[int]
    balances: tuple[Balance, ...]


def balance_bytes(run: Machine) -> Bytes:
    """Work the boxes out from a run that came to its end."""
    balances = tuple(_balances(run))
    bounds, tight = _bounds(run)
    equations = {e for b in balances for e in b.equations if e.maps}
    boxes = _solve(equations, bounds, tight)
    stores = _gaps((source, key) for (_, source), key in run.traffic.stores.items())
    stages: dict[int, int] = {}
    for copy in run.signals.deliveries:
        if copy.box is not None and copy.box[0] in boxes:
            stages[copy.box[1] & OFFSET_MASK] = boxes[copy.box[0]]
    return Bytes(Boxes(boxes, stores, stages), bounds, tight, balances)


def _balances(run: Machine) -> Iterable[Balance]:
    sums: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    maps: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    sites: dict[int, set[int]] = defaultdict(set)
    copying: dict[int, set[int]] = defaultdict(set)
    for expect in run.signals.expects:
        sums[expect.barrier][expect.phase][0] += expect.size
        sites[expect.barrier].add(expect.instr)
    for copy in run.signals.deliveries:
        copying[copy.barrier].add(copy.instr)
        if copy.box is None:
            sums[copy.barrier][copy.phase][1] += copy.size or 0
        else:
            counts = maps[copy.barrier, copy.phase]
            counts[copy.box[0]] = counts.get(copy.box[0], 0) + 1
    for address in sorted({*sums, *(barrier for barrier, _ in maps)}):
        phases = {*sums[address], *(phase for barrier, phase in maps if barrier == address)}
        yield Balance(
            address,
            run.label(address),
            tuple(dict.fromkeys(_equation(sums[address][p], maps[address, p]) for p in sorted(phases))),
            tuple(sorted(sites[address])),
            tuple(sorted(copying[address])),
        )


def _equation(total: list[int], counts: dict[int, int]) -> Equation:
    return Equation(total[0], total[1], tuple(sorted(counts.items())))


def _bounds(run: Machine) -> tuple[dict[int, int], frozenset[int]]:
    """(tensor map -> the most bytes of its box, maps bounded by their own next copy).

    A box ends at the latest where the next copy of the same phase begins, the first copy of another phase, or another
    copy through the same map. (Phases that share a stage may divide it differently.)
    """
    phases: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)  # -> destination -> map
    for copy in run.signals.deliveries:
        if copy.box is not None:
            key, to = copy.box
            phases[to >> RANK_SHIFT, copy.barrier, copy.phase][to] = key
    first: dict[int, set[int]] = defaultdict(set)  # CTA -> where phases begin
    same: dict[tuple[int, int], set[int]] = defaultdict(set)  # (CTA, map) -> destinations
    for (cta, _, _), placed in phases.items():
        first[cta].add(min(placed))
        for to, key in placed.items():
            same[cta, key].add(to)
    starts = {cta: sorted(places) for cta, places in first.items()}
    own = {where: sorted(places) for where, places in same.items()}
    bounds: dict[int, int] = {}
    lined: dict[int, int] = {}
    for (cta, _, _), placed in phases.items():
        within = sorted(placed)
        for to, key in placed.items():
            for places, into in (
                (within, bounds),
                (starts[cta], bounds),
                (own[cta, key], bounds),
                (own[cta, key], lined),
            ):
                following = _next(places, to)
                if following is not None:
                    into[key] = min(into.get(key, following - to), following - to)
    return bounds, frozenset(key for key, gap in lined.items() if gap == bounds[key] and key >= 0)


def _next(places: list[int], after: int) -> int | None:
    index = bisect_right(places, after)
    return places[index] if index < len(places) else None


def _gaps(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Tensor map -> the least gap from one of its sources to the next source of any map in that CTA."""
    starts: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for address, key in places:
        starts[address >> RANK_SHIFT][address & OFFSET_MASK].add(key)
    gaps: dict[int, int] = {}
    for in_cta in starts.values():
        for low, high in pairwise(sorted(in_cta)):
            for key in in_cta[low]:
                gaps[key] = min(gaps.get(key, high - low), high - low)
    return gaps


def _solve(equations: set[Equation], bounds: Mapping[int, int], tight: frozenset[int]) -> dict[int, int]:
    """Boxes that satisfy all equations: dense stages first, then padded ones, then what single unknowns give."""
    dense = {key: bound for key, bound in bounds.items() if key in tight}
    boxes: dict[int, int] = {}
    for equation in sorted(equations, key=lambda e: (len(e.maps), e.maps, e.expected)):
        if all(key in boxes for key, _ in equation.maps):
            continue
        found = _fit(equation, boxes, bounds) or _fit(equation, boxes, dense)
        if found is not None:
            boxes.update(found)
    return boxes if all(e.difference(boxes) in (0, None) for e in equations) else _single(equations)


def _fit(equation: Equation, boxes: Mapping[int, int], bounds: Mapping[int, int]) -> dict[int, int] | None:
    unknown = [key for key, _ in equation.maps if key not in boxes]
    unbounded = [key for key in unknown if key not in bounds]
    trial = {**{key: boxes[key] for key, _ in equation.maps if key in boxes}}
    trial.update({key: bounds[key] for key in unknown if key in bounds})
    if unbounded:
        return _remainder(equation, trial, unbounded)
    for _ in range(_HALVINGS):
        surplus = equation.difference(trial)
        if surplus == 0:
            return {key: trial[key] for key in unknown}
        if surplus is None or surplus < 0:
            return None
        key = _halve(equation, trial, unknown, surplus)
        if key is None:
            return None
        trial[key] //= 2
    return None


def _halve(equation: Equation, trial: Mapping[int, int], unknown: list[int], surplus: int) -> int | None:
    """The map whose box, when halved, takes most of the surplus away without going below."""
    counts = dict(equation.maps)
    fitting = [key for key in unknown if trial[key] // 2 * counts[key] <= surplus and trial[key] % (2 * _GRAIN) == 0]
    return max(fitting, key=lambda key: trial[key] * counts[key], default=None)


def _remainder(equation: Equation, trial: dict[int, int], unbounded: list[int]) -> dict[int, int] | None:
    """One map without a bound takes what the others leave."""
    if len(unbounded) != 1:
        return None
    counts = dict(equation.maps)
    rest = equation.expected - equation.sized - sum(trial[key] * counts[key] for key in trial)
    share, odd = divmod(rest, counts[unbounded[0]])
    if odd or share <= 0 or share % _GRAIN:
        return None
    return {**trial, unbounded[0]: share}


def _single(equations: set[Equation]) -> dict[int, int]:
    """Boxes of maps that stand alone in an equation."""
    boxes: dict[int, int] = {}
    for equation in equations:
        if len(equation.maps) == 1:
            key, count = equation.maps[0]
            share, odd = divmod(equation.expected - equation.sized, count)
            if not odd and share > 0 and share % _GRAIN == 0:
                boxes.setdefault(key, share)
    return boxes
