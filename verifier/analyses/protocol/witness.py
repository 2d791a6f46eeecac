"""Steps of a run as a reader sees them: who, what, where."""

from __future__ import annotations

from verifier.analyses.protocol.barrier import Arrival
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.signals import WaitRecord
from verifier.findings import Location, WitnessStep

WarpName = tuple[int, int]  # CTA rank, warp


def role_of(run: Machine, warp: WarpName) -> str:
    """Name of the role that a warp plays."""
    model = run.code.model
    fallback = "all"
    for role in model.roles:
        for stream in role.streams:
            if warp in stream.members:
                return role.name
            if any(index == warp[1] for _, index in stream.members):
                fallback = role.name
    return fallback


def warp_text(run: Machine, warp: WarpName) -> str:
    cta = f" of CTA {warp[0]}" if run.start.ranks > 1 else ""
    return f"warp {warp[1]}{cta}"


def location(run: Machine, instr: int) -> Location:
    return run.code.model.function.instrs[instr].location


def step(run: Machine, warp: WarpName, instr: int, fact: str) -> WitnessStep:
    return WitnessStep(role=role_of(run, warp), fact=fact, location=location(run, instr))


def role_at(run: Machine, instr: int) -> str:
    """Name of the first role that executes an instruction."""
    model = run.code.model
    return next((model.role_of(s) for s in model.streams if instr in s.instructions), "all")


def step_at(run: Machine, instr: int, fact: str) -> WitnessStep:
    return WitnessStep(role=role_at(run, instr), fact=fact, location=location(run, instr))


def columns(low: int, high: int) -> str:
    return f"[{low}, {high})"


def late_warps(run: Machine, wait: WaitRecord, phase: int) -> list[tuple[str, Arrival]]:
    """Arrivals in a phase that nothing orders before a wait, as (warps, one of them) by role."""
    if not 0 <= phase < len(wait.barrier.phases):
        return []
    groups: dict[tuple[str, int], list[Arrival]] = {}
    for arrival in wait.barrier.phases[phase].arrivals:
        if arrival.count and arrival.warp != wait.warp:
            groups.setdefault((role_of(run, arrival.warp), arrival.instr), []).append(arrival)
    return [(_warps(arrivals), arrivals[0]) for arrivals in groups.values()]


def _warps(arrivals: list[Arrival]) -> str:
    numbers = sorted({arrival.warp[1] for arrival in arrivals})
    return f"warp {numbers[0]}" if len(numbers) == 1 else f"one of warps {', '.join(str(n) for n in numbers)}"
