"""Tensor memory columns are read after the signal that gave them away.

What
    When a warp signals that a TMEM stage may be overwritten, every column that the next writer touches has been read:
    no `tcgen05.ld` of such a column comes between the signal and the next wait for new data.

Why
    With overlapping accumulator stages an epilogue gives its stage back early, once it has read the columns that the
    next stage shares. If it still has one of them to read, the MMA warp overwrites it: the epilogue stores a mixture of
    two tiles. Nothing faults, and the race is rarely won in a test.

ISA
    PTX ISA 9.4, 9.7.18.6 "tcgen05 memory consistency": tcgen05.ld and tcgen05.mma of different threads are ordered only
    through a signal that follows the load; 9.7.18.4.2 "Instruction descriptor" for the columns of an MMA.

Bad
    ```ptx
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {...}, [t];       // columns 0-15
    tcgen05.wait::ld.sync.aligned;
    mbarrier.arrive.shared::cta.b64 _, [empty];              // TCG103: the MMA may now write columns 0-31
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {...}, [t+16];    // columns 16-31
    ```

Good
    ```ptx
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {...}, [t];
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {...}, [t+16];
    tcgen05.wait::ld.sync.aligned;
    mbarrier.arrive.shared::cta.b64 _, [empty];
    ```

Limits
    Columns, lanes and phases are those of a run of all warps of a cluster under invented inputs, which the verdict
    names; it holds for every schedule of these warps. Loads after the release of columns that nobody overwrites before
    the next wait are right and stay silent. Whether the load was complete at the signal is TCG101; fences and scopes
    are TCG102 and SCP301. Sparse and weight-stationary MMAs have no modelled footprint.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.judged import LateRead, handovers, last_wait, late_reads
from verifier.analyses.protocol.witness import columns, location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict, WitnessStep
from verifier.model.events import Kind
from verifier.rules.registry import rule

_FIX = "move the load of the shared columns (and its tcgen05.wait::ld) ahead of this signal"


@rule(
    code="TCG103",
    name="tmem-read-after-release",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    protocol = kernel.protocol
    assert protocol is not None
    if not any(e.kind is Kind.TMEM_LOAD for e in protocol.model.events):
        return
    if protocol.base is None:
        yield from _undecided(protocol)
        return
    late = late_reads(protocol)
    for instr in sorted(late):
        yield _violation(late[instr])
    yield from _proofs(protocol, set(late))


def _undecided(protocol: Protocol) -> Iterator[Judgement]:
    """One obligation for each load whose columns may be given away."""
    if any(e.kind is Kind.BARRIER_INIT for e in protocol.model.events):
        load = next(e for e in protocol.model.events if e.kind is Kind.TMEM_LOAD)
        yield Judgement(
            verdict=Verdict.UNKNOWN,
            role="all",
            location=load.location,
            reason=f"the protocol could not be run: {protocol.reason}",
            message=f"cannot be decided: the protocol could not be run: {protocol.reason}",
            severity=Severity.WARNING,
            shape=load.opcode,
        )


def _proofs(protocol: Protocol, late: set[int]) -> Iterator[Judgement]:
    run = protocol.base
    assert run is not None
    released: dict[tuple[int, str], set[int]] = {}
    for instr, warp in handovers(protocol):
        released.setdefault((instr, role_of(run, (0, warp))), set()).add(warp)
    for (instr, role), _ in sorted(released.items()):
        if instr not in late:
            yield Judgement(
                verdict=Verdict.PROVED,
                role=role,
                location=location(run, instr),
                reason="every column that a later write touches was read before this signal",
                shape=run.code.model.function.instrs[instr].opcode,
            )


def _violation(reads: list[LateRead]) -> Judgement:
    first = reads[0]
    conflict, release = first.clash.conflict, first.clash.release
    assert release is not None
    reader, writer = role_of(first.run, conflict.earlier.warp), role_of(first.run, conflict.later.warp)
    lost = sorted({(r.phase, *_overlap(read)) for read in reads if (r := read.clash.release) is not None})
    text = ", ".join(f"{columns(low, high)} in phase {phase & 1}" for phase, low, high in _parities(lost))
    opcode = first.run.code.model.function.instrs[release.instr].opcode
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=reader,
        location=location(first.run, release.instr),
        reason=f"unread columns {text}",
        message=f"{reader} gives TMEM columns to {writer} before it has read them: {text}",
        witness=_witness(first),
        fix=_FIX,
        shape=f"{opcode}|{text}",
    )


def _parities(lost: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return sorted({(phase & 1, low, high) for phase, low, high in lost})


def _overlap(read: LateRead) -> tuple[int, int]:
    a, b = read.clash.conflict.earlier, read.clash.conflict.later
    return max(a.low, b.low), min(a.high, b.high)


def _witness(read: LateRead) -> tuple[WitnessStep, ...]:
    run, clash = read.run, read.clash
    load, write, release = clash.conflict.earlier, clash.conflict.later, clash.release
    assert release is not None
    steps = []
    full = last_wait(run, load)
    if full is not None:
        fact = f"{warp_text(run, load.warp)} waits for {full.barrier.label}, phase {full.meant}"
        steps.append(step(run, load.warp, full.instr, fact))
    steps.append(step(run, load.warp, release.instr, f"signals that the stage is free (phase {release.phase})"))
    empty = last_wait(run, write, release.component)
    if empty is not None:
        fact = f"{warp_text(run, write.warp)} waits for {empty.barrier.label}, phase {empty.meant}"
        steps.append(step(run, write.warp, empty.instr, fact))
    steps.append(step(run, write.warp, write.instr, f"writes columns {columns(write.low, write.high)}"))
    low, high = _overlap(read)
    fact = f"reads columns {columns(load.low, load.high)} after the signal: {columns(low, high)} may be overwritten"
    steps.append(step(run, load.warp, load.instr, fact))
    return tuple(steps)
