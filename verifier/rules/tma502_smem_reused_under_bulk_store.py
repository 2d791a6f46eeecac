"""Shared memory is written again while a bulk store may still be reading it.

What
    Before the source of a bulk store is written again (by threads, or by the next bulk load into the same stage), the
    thread that issued the store has executed `cp.async.bulk.wait_group(.read) N` with an N small enough to cover the
    store's group, and the writers have synchronized with it. Groups are counted: N is the number of newest groups that
    may still be pending, of this thread alone.

Why
    The copy engine reads the source long after the instruction has been issued. An N that is one too large lets the
    next tile overwrite the last stage under the copy: global memory receives a mixture of two tiles.

ISA
    PTX ISA 9.4, 9.7.10.28.1 (modifying the source before completion is undefined behaviour), 9.7.10.28.6.2
    "cp.async.bulk.wait_group": waits until at most N of the most recent groups of the executing thread are pending.

Bad
    ```ptx
    warp 0:
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;
    st.shared.b32 [buf], r2;        // TMA502
    ```

Good
    ```ptx
    warp 0:
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    st.shared.b32 [buf], r2;
    ```

Limits
    Addresses are compared as numbers, for the values that loop counters take; a tensor store, whose box PTX does not
    say, reaches to the next known stage. Writers that an mbarrier releases are compared in every stage: a ring that is
    handed over stage by stage is unknown here.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.bulkgroups import PathLimit
from verifier.analyses.bulkreuse import Reuse, Reuses
from verifier.analyses.facts import KernelFacts
from verifier.analyses.threads import Thread, threads_of
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = (
    "let the issuing thread wait_group.read with a smaller N (0 is always safe) before the stage is written again, "
    "and synchronize the writers after that wait"
)


@rule(code="TMA502", name="smem-reused-under-bulk-store", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    if not any(e.kind is Kind.BULK_STORE for e in model.events):
        return
    reuses = Reuses(kernel, model)
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        stores = flow.select(lambda e: e.kind is Kind.BULK_STORE)
        steers = flow.select(lambda e: e.kind in (Kind.BULK_STORE, Kind.BULK_COMMIT, Kind.BULK_WAIT))
        threads = threads_of(flow, steers) if stores else []
        for store in stores:
            yield _judge(model, reuses, threads, store)


def _judge(model: KernelModel, reuses: Reuses, threads: list[Thread], store: Event) -> Judgement:
    stream = threads[0].flow.stream
    block = stream.cfg.block_of[store.instr]
    doubt = ""
    for thread in threads:
        if thread.runs(store) is False or block not in thread.reached:
            continue
        try:
            found = reuses.of(thread, store)
        except PathLimit:
            return unknown(model, stream, store, "too many paths from the store to follow each")
        if found is not None:
            return _violation(model, thread, store, found)
        if reuses.possible is not None:
            doubt = f"{model.role_of(reuses.possible[0])} may write the same stage: which one depends on its barrier"
        elif reuses.unresolved is not None:
            doubt = f"the address of the {reuses.unresolved.kind.value} cannot be computed"
    if doubt:
        return unknown(model, stream, store, doubt)
    return proved(model, stream, store, "nobody writes its source before its group is complete")


def _violation(model: KernelModel, thread: Thread, store: Event, found: Reuse) -> Judgement:
    stream = thread.flow.stream
    steps = [step(model, stream, store, f"is issued by {thread.lane} and reads this stage at some later time")]
    commits = [e for e in found.path if e.kind is Kind.BULK_COMMIT]
    waits = [e for e in found.path if e.kind is Kind.BULK_WAIT]
    if commits:
        newer = f", and {len(commits) - 1} newer one(s) follow" if len(commits) > 1 else ""
        steps.append(step(model, stream, commits[0], f"closes the group of the copy{newer}"))
    steps += [step(model, stream, e, "lets the newest groups pend, the copy's among them") for e in waits[-1:]]
    if found.path[-1] is not found.write:
        steps.append(step(model, stream, found.path[-1], "lets others go on; nothing has waited for the copy"))
    steps.append(step(model, found.writer, found.write, "writes the same bytes while the copy may be reading them"))
    message = f"{model.role_of(found.writer)} writes shared memory that a bulk store may still be reading"
    return violated(model, found.writer, found.write, message, severity=Severity.ERROR, witness=tuple(steps), fix=_FIX)
