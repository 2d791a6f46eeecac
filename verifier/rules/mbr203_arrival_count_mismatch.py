"""The arrivals of a phase do not add up to the barrier's count.

What
    In every phase of an mbarrier exactly as many arrivals come in as its init count says, and each lands in the phase
    that its thread means.

Why
    One arrival too few and everybody who waits hangs; one too many and it falls into the next phase, which then
    completes early and lets a consumer through before its data is there. A count that was right for one CTA is wrong
    for a pair; an arrive that one lane should execute counts 32 when the warp does.

ISA
    PTX ISA 9.4, 9.7.15.16.3 and 9.7.15.16.9 "Arrive-on operation": the pending count of a phase must not go below zero;
    9.7.15.16.5.1: an arrive-on of a phase follows the completion of the phase before it.

Bad
    ```ptx
    warp 0:
    mbarrier.arrive.shared::cta.b64 _, [bar];     // MBR203
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    ```

Good
    ```ptx
    warp 0:
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    ```

Limits
    Arrivals are counted in runs of all warps of a cluster under invented inputs, which the verdict names. When a run
    gets stuck, the count is blamed only if everybody who can arrive has done so; other causes are CTL703's.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.alu import OFFSET_MASK
from verifier.analyses.protocol.barrier import MBarrier
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.hang import Blame, Stuck, stuck_warps
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.signals import Early, Excess
from verifier.analyses.protocol.witness import location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, not_run, open_question, protocol_of
from verifier.rules.registry import rule

_FIX = "make the init count equal to the number of arrivals in one phase (threads, not warps, arrive)"


@rule(code="MBR203", name="arrival-count-mismatch", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    init = first(kernel, Kind.BARRIER_INIT)
    if init is None:
        return
    protocol = protocol_of(kernel)
    blamed: set[int] = set()
    for judgement, offset in _violations(protocol):
        if offset not in blamed:
            blamed.add(offset)
            yield judgement
    if protocol.base is None and not blamed:
        yield open_question("all", init.location, protocol.doubt, init.opcode)
    elif protocol.base is not None:
        yield from _proofs(protocol, protocol.base, blamed)
        yield from not_run(protocol, Kind.BARRIER_ARRIVE, Kind.TMEM_COMMIT)


def _violations(protocol: Protocol) -> Iterator[tuple[Judgement, int]]:
    """(violation, offset of the barrier in shared memory)."""
    for run, excess in protocol.excess:
        yield _excess(run, excess), excess.barrier.address & OFFSET_MASK
    # Where a waiter has not seen the phase before, its own signals come too soon: that is MBR202's to say.
    faulty = {f.wait.barrier.component for _, f in protocol.wait_faults if f.wait.meant == f.wait.known - 1}
    for run, early in _first_of_each_barrier(protocol):
        if early.address >= 0 and early.component not in faulty:
            yield _early(run, early), early.address & OFFSET_MASK
    if protocol.hang is not None and not protocol.guessed_cluster:
        for stuck in stuck_warps(protocol.hang):
            if stuck.blame in (Blame.ARRIVALS, Blame.NOBODY) and stuck.barrier is not None:
                yield _short(protocol.hang, stuck, stuck.barrier), stuck.barrier.address & OFFSET_MASK


def _first_of_each_barrier(protocol: Protocol) -> list[tuple[Machine, Early]]:
    """Once a signal has landed in a wrong phase, those that follow do too: only the first says something."""
    first: dict[tuple[int, int], tuple[Machine, Early]] = {}
    for run, early in protocol.early:
        key = (id(run), early.component)
        if key not in first or early.time < first[key][1].time:
            first[key] = (run, early)
    return list(first.values())


def _excess(run: Machine, excess: Excess) -> Judgement:
    role, barrier = role_of(run, excess.warp), excess.barrier
    phase = barrier.phases[excess.phase]
    steps = (
        step(run, excess.warp, barrier.init, f"{barrier.label} is initialised for {barrier.count} arrivals a phase"),
        step(
            run,
            excess.warp,
            excess.instr,
            f"{warp_text(run, excess.warp)} arrives in phase {excess.phase}, which gets "
            f"{sum(a.count for a in phase.arrivals)} arrivals: {-phase.pending} too many",
        ),
    )
    message = f"{role} arrives more often at {barrier.label} than its count of {barrier.count} allows"
    return broken(role, location(run, excess.instr), message, steps, _FIX, "excess")


def _early(run: Machine, early: Early) -> Judgement:
    role = role_of(run, early.warp)
    fact = f"{warp_text(run, early.warp)} signals in phase {early.phase}, but knows only {early.known} phases complete"
    message = f"a signal of {role} at {early.label} may land in another phase than it means"
    steps = (step(run, early.warp, early.instr, fact),)
    return broken(role, location(run, early.instr), message, steps, _FIX, "early")


def _short(run: Machine, stuck: Stuck, barrier: MBarrier) -> Judgement:
    role = role_of(run, stuck.warp)
    phase = barrier.phases[-1]
    arrived = sorted({(a.warp, a.instr) for a in phase.arrivals if a.count})
    fact = f"{barrier.label} is initialised for {barrier.count} arrivals a phase"
    steps = [step(run, stuck.warp, barrier.init, fact)]
    steps += [step(run, warp, instr, f"{warp_text(run, warp)} arrives") for warp, instr in arrived[:4]]
    steps.append(step(run, stuck.warp, stuck.instr, f"{warp_text(run, stuck.warp)} waits for ever: {stuck.state}"))
    message = f"{barrier.label} gets {barrier.count - phase.pending} of {barrier.count} arrivals: {role} waits for ever"
    return broken(role, location(run, barrier.init), message, tuple(steps), _FIX, "short")


def _proofs(protocol: Protocol, run: Machine, blamed: set[int]) -> Iterator[Judgement]:
    for address, barrier in sorted(run.signals.mbarriers.items()):
        arrivals = [a for phase in barrier.phases for a in phase.arrivals]
        offset = address & OFFSET_MASK
        if arrivals and offset not in blamed:
            blamed.add(offset)
            reason = f"{barrier.count} arrivals in each phase of {barrier.label}"
            role = role_of(run, arrivals[0].warp)
            yield holds(protocol, role, location(run, barrier.init), reason, f"init {barrier.count}")
