"""Two agents access the same bytes of shared memory, one of them writes, and nothing orders them.

What
    Accesses of different agents to one piece of shared memory, one of which is a write, are ordered in every schedule.
    Agents are warps, bulk copies (TMA), remote stores of peers, and the tensor cores that read operand stages.

Why
    A store buffer is refilled while TMA still reads it, a stage is overwritten while an MMA reads it, an address is
    read before the warp that computes it has stored it. Results are wrong once in many runs.

ISA
    PTX ISA 9.4, 8.9.1 "Data-race freedom": conflicting accesses that are not related by causality order race;
    9.7.10.28.6.4 "cp.async.bulk.wait_group".

Bad
    ```ptx
    warp 0:
    st.shared.b32 [buf], r1;
    warp 1:
    ld.shared.b32 r2, [buf];       // MEM401
    ```

Good
    ```ptx
    warp 0:
    st.shared.b32 [buf], r1;
    bar.sync 1, 64;
    warp 1:
    bar.sync 1, 64;
    ld.shared.b32 r2, [buf];
    ```

Limits
    Accesses are those of runs of all warps of a cluster under invented inputs, which the verdict names. Every arrive
    counts as order: scopes are SCP301, proxies PRX402. Bytes that complete on a barrier publish themselves; whether
    they order what their warp wrote before is unknown. Lanes of one warp count as one thread. An MMA or a
    `tcgen05.cp` is taken to read the whole stage that its descriptor points into; a tensor store reads up to the next
    source. Addresses that depend on data, such as words of global memory, and the rows of a `wmma` matrix that lie
    apart are not followed: they are unknown, as is what no run comes to. A generic address is one of shared memory
    where it is made, in the kernel, of an address that `cvta` or `mapa` takes from there; one read from memory is
    taken to be global. Strong accesses that include each other (atomics, `.relaxed` and stronger ones of a large
    enough scope, volatile ones that a loop retries) do not race. Where a warp observes by one what another wrote by
    one, a flag or a lock, the order that this may give is not followed: the rest is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.judged import odd_races, races
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access, Conflict
from verifier.analyses.protocol.witness import location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, WitnessStep
from verifier.model.events import Kind
from verifier.rules.protocol_support import (
    broken,
    first,
    holds,
    missing,
    open_question,
    protocol_of,
    shared_write,
    unconfirmed,
    waited,
)
from verifier.rules.registry import rule

_BYTES = "bytes that complete on one: they publish themselves, and not what the warp that sent them wrote before"
_FIX = "order the two: a barrier between them, or wait_group.read before the source of a bulk store is rewritten"


@rule(code="MEM401", name="shared-memory-race", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    store = first(kernel, Kind.BARRIER_INIT) or shared_write(kernel)
    if store is None:
        return
    protocol = protocol_of(kernel)
    if protocol.base is None:
        yield open_question("all", store.location, protocol.doubt, "shared memory")
        return
    found = races(protocol)
    groups: dict[tuple[str, ...], list[tuple[Machine, Conflict]]] = {}
    for instr in sorted(found):
        certain = [(run, conflict) for run, conflict in found[instr] if not conflict.unpublished]
        if not certain:
            yield _undecided(*found[instr][0], _BYTES)
        for run, conflict in certain:
            if run.traffic.flags.open:
                yield _undecided(run, conflict, run.traffic.flags.open)
                break
            groups.setdefault(_kind(run, conflict), []).append((run, conflict))
    for group in groups.values():
        yield _violation(group, protocol.base)
    yield from _proofs(protocol, protocol.base, set(found))
    missed = [*protocol.unreached(Kind.BULK_LOAD, Kind.BULK_PEER, Kind.BULK_STORE), *protocol.untouched()]
    yield from missing(protocol, sorted(missed, key=lambda event: event.instr))
    for instr, why in sorted(protocol.base.traffic.unresolved.items()):
        opcode = protocol.model.function.instrs[instr].opcode
        yield open_question("all", location(protocol.base, instr), why, opcode)


def _kind(run: Machine, conflict: Conflict) -> tuple[str, ...]:
    """Races of the same two roles that do the same are one finding: unrolled code has many."""
    a, b = conflict.earlier, conflict.later
    return (role_of(run, a.warp), _do(run, a), role_of(run, b.warp), _do(run, b))


def _undecided(run: Machine, conflict: Conflict, but: str) -> Judgement:
    instr = conflict.later.instr
    reason = f"no signal orders it with another access, but {but}"
    opcode = run.code.model.function.instrs[instr].opcode
    return open_question(role_of(run, conflict.later.warp), location(run, instr), reason, opcode)


def _proofs(protocol: Protocol, run: Machine, racing: set[int]) -> Iterator[Judgement]:
    instrs = run.code.model.function.instrs
    odd = {instr: other for instr, other in odd_races(protocol).items() if instr not in racing}
    for instr, other in sorted(odd.items()):
        yield unconfirmed(other, instr)
    for instr, warp in sorted(run.traffic.met.items()):
        if instr not in racing and instr not in odd:
            opcode = instrs[instr].opcode
            reason = "ordered after every conflicting access before it"
            yield holds(protocol, role_of(run, warp), location(run, instr), reason, opcode)


def _violation(found: list[tuple[Machine, Conflict]], base: Machine) -> Judgement:
    run, conflict = found[0]
    a, b = conflict.earlier, conflict.later
    place = run.label(b.memory << 24 | max(a.low, b.low))
    message = f"{role_of(run, b.warp)} {_does(run, b)} {place} while {role_of(run, a.warp)} may still {_do(run, a)} it"
    if len(found) > 1:
        message += f", and {len(found) - 1} more such pair(s)"
    if run is not base:
        message += f" (with {run.script.text})"
    steps: list[WitnessStep] = [step(run, a.warp, a.instr, f"{warp_text(run, a.warp)} {_does(run, a)} {place}")]
    steps += waited(run, b)
    fact = f"{warp_text(run, b.warp)} {_does(run, b)} {place}: nothing orders it after the first"
    steps.append(step(run, b.warp, b.instr, fact))
    instrs = run.code.model.function.instrs
    shape = f"{instrs[a.instr].opcode}|{instrs[b.instr].opcode}"
    return broken(role_of(run, b.warp), location(run, b.instr), message, tuple(steps), _FIX, shape)


def _does(run: Machine, access: Access) -> str:
    return f"{'writes' if access.write else 'reads'}{_how(run, access)}"


def _do(run: Machine, access: Access) -> str:
    return f"{'write' if access.write else 'read'}{_how(run, access)}"


def _how(run: Machine, access: Access) -> str:
    if access.component == access.issuer:
        return ""
    kind = run.code.events[access.instr].kind
    return " (by MMA)" if kind is Kind.TMEM_MMA else f" (by {kind.value})"
