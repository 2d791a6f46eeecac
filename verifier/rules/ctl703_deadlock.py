"""Threads wait for a signal that nobody can give.

What
    Every warp of a cluster comes to its end: each wait is for a phase that completes, each thread barrier gets all the
    threads it expects, and all that meet there expect the same number, no loop lacks a way out.

Why
    A circle of waits, a barrier whose phase nobody completes, a CTA that leaves before its peer has heard from it: the
    kernel hangs, and the host sees a timeout without a cause.

ISA
    PTX ISA 9.4, 9.7.15.16.8 "Phase completion": pending count and tx-count must both be zero; 9.7.15.1 "bar, barrier":
    those who meet give the same number. CUDA C++ Programming Guide, "Independent Thread Scheduling": where no number is
    given, threads that have ended are not waited for.

Bad
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;      // CTL703
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar2];
    warp 1:
    L2: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra L2;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    ```

Good
    ```ptx
    warp 0:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar2];
    warp 1:
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    L2: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra L2;
    ```

Limits
    One cluster is run, under invented inputs that the verdict names. A run that gets stuck although others end is a
    violation when the same inputs decide what all do who hold each other up, and unknown otherwise: the inputs may not
    fit together. One that gets stuck in a corner (a parameter is zero, the end of the grid) is named as an exception of
    the proof: whether the host allows such inputs is not in the code. A loop that synchronizes nothing and has a way
    out is taken to end. Waits for flags in global memory that other clusters write are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.hang import Blame, Stuck, stuck_warps
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.signals import Mixed
from verifier.analyses.protocol.witness import location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, open_question, protocol_of
from verifier.rules.registry import rule

_FIX = "find who should complete the first barrier of the list, and what keeps it from doing so"
_LEAVE = "give the loop a way out"


@rule(code="CTL703", name="deadlock", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    wait = first(kernel, Kind.BARRIER_WAIT, Kind.CTA_SYNC, Kind.CLUSTER_WAIT)
    if wait is None:
        return
    protocol = protocol_of(kernel)
    if protocol.hang is not None:
        yield _violation(protocol, protocol.hang)
    elif protocol.base is None:
        yield open_question("all", wait.location, protocol.doubt, "deadlock")
    elif protocol.mixed:
        yield from (_mixed(run, mixed) for run, mixed in protocol.mixed)
    elif protocol.may_hang:
        yield open_question("all", wait.location, protocol.may_hang, "deadlock")
    else:
        yield holds(protocol, "all", wait.location, "every thread comes to its end", "deadlock")


def _violation(protocol: Protocol, run: Machine) -> Judgement:
    stuck = stuck_warps(run)
    culprit = stuck[0]
    role = role_of(run, culprit.warp)
    if protocol.guessed_cluster:
        reason = f"no cluster shape tried lets the kernel come to its end: {role} waits for {culprit.label}"
        if protocol.base is not None:
            reason = f"the run with {run.script.text} hangs, in a cluster of inferred shape"
        return open_question(role, location(run, culprit.instr), reason, "deadlock")
    steps = tuple(step(run, s.warp, s.instr, _fact(run, s)) for s in stuck[:8])
    endless = culprit.blame is Blame.LOOP
    what = f"never leaves {culprit.label}" if endless else f"waits for ever for {culprit.label} ({culprit.state})"
    shape = f"{culprit.label}|{'|'.join(sorted({role_of(run, s.warp) for s in stuck}))}"
    fix = _LEAVE if endless else _FIX
    return broken(role, location(run, culprit.instr), f"{role} {what}, with {run.script.text}", steps, fix, shape)


def _fact(run: Machine, stuck: Stuck) -> str:
    if stuck.blame is Blame.LOOP:
        return f"{warp_text(run, stuck.warp)} is in {stuck.label}: {stuck.state}"
    parity = "" if stuck.parity is None else f" with parity {stuck.parity}"
    return f"{warp_text(run, stuck.warp)} waits for {stuck.label}{parity}: {stuck.state}"


def _mixed(run: Machine, mixed: Mixed) -> Judgement:
    (first_warp, _, most), (warp, instr, threads) = mixed.first, mixed.second
    steps = tuple(
        step(run, who, at, f"{warp_text(run, who)} comes to {mixed.label}, for {number} threads")
        for who, at, number in (mixed.first, mixed.second)
    )
    roles = f"{role_of(run, first_warp)} and {role_of(run, warp)}"
    message = f"{roles} meet at {mixed.label}, one for {most} threads and one for {threads}"
    fix = "give every bar.sync and bar.arrive of one use of the barrier the same number of threads"
    return broken(role_of(run, warp), location(run, instr), message, steps, fix, f"{mixed.label}|{roles}")
