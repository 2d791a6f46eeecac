"""Why a run got stuck: what each thread waits for, and whether the numbers of a barrier are to blame."""

from __future__ import annotations

import enum

import msgspec

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.barrier import MBarrier
from verifier.analyses.protocol.control import Endless
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.signals import Blocked
from verifier.model.events import Kind

_ARRIVES = (Kind.BARRIER_ARRIVE, Kind.TMEM_COMMIT, Kind.COPY_ARRIVE)


class Blame(enum.Enum):
    """What keeps a barrier from completing its phase."""

    ARRIVALS = "arrivals"  # everybody who can arrive has, and the count is not reached
    BYTES = "bytes"  # all arrivals are in, but expected and delivered bytes differ
    NOBODY = "nobody"  # no code signals it
    OTHERS = "others"  # those who should signal are stuck themselves
    LOOP = "loop"  # the warp waits for nothing: it is in an endless loop


class Stuck(msgspec.Struct, frozen=True):
    """One blocked warp."""

    warp: tuple[int, int]
    instr: int
    label: str
    state: str
    barrier: MBarrier | None
    parity: int | None
    blame: Blame


def stuck_warps(run: Machine) -> list[Stuck]:
    """The blocked warps of a run, one for each place that warps of one CTA are blocked at, culprits first."""
    found: dict[tuple[int, int], Stuck] = {}
    for fiber in run.stuck:
        waits = fiber.waits
        assert isinstance(waits, (Blocked, Endless))
        key = (fiber.warp.cta, waits.instr)
        if key not in found:
            found[key] = _stuck(run, fiber.warp.name, waits)
    return sorted(found.values(), key=lambda s: (s.blame is Blame.OTHERS, s.warp, s.instr))


def _stuck(run: Machine, warp: tuple[int, int], blocked: Blocked | Endless) -> Stuck:
    if isinstance(blocked, Endless):
        return Stuck(warp, blocked.instr, "an endless loop", "no way leads out of it", None, None, Blame.LOOP)
    barrier = blocked.barrier
    if not isinstance(barrier, MBarrier):
        generation = barrier.generation
        wanted = generation.expected if generation.expected is not None else run.threads(barrier)
        state = f"{generation.arrived} of {wanted} threads have arrived"
        return Stuck(warp, blocked.instr, barrier.label, state, None, None, Blame.OTHERS)
    phase = barrier.phases[-1]
    state = f"phase {barrier.current}: {barrier.count - phase.pending} of {barrier.count} arrivals"
    if phase.expected or phase.delivered:
        state += f", {phase.delivered} of {phase.expected} bytes"
    return Stuck(warp, blocked.instr, barrier.label, state, barrier, blocked.parity, _blame(run, barrier))


def _blame(run: Machine, barrier: MBarrier) -> Blame:
    phase = barrier.phases[-1]
    if phase.pending <= 0:
        return Blame.BYTES if barrier.carry else Blame.OTHERS
    arrived = {a.warp for a in phase.arrivals if a.count}
    able = able_to_signal(run, barrier)
    if not arrived:
        if phase.guessed or (phase.delivered and phase.delivered >= phase.expected):
            return Blame.ARRIVALS
        return Blame.NOBODY if able is not None and not able else Blame.OTHERS
    return Blame.ARRIVALS if able is not None and able <= arrived else Blame.OTHERS


def able_to_signal(run: Machine, barrier: MBarrier) -> set[tuple[int, int]] | None:
    """Warps (CTA rank, warp) whose code can arrive at the barrier; None when that cannot be told."""
    model = run.code.model
    rank, offset = barrier.address >> RANK_SHIFT, barrier.address & OFFSET_MASK
    if any(event.kind in _ARRIVES for _, event in model.barriers.unresolved):
        return None
    able: set[tuple[int, int]] = set()
    for array in model.barriers.arrays:
        placed = run.start.objects.get(str(array.base.key[-1]))
        if placed is None or not array.covers(offset - placed[0]):
            continue
        for use in model.barriers.on(array, _ARRIVES):
            anywhere = use.remote or use.event.kind is Kind.TMEM_COMMIT
            ranks = run.ctas if anywhere or not use.stream.knows_rank else [r for r in use.stream.ranks if r == rank]
            able.update((r, warp) for r in ranks for warp in use.stream.warps)
    return able
