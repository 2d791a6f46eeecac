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
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];         // column 0
    tcgen05.wait::ld.sync.aligned;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];             // TCG103
    add.u32 t, t, 1;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r3}, [t];         // column 1
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    mov.b32 id, 0x8020490;                                   // M = 128, N = 8: columns 0-7
    elect.sync _|q, -1;
    @q tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];         // column 0
    add.u32 t, t, 1;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r3}, [t];         // column 1
    tcgen05.wait::ld.sync.aligned;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    mov.b32 id, 0x8020490;                                   // M = 128, N = 8: columns 0-7
    elect.sync _|q, -1;
    @q tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
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
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.witness import columns, location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, WitnessStep
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, not_run, open_question, protocol_of, unconfirmed
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
    load = first(kernel, Kind.TMEM_LOAD)
    if load is None:
        return
    protocol = protocol_of(kernel)
    if protocol.base is None:
        yield open_question("all", load.location, protocol.doubt, load.opcode)
        return
    late = late_reads(protocol)
    for instr in sorted(late):
        yield _violation(late[instr])
    odd = {instr: found[0].run for instr, found in late_reads(protocol, sure=False).items() if instr not in late}
    for instr, run in sorted(odd.items()):
        yield unconfirmed(run, instr)
    yield from _proofs(protocol, protocol.base, {*late, *odd})


def _proofs(protocol: Protocol, run: Machine, late: set[int]) -> Iterator[Judgement]:
    released = {(instr, role_of(run, (0, warp))) for instr, warp in handovers(protocol) if instr not in late}
    for instr, role in sorted(released):
        opcode = run.code.model.function.instrs[instr].opcode
        reason = "every column that a later write touches was read before this signal"
        yield holds(protocol, role, location(run, instr), reason, opcode)
    unsized = sorted(run.tmem.unsized)
    yield from not_run(protocol, Kind.TMEM_LOAD)
    for instr in unsized[:1]:
        reason = f"the columns of {len(unsized)} tcgen05 instruction(s) are not modelled"
        opcode = run.code.model.function.instrs[instr].opcode
        yield open_question("all", location(run, instr), reason, opcode)


def _violation(reads: list[LateRead]) -> Judgement:
    first_read = reads[0]
    conflict, release = first_read.clash.conflict, first_read.clash.release
    assert release is not None
    reader, writer = role_of(first_read.run, conflict.earlier.warp), role_of(first_read.run, conflict.later.warp)
    lost = sorted({(r.phase, *_overlap(read)) for read in reads if (r := read.clash.release) is not None})
    text = ", ".join(f"{columns(low, high)} in phase {phase & 1}" for phase, low, high in _parities(lost))
    opcode = first_read.run.code.model.function.instrs[release.instr].opcode
    message = f"{reader} gives TMEM columns to {writer} before it has read them: {text}"
    return broken(
        reader, location(first_read.run, release.instr), message, _witness(first_read), _FIX, f"{opcode}|{text}"
    )


def _parities(lost: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(parity of the phase, low, high) with touching column ranges joined."""
    merged: list[tuple[int, int, int]] = []
    for parity, low, high in sorted({(phase & 1, low, high) for phase, low, high in lost}):
        if merged and merged[-1][0] == parity and low <= merged[-1][2]:
            merged[-1] = (parity, merged[-1][1], max(high, merged[-1][2]))
        else:
            merged.append((parity, low, high))
    return merged


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
