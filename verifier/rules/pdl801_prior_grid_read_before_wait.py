"""A role reads global memory on a path that has not waited for the grid before it.

What
    In a kernel that uses `griddepcontrol.wait`, every read of global memory (loads, atomics, `cp.async`, bulk loads)
    comes, on all paths, after that wait: its own, or one of another role that a barrier passes on.

Why
    Under programmatic dependent launch the kernel starts while its predecessor still runs. What is read before the wait
    may be yesterday's data; the result depends on the scheduler.

ISA
    PTX ISA 9.4, 9.7.15.14 "griddepcontrol": wait blocks until all prerequisite grids have completed and their memory
    operations are visible.

Bad
    ```ptx
    warp 0:
    ld.global.b32 r1, [data];        // PDL801
    griddepcontrol.wait;
    ld.global.b32 r2, [data+4];
    ```

Good
    ```ptx
    warp 0:
    griddepcontrol.wait;
    ld.global.b32 r1, [data];
    ld.global.b32 r2, [data+4];
    ```

Limits
    PTX does not say which buffers the predecessor writes: reading constant weights early is right, and is reported as a
    warning all the same. Prefetches are not reads. A generic address counts as one of global memory unless it is made
    from one of another space.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import Test
from verifier.analyses.ordering import Ordering
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind, in_global
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_COPIES = frozenset({Kind.BULK_LOAD, Kind.COPY_ASYNC})
_FIX = "move the read below griddepcontrol.wait, or suppress this if no earlier grid writes the buffer"


@rule(code="PDL801", name="prior-grid-read-before-wait", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    waits = [(s, e) for s in model.streams for e in model.events if e.kind is Kind.GRID_WAIT and s.runs(e)]
    if not waits:
        return
    ordering = Ordering(kernel, model)
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        passed: frozenset[int] = frozenset().union(
            *(ordering.waits_after(s, e, stream) for s, e in waits if s is not stream and s.shares_cta(stream))
        )
        for read in flow.select(_reads_global):
            path = flow.find_path(None, _is(read), _waits(passed))
            yield _judge(model, stream, read, waits[0], early=path is not None)


def _is(wanted: Event) -> Test:
    return lambda event: event is wanted


def _waits(passed: frozenset[int]) -> Test:
    return lambda event: event.kind is Kind.GRID_WAIT or event.instr in passed


def _reads_global(event: Event) -> bool:
    if event.kind is Kind.BULK_STORE:
        return event.opcode.startswith("cp.reduce.")  # reads what it adds to
    return event.kind in _COPIES or (event.kind in (Kind.LOAD, Kind.ATOMIC) and in_global(event))


def _judge(model: KernelModel, stream: Stream, read: Event, wait: tuple[Stream, Event], *, early: bool) -> Judgement:
    if not early:
        return proved(model, stream, read, "griddepcontrol.wait precedes on every path")
    witness = (
        step(model, stream, read, "reads global memory; no griddepcontrol.wait precedes on this path"),
        step(model, *wait, "waits for the prior grid only here"),
    )
    message = f"{model.role_of(stream)} may read memory of the prior grid before that grid has completed"
    return violated(model, stream, read, message, severity=Severity.WARNING, witness=witness, fix=_FIX)
