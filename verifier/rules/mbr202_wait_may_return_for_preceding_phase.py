"""A parity wait can return for another phase than the one it waits for.

What
    When a wait with parity p returns, the phase it means is complete, in every schedule: the waiter has seen the phase
    before, and the phase after cannot complete before the wait has returned.

Why
    `try_wait.parity` compares one bit. A waiter that has not seen phase 0 and waits with parity 1 is let through as
    long as phase 0 is incomplete, as if for the phase before it; a waiter that falls two phases behind sees the right
    bit for the wrong phase, or blocks for ever. Either shows only when a warp is late.

ISA
    PTX ISA 9.4, 9.7.15.16.19 "mbarrier.test_wait, mbarrier.try_wait": a wait is valid for the current phase and the one
    immediately before it; 9.7.15.16.5.1: some wait must have returned for a phase before an arrive-on of the next one.

Bad
    ```ptx
    warp 0:
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    L0: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra L0;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar2];
    L2: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L2;   // MBR202
    ```

Good
    ```ptx
    warp 0:
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    L0: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra L0;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar2];
    L2: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 1; @!p bra L2;
    ```

Limits
    Phases are those of runs of all warps of a cluster under invented inputs, which the verdict names. A single attempt
    whose result is carried elsewhere is taken to fail; the wait that follows it is judged. Lanes of one warp count as
    one thread. Conditional phases (`.phase_type::conditional`) are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.determinacy import WaitFault
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.witness import late_warps, location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, WitnessStep
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, not_run, open_question, protocol_of
from verifier.rules.registry import rule

_FIX = "wait for the preceding phase before signalling or waiting for this one"


@rule(code="MBR202", name="wait-may-return-for-preceding-phase", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    wait = first(kernel, Kind.BARRIER_WAIT)
    if wait is None or first(kernel, Kind.BARRIER_INIT) is None:
        return
    protocol = protocol_of(kernel)
    if protocol.base is None:
        yield open_question("all", wait.location, protocol.doubt, wait.opcode)
        return
    faulty: dict[tuple[int, str], tuple[Machine, WaitFault]] = {}
    for run, fault in protocol.wait_faults:
        faulty.setdefault((fault.wait.instr, role_of(run, fault.wait.warp)), (run, fault))
    for (_, role), (run, fault) in sorted(faulty.items(), key=lambda item: item[0]):
        yield _violation(run, fault, role)
    yield from _proofs(protocol, protocol.base, set(faulty))
    yield from not_run(protocol, Kind.BARRIER_WAIT)


def _proofs(protocol: Protocol, run: Machine, faulty: set[tuple[int, str]]) -> Iterator[Judgement]:
    waits = sorted({(w.instr, w.warp) for r in (*protocol.runs, *protocol.corners) for w in r.signals.waits})
    seen: set[tuple[int, str]] = set(faulty)
    # Of the warps of a role, one that no run is sure about comes first.
    for instr, warp in sorted(waits, key=lambda wait: wait not in protocol.odd_waits):
        key = (instr, role_of(run, warp))
        if key in seen:
            continue
        seen.add(key)
        opcode = run.code.model.function.instrs[instr].opcode
        odd = protocol.odd_waits.get((instr, warp))
        if odd is not None:
            reason = f"with {odd.script.text}, it may return for another phase"
            yield open_question(key[1], location(run, instr), reason, opcode)
            continue
        yield holds(protocol, key[1], location(run, instr), "the wait means one phase", opcode)


def _violation(run: Machine, fault: WaitFault, role: str) -> Judgement:
    wait = fault.wait
    label = wait.barrier.label
    message = f"{role} waits for {label} with parity {wait.parity}, which may return for phase {wait.meant}: "
    if wait.meant == wait.known - 1:
        message += f"it has not seen phase {wait.known}"
    else:
        message += f"phase {fault.passer} can complete before the wait returns"
    opcode = run.code.model.function.instrs[wait.instr].opcode
    shape = f"{opcode}|parity {wait.parity}|meant {wait.meant}"
    return broken(role, location(run, wait.instr), message, _witness(run, fault), _FIX, shape)


def _witness(run: Machine, fault: WaitFault) -> tuple[WitnessStep, ...]:
    wait = fault.wait
    steps = []
    for early in run.signals.early.values():
        if early.component == wait.barrier.component and early.warp == wait.warp:
            fact = f"{warp_text(run, wait.warp)} signals again, knowing {early.known} phases complete: it may be phase "
            steps.append(step(run, early.warp, early.instr, fact + f"{early.known} still"))
    open_phase = fault.passer
    for warps, arrival in late_warps(run, wait, open_phase):
        fact = f"{warps} may be late: phase {open_phase} is not complete without it"
        steps.append(step(run, arrival.warp, arrival.instr, fact))
    count = wait.barrier.count
    fact = f"{warp_text(run, wait.warp)} waits with parity {wait.parity}: while phase {open_phase} "
    fact += f"(of {count} arrivals) is incomplete, phase {wait.meant} counts, and the wait returns"
    steps.append(step(run, wait.warp, wait.instr, fact))
    return tuple(steps)
