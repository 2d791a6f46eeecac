"""Two agents access the same columns of tensor memory, one of them writes, and nothing orders them.

What
    Accesses to the same columns and lanes of tensor memory, one of which is a write, are ordered in every schedule.
    Agents are the warps that load and store, and the work of each warp that issues MMAs, copies and shifts. An MMA also
    reads: its matrix A where that lies in tensor memory, and the scale factors.

Why
    A warp overwrites the matrix that an MMA still multiplies (the P of attention), an MMA reads scale factors that are
    still being copied, an accumulator is initialised while the last MMA adds to it. Nothing faults.

ISA
    PTX ISA 9.4, 9.7.18.6 "tcgen05 memory consistency": tcgen05 operations of different threads are ordered only through
    their completion (wait::st, wait::ld, tcgen05.commit) and a signal that follows it; 9.7.18.6.2 (pipelined pairs).

Bad
    ```ptx
    warp 0:
    tcgen05.st.sync.aligned.32x32b.x1.b32 [t+32], {r2};
    tcgen05.wait::st.sync.aligned;
    warp 1:
    mov.b32 id, 0x8020490;                                   // M = 128, N = 8
    elect.sync _|q, -1;
    @q tcgen05.mma.cta_group::1.kind::f16 [t], [t+32], bd, id, p;          // TCG108
    ```

Good
    ```ptx
    warp 0:
    tcgen05.st.sync.aligned.32x32b.x1.b32 [t+32], {r2};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    elect.sync _|q, -1;
    @q mbarrier.arrive.shared::cta.b64 _, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    tcgen05.fence::after_thread_sync;
    mov.b32 id, 0x8020490;                                   // M = 128, N = 8
    elect.sync _|q, -1;
    @q tcgen05.mma.cta_group::1.kind::f16 [t], [t+32], bd, id, p;
    ```

Limits
    Columns, lanes and phases are those of runs of all warps of a cluster under invented inputs, which the verdict
    names. Loads after a release are TCG103, deallocations TCG104; a load or store that was issued in time and only not
    waited for is TCG101 or TCG105. An MMA is taken to touch all lanes. Operands of sparse and weight-stationary MMAs, A
    in 4-bit kinds and scale factors of longer steps of K have no modelled footprint: unknown where others write.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.judged import LateRead, tmem_races
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access
from verifier.analyses.protocol.witness import columns, location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, WitnessStep
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, open_question, protocol_of, unconfirmed, waited
from verifier.rules.registry import rule

_FIX = "order the two: complete the first (wait::st, wait::ld, or a commit), then signal, and wait before the second"
_WRITES = (Kind.TMEM_MMA, Kind.TMEM_COPY, Kind.TMEM_SHIFT, Kind.TMEM_STORE)


@rule(
    code="TCG108",
    name="tensor-memory-race",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    write = first(kernel, *_WRITES)
    if write is None:
        return
    protocol = protocol_of(kernel)
    if protocol.base is None:
        yield open_question("all", write.location, protocol.doubt, write.opcode)
        return
    found = tmem_races(protocol)
    groups: dict[tuple[str, ...], list[LateRead]] = {}
    for instr in sorted(found):
        for race in found[instr]:
            groups.setdefault(_kind(race), []).append(race)
    for group in groups.values():
        yield _violation(group)
    odd = {instr: r[0].run for instr, r in tmem_races(protocol, sure=False).items() if instr not in found}
    for instr, run in sorted(odd.items()):
        yield unconfirmed(run, instr)
    yield from _proofs(protocol, protocol.base, {*found, *odd})


def _kind(race: LateRead) -> tuple[str, ...]:
    """Races of the same two roles that do the same are one finding: unrolled code has many."""
    a, b = race.clash.conflict.earlier, race.clash.conflict.later
    return (role_of(race.run, a.warp), _verb(race.run, a), role_of(race.run, b.warp), _verb(race.run, b))


def _proofs(protocol: Protocol, run: Machine, racing: set[int]) -> Iterator[Judgement]:
    instrs = run.code.model.function.instrs
    for instr, warp in sorted(run.tmem.met.items()):
        if instr not in racing and instr not in run.tmem.frees:
            reason = "ordered after every conflicting access before it"
            yield holds(protocol, role_of(run, warp), location(run, instr), reason, instrs[instr].opcode)
    vague = sorted(run.tmem.unsized | run.tmem.unsized_reads)
    if vague and run.tmem.contended:
        reason = f"the columns that {len(vague)} tcgen05 instruction(s) touch are not modelled"
        yield open_question("all", location(run, vague[0]), reason, instrs[vague[0]].opcode)


def _violation(races: list[LateRead]) -> Judgement:
    race = races[0]
    run, conflict = race.run, race.clash.conflict
    a, b = conflict.earlier, conflict.later
    shared = columns(max(a.low, b.low), min(a.high, b.high))
    message = f"{role_of(run, b.warp)} may {_verb(run, b)} TMEM columns {shared} while {role_of(run, a.warp)}"
    message += f" may still {_verb(run, a)} them"
    if len(races) > 1:
        message += f", and {len(races) - 1} more such pair(s)"
    steps: list[WitnessStep] = [step(run, a.warp, a.instr, f"{warp_text(run, a.warp)}: {_does(run, a)}")]
    steps += waited(run, b)
    known = "only the issue of the first is over for it" if conflict.issued else "nothing orders it after the first"
    steps.append(step(run, b.warp, b.instr, f"{warp_text(run, b.warp)}: {_does(run, b)}; {known}"))
    instrs = run.code.model.function.instrs
    shape = f"{instrs[a.instr].opcode}|{instrs[b.instr].opcode}"
    return broken(role_of(run, b.warp), location(run, b.instr), message, tuple(steps), _FIX, shape)


def _does(run: Machine, access: Access) -> str:
    return f"{'writes' if access.write else 'reads'} columns {columns(access.low, access.high)}{_how(run, access)}"


def _verb(run: Machine, access: Access) -> str:
    return f"{'write' if access.write else 'read'}{_how(run, access)}"


def _how(run: Machine, access: Access) -> str:
    kind = run.code.events[access.instr].kind
    return "" if kind in (Kind.TMEM_LOAD, Kind.TMEM_STORE) else f" (by {kind.value})"
