"""Steps of a run as a reader sees them: who, what, where."""

from __future__ import annotations

from verifier.analyses.protocol.machine import Machine
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


def columns(low: int, high: int) -> str:
    return f"[{low}, {high})"
