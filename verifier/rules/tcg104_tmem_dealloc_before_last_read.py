"""Tensor memory is freed while it may still be in use, or never freed.

What
    `tcgen05.dealloc` is ordered after the last access of every warp to the columns it frees, in both CTAs for
    `cta_group::2`; and every allocation is freed before its CTA ends.

Why
    The columns go to whoever allocates next, another CTA of the same SM included: a late read returns its data, a late
    MMA overwrites it. Columns that are not freed are lost to every later CTA of the SM, which then waits in `alloc`.

ISA
    PTX ISA 9.4, 9.7.18.7.1 "tcgen05.alloc, tcgen05.dealloc": all allocations must be deallocated before exit; 9.7.18.6:
    a dealloc is not ordered after asynchronous tcgen05 operations of other threads; 9.7.18.5 "issue granularity": no
    access of the peer CTA may be under way at a `cta_group::2` dealloc (its example: a cluster barrier comes first).

Bad
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    warp 1:
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, 64;     // TCG104
    ```

Good
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    bar.sync 1, 64;
    warp 1:
    bar.sync 1, 64;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, 64;
    ```

Limits
    Accesses are those of runs of all warps of a cluster under invented inputs, which the verdict names; it holds for
    every schedule of these warps. A load whose result has been used counts as complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.judged import LateRead, early_frees, last_wait
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access
from verifier.analyses.protocol.tmem import Allocation
from verifier.analyses.protocol.witness import columns, location, role_of, step, warp_text
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, WitnessStep
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, not_run, open_question, protocol_of, unconfirmed
from verifier.rules.registry import rule

_ORDER = "let every warp that uses tensor memory signal after its last access, and wait for that before the dealloc"
_PAIR = "let the CTAs of the pair meet between their last accesses and the dealloc: a cluster barrier, or mbarriers"
_FREE = "free what was allocated: tcgen05.dealloc in the allocating warp, after the last access"


@rule(
    code="TCG104",
    name="tmem-dealloc-before-last-read",
    hazard=Hazard.CONTRACT,
    since="0.1.0",
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    alloc = first(kernel, Kind.TMEM_DEALLOC, Kind.TMEM_ALLOC)
    if alloc is None:
        return
    protocol = protocol_of(kernel)
    if protocol.base is None:
        yield open_question("all", alloc.location, protocol.doubt, alloc.opcode)
        return
    early = early_frees(protocol)
    for instr in sorted(early):
        yield _early(early[instr])
    odd = {instr: found[0].run for instr, found in early_frees(protocol, sure=False).items() if instr not in early}
    for instr, run in sorted(odd.items()):
        yield unconfirmed(run, instr)
    yield from _proofs(protocol, protocol.base, {*early, *odd})
    yield from not_run(protocol, Kind.TMEM_DEALLOC)
    leaked = {a.instr: a for allocations in protocol.base.tmem.live.values() for a in allocations}
    for instr in sorted(leaked):
        yield _leak(protocol.base, leaked[instr])


def _proofs(protocol: Protocol, run: Machine, early: set[int]) -> Iterator[Judgement]:
    freed = {(instr, role_of(run, warp)) for instr, warp in run.tmem.freed if instr not in early}
    for instr, role in sorted(freed):
        opcode = run.code.model.function.instrs[instr].opcode
        yield holds(protocol, role, location(run, instr), "ordered after every access", opcode)


def _leak(run: Machine, allocation: Allocation) -> Judgement:
    role = role_of(run, allocation.warp)
    which = columns(allocation.base, allocation.base + allocation.columns)
    fact = f"allocates columns {which}, which no tcgen05.dealloc frees before the CTA ends"
    steps = (step(run, allocation.warp, allocation.instr, fact),)
    message = f"{role} allocates TMEM columns {which} and never frees them"
    return broken(role, location(run, allocation.instr), message, steps, _FREE, "never freed")


def _sides(read: LateRead) -> tuple[Machine, Access, Access]:
    """(run, the dealloc, the other access)."""
    earlier, later = read.clash.conflict.earlier, read.clash.conflict.later
    return (read.run, later, earlier) if later.instr in read.run.tmem.frees else (read.run, earlier, later)


def _early(frees: list[LateRead]) -> Judgement:
    run, freeing, access = min((_sides(read) for read in frees), key=lambda s: (s[2].warp == s[1].warp, s[2].write))
    role, user = role_of(run, freeing.warp), role_of(run, access.warp)
    peer = freeing.warp[0] != access.warp[0]
    user += " of the peer CTA" if peer else ""
    what = "access" if access.write else "read"
    message = f"{role} frees TMEM while {user} may still {what} columns {columns(access.low, access.high)}"
    steps: list[WitnessStep] = []
    wait = last_wait(run, freeing)
    if wait is not None:
        fact = f"{warp_text(run, freeing.warp)} waits for {wait.barrier.label} with parity {wait.parity}"
        fact += f": phase {wait.meant} is all that this wait is sure of"
        steps.append(step(run, freeing.warp, wait.instr, fact))
    steps.append(step(run, freeing.warp, freeing.instr, f"frees columns {columns(freeing.low, freeing.high)}"))
    fact = (
        f"{warp_text(run, access.warp)} may {what} columns {columns(access.low, access.high)}: nothing orders the two"
    )
    steps.append(step(run, access.warp, access.instr, fact))
    opcode = run.code.model.function.instrs[freeing.instr].opcode
    fix = _PAIR if peer else _ORDER
    return broken(role, location(run, freeing.instr), message, tuple(steps), fix, f"{opcode}|{user}")
