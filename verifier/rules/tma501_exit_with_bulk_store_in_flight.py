"""A thread exits while a bulk store that it issued may still be reading shared memory.

What
    Every thread that issues a bulk store (`cp.async.bulk` or `cp.reduce.async.bulk` from shared to global memory)
    commits it and executes `cp.async.bulk.wait_group 0` or `wait_group.read 0` (or another N that covers its group)
    before it exits, on every path. Another thread's wait does not count: groups belong to the thread that commits them.

Why
    The copy engine reads the CTA's shared memory long after the instruction has been issued. When the CTA ends, the
    next one gets that memory: the store then writes somebody else's data to global memory.

ISA
    PTX ISA 9.4, 9.7.10.28.1 (modifying the source before completion is undefined), 9.7.10.28.6.2
    "cp.async.bulk.wait_group" (groups of the executing thread). No sentence names the exit of the CTA: the rule follows
    from the lifetime of shared memory, so the default profile warns.

Bad
    ```ptx
    warp 0:
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;        // TMA501
    cp.async.bulk.commit_group;
    ret;
    ```

Good
    ```ptx
    warp 0:
    setp.ne.u32 q, r0, 0; @q bra END;
    cp.async.bulk.global.shared::cta.bulk_group [gp], [buf], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    ret;
    ```

Limits
    `elect.sync` is taken to choose the same lane each time. Paths are told apart by the branches whose outcome is known
    from earlier ones. A `trap` is no exit.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.bulkgroups import PathLimit, StoreWalk
from verifier.analyses.facts import KernelFacts
from verifier.analyses.threads import Thread, threads_of
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.support import by_profile, proved, step, unknown, violated

_FIX = (
    "let the issuing thread commit and execute cp.async.bulk.wait_group.read 0 (CuTe DSL: cp_async_bulk_wait_group(0))"
)


@rule(code="TMA501", name="exit-with-bulk-store-in-flight", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        stores = flow.select(lambda e: e.kind is Kind.BULK_STORE)
        if not stores:
            continue
        steers = flow.select(lambda e: e.kind in (Kind.BULK_STORE, Kind.BULK_COMMIT, Kind.BULK_WAIT, Kind.EXIT))
        threads = threads_of(flow, steers)
        for store in stores:
            yield from _judge(model, threads, store, policy)


def _judge(model: KernelModel, threads: list[Thread], store: Event, policy: Policy) -> Iterator[Judgement]:
    stream = threads[0].flow.stream
    block = stream.cfg.block_of[store.instr]
    issuers = [t for t in threads if t.runs(store) is not False and block in t.reached]
    try:
        paths = [(thread, StoreWalk(thread, store).find(lambda e, n: False, leaves=True)) for thread in issuers]
    except PathLimit:
        yield unknown(model, stream, store, "too many paths from the store to follow each")
        return
    late = next(((thread, path) for thread, path in paths if path is not None), None)
    if late is not None:
        yield _violation(model, *late, policy)
    else:
        yield proved(model, stream, store, "its group is waited for on every path to the exit")


def _violation(model: KernelModel, thread: Thread, path: tuple[Event, ...], policy: Policy) -> Judgement:
    stream = thread.flow.stream
    store, last = path[0], path[-1]
    witness = [step(model, stream, store, f"is issued by {thread.lane}; the copy engine reads shared memory later")]
    witness += _groups(model, thread, path)
    witness.append(step(model, stream, last, "the thread exits; nothing has waited for the copy"))
    message = f"{model.role_of(stream)} exits while a bulk store may still read its shared memory"
    severity = by_profile(policy, Severity.WARNING, Severity.ERROR)
    return violated(model, stream, store, message, severity=severity, witness=tuple(witness), fix=_FIX)


def _groups(model: KernelModel, thread: Thread, path: tuple[Event, ...]) -> list[WitnessStep]:
    """The commit and the last wait on the way, if there are any."""
    stream = thread.flow.stream
    commit = next((e for e in path if e.kind is Kind.BULK_COMMIT), None)
    if commit is None:
        return [step(model, stream, path[0], "no commit_group follows on this path: no wait covers the copy")]
    steps = [step(model, stream, commit, "closes the group of the copy")]
    waits = [e for e in path if e.kind is Kind.BULK_WAIT]
    return [*steps, *(step(model, stream, e, "lets the newest groups pend, this one among them") for e in waits[-1:])]
