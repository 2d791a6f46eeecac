"""How control leaves a block: straight on, by lanes, or both ways where a script cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from verifier.analyses.protocol.fiber import Fiber, Frame, Path
from verifier.analyses.protocol.values import Lanes, LaneValue, Unknown, merge, pick
from verifier.model.cfg import Cfg

Leave = Callable[[Fiber], int]
FORKED = -2  # the fiber's lanes go on as its children


class Undecided(Exception):
    """The script does not determine something that synchronization depends on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Misused(Undecided):
    """Something is done to a barrier that is none: whatever follows, the inputs are known and this is what they do."""


class Endless(msgspec.Struct, frozen=True):
    """A fiber is in a loop, at `instr`, that no way leads out of and in which nothing happens."""

    instr: int
    parity: None = None


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A guarded branch at the end of `block`. `join` is where both ways meet again, None when they do not."""

    block: int
    predicate: int
    negated: bool
    taken: int
    other: int
    join: int | None
    line: int | None


class Regions:
    """What lies between a branch and its join, computed when first asked for."""

    def __init__(self, cfg: Cfg, hard: frozenset[int]) -> None:
        self._cfg = cfg
        self._hard = hard
        self._reach: dict[tuple[int, int], frozenset[int]] = {}

    def reach(self, start: int, join: int) -> frozenset[int]:
        """Blocks that can be reached from `start` without passing `join`."""
        key = (start, join)
        found = self._reach.get(key)
        if found is None:
            seen: set[int] = set()
            stack = [start]
            while stack:
                block = stack.pop()
                if block != join and block not in seen:
                    seen.add(block)
                    stack += [e.dst for e in self._cfg.successors[block]]
            found = self._reach[key] = frozenset(seen)
        return found

    def is_soft(self, branch: Branch) -> bool:
        """Whether no synchronization hangs on the branch."""
        if branch.join is None:
            return False
        inside = self.reach(branch.taken, branch.join) | self.reach(branch.other, branch.join)
        return not inside & (self._hard - {branch.block})

    def returns(self, branch: Branch, side: int) -> bool:
        assert branch.join is not None
        return branch.block in self.reach(side, branch.join)


def go(target: int) -> Leave:
    return lambda fiber: target


def stop(reason: str) -> Leave:
    def leave(_fiber: Fiber) -> int:
        raise Undecided(reason)

    return leave


def branch(how: Branch, joins: Mapping[int, tuple[int, ...]], regions: Regions) -> Leave:
    """The closure of a guarded branch."""
    slot, negated, taken, other = how.predicate, how.negated, how.taken, how.other

    def leave(fiber: Fiber) -> int:
        predicate = fiber.regs[slot]
        if predicate.__class__ is int:
            return taken if (predicate & 1) != negated else other
        if isinstance(predicate, Unknown):
            return _both_ways(fiber, how, joins, regions, predicate)
        return _split(fiber, how, joins, predicate)

    return leave


@lru_cache(maxsize=4096)
def _sides(predicate: LaneValue, lanes: Lanes, negated: bool) -> tuple[Lanes, Lanes]:
    """(lanes in which the guard holds, lanes in which it does not)."""
    yes: list[int] = []
    no: list[int] = []
    for lane in lanes:
        bit = pick(predicate, lane)
        if not isinstance(bit, int):
            raise Undecided(f"a branch that is not known in some lanes: {bit.why}")
        (yes if (bit & 1) != negated else no).append(lane)
    return tuple(yes), tuple(no)


def _split(fiber: Fiber, how: Branch, joins: Mapping[int, tuple[int, ...]], predicate: LaneValue) -> int:
    """Send each lane its way."""
    yes, no = _sides(predicate, fiber.lanes, how.negated)
    if not no:
        return how.taken
    if not yes:
        return how.other
    if how.join is None:
        raise Undecided(f"lanes part at PTX line {how.line} and do not meet again")
    if how.join in (how.taken, how.other):
        waiting, going = (yes, no) if how.taken == how.join else (no, yes)
        fiber.stack.append(Frame(how.join, waiting, _values(fiber, joins[how.join])))
        fiber.lanes = going
        return how.other if how.taken == how.join else how.taken
    fiber.fork(how.join, ((yes, how.taken), (no, how.other)))
    return FORKED


def _values(fiber: Fiber, slots: tuple[int, ...]) -> dict[int, LaneValue]:
    regs = fiber.regs
    return {slot: regs[slot] for slot in slots}


def _both_ways(fiber: Fiber, how: Branch, joins: Mapping[int, tuple[int, ...]], regions: Regions, why: Unknown) -> int:
    """Run one way, then the other: what may happen counts, and what differs afterwards is unknown."""
    if not regions.is_soft(how):
        raise Undecided(f"the branch at PTX line {how.line}: {why.why}")
    assert how.join is not None
    first, second = how.taken, how.other
    if regions.returns(how, first) or regions.returns(how, second):
        if regions.returns(how, second):
            first, second = second, first
        if any(frame.branch == how.block for frame in fiber.stack):
            return second
    frame = Frame(how.join, fiber.lanes, _values(fiber, joins[how.join]))
    frame.retry = second
    frame.regs = fiber.regs.copy()
    frame.groups = fiber.warp.open_groups()
    frame.branch = how.block
    frame.outer = fiber.path
    fiber.stack.append(frame)
    fiber.machine.decisions += 1
    _follow(fiber, (*fiber.path, (fiber.machine.decisions, how.block, first)))
    return first


def _follow(fiber: Fiber, path: Path) -> None:
    fiber.path = fiber.warp.path = path


def _either(one: tuple[list[int], ...], other: tuple[list[int], ...]) -> tuple[list[int], ...]:
    """Groups that are pending whichever way was taken, counted from the latest: no more of them, none done earlier."""
    both = []
    for a, b in zip(one, other, strict=True):
        count = min(len(a), len(b))
        both.append([max(x, y) for x, y in zip(a[len(a) - count :], b[len(b) - count :], strict=True)])
    return tuple(both)


def meet(fiber: Fiber, slots: tuple[int, ...]) -> int:
    """The running lanes have come to the join of the innermost frame; gives the block that comes next."""
    frame = fiber.stack[-1]
    regs = fiber.regs
    if frame.retry is not None:
        frame.values = _values(fiber, slots)
        fiber.regs = frame.regs
        fiber.lanes = frame.lanes
        following, frame.retry = frame.retry, None
        pending = fiber.warp.open_groups()
        fiber.warp.set_groups(frame.groups)
        frame.groups = pending
        number, block, _ = fiber.path[-1]
        _follow(fiber, (*frame.outer, (number, block, following)))
        return following
    fiber.stack.pop()
    if frame.branch is not None:
        _follow(fiber, frame.outer)
        fiber.warp.set_groups(_either(frame.groups, fiber.warp.open_groups()))
        for slot in slots:
            if frame.values[slot] is not regs[slot] and frame.values[slot] != regs[slot]:
                regs[slot] = Unknown("a value that an undecided branch sets")
        return frame.join
    everyone = _union(fiber.lanes, frame.lanes)
    for slot, value in frame.values.items():
        if regs[slot] is not value:
            regs[slot] = merge(value, regs[slot], fiber.lanes, everyone)
    fiber.lanes = everyone
    return frame.join


@lru_cache(maxsize=4096)
def _union(a: Lanes, b: Lanes) -> Lanes:
    return tuple(sorted({*a, *b}))


def reunite(fiber: Fiber, slots: tuple[int, ...]) -> None:
    """All children of a fiber are back at its join: take their registers over."""
    arrived: list[tuple[Lanes, list[LaneValue]]] = fiber.arrived
    everyone = tuple(sorted(lane for lanes, _ in arrived for lane in lanes))
    first_lanes, regs = arrived[0]
    present = first_lanes
    for lanes, theirs in arrived[1:]:
        present = _union(present, lanes)
        for slot in slots:
            if regs[slot] is not theirs[slot]:
                regs[slot] = merge(regs[slot], theirs[slot], lanes, present)
    fiber.regs = regs
    fiber.lanes = everyone
    fiber.arrived = []
