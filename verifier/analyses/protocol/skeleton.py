"""One round of a kernel's protocol, role by role: who signals which barrier, who waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from verifier.analyses.protocol.alu import OFFSET_MASK
from verifier.analyses.protocol.barrier import MBarrier
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.witness import location, role_of
from verifier.findings import Location
from verifier.model.events import Kind

WarpName = tuple[int, int]
_ROUND = 2  # the round that is shown where there are enough of them: the first ones fill the rings


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A wait or a signal of one role: on which barriers (stages of a ring), how often in the round, first on `phase`.

    `partners` are the roles that signal what is waited for, or wait for what is signalled.
    """

    waits: bool
    verb: str
    barriers: tuple[str, ...]
    phase: int
    times: int
    partners: tuple[str, ...]
    location: Location


class Lane(msgspec.Struct, frozen=True):
    """What one role does in a round, in the order of its code."""

    role: str
    warps: tuple[int, ...]
    round: int
    operations: tuple[Operation, ...]


class Skeleton(msgspec.Struct, frozen=True):
    lanes: tuple[Lane, ...]
    claim: str


class _Step(msgspec.Struct, frozen=True):
    time: int
    instr: int
    waits: bool
    barrier: MBarrier
    phase: int


def skeleton(protocol: Protocol) -> Skeleton | None:
    """One round of the base run in CTA 0; None when there is no run."""
    run = protocol.base
    if run is None:
        return None
    lanes = []
    for role in protocol.model.roles:
        warp = (0, role.warps[0])
        if warp in run.warps:
            number, steps = _round(run, warp)
            operations = tuple(_operations(run, steps))
            if operations:
                lanes.append(Lane(role.name, role.warps, number, operations))
    return Skeleton(tuple(lanes), protocol.claim)


def _round(run: Machine, warp: WarpName) -> tuple[int, list[_Step]]:
    """(number, steps) of the round of a warp's outermost loop that is shown; all steps when it has none."""
    steps = sorted(_steps(run, warp), key=lambda s: s.time)
    passes = [time for name, _, time in run.passes if name == warp]
    if len(passes) < 2:
        return 0, steps
    number = min(_ROUND, len(passes) - 2)
    return number, [s for s in steps if passes[number] <= s.time < passes[number + 1]]


def _steps(run: Machine, warp: WarpName) -> Iterator[_Step]:
    for wait in run.signals.waits:
        if wait.warp == warp:
            yield _Step(wait.time, wait.instr, True, wait.barrier, wait.meant)
    for barrier in run.signals.mbarriers.values():
        for number, phase in enumerate(barrier.phases):
            for arrival in phase.arrivals:
                if arrival.warp == warp:
                    yield _Step(arrival.time, arrival.instr, False, barrier, number)


def _operations(run: Machine, steps: list[_Step]) -> Iterator[Operation]:
    """Steps of one instruction together, at the place of the first."""
    groups: dict[int, list[_Step]] = {}
    for step in steps:
        groups.setdefault(step.instr, []).append(step)
    for instr, group in groups.items():
        first = group[0]
        barriers = {s.barrier.address & OFFSET_MASK: s.barrier for s in group}
        yield Operation(
            waits=first.waits,
            verb=_verb(run, instr),
            barriers=tuple(barriers[a].label.partition(" of CTA")[0] for a in sorted(barriers)),
            phase=first.phase,
            times=len(group),
            partners=tuple(sorted(_partners(run, first))),
            location=location(run, instr),
        )


_VERBS = {
    Kind.BARRIER_WAIT: "wait",
    Kind.BARRIER_ARRIVE: "arrive",
    Kind.TMEM_COMMIT: "commit",
    Kind.BULK_LOAD: "copy",
    Kind.BULK_PEER: "copy",
    Kind.ASYNC_STORE: "st.async",
    Kind.ASYNC_REDUCE: "red.async",
    Kind.CLC_CANCEL: "try_cancel",
}


def _verb(run: Machine, instr: int) -> str:
    return _VERBS.get(run.code.events[instr].kind, "signal")


def _partners(run: Machine, step: _Step) -> set[str]:
    if step.waits:
        if step.phase < 0:
            return set()
        return {role_of(run, a.warp) for a in step.barrier.phases[step.phase].arrivals}
    component = step.barrier.component
    return {role_of(run, w.warp) for w in run.signals.waits if w.barrier.component == component}
