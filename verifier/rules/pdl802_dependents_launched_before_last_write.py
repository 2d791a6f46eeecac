"""The dependent grid is let go before this one has written its last result or freed its tensor memory.

What
    After `griddepcontrol.launch_dependents` no role of the kernel writes global memory or frees tensor memory any more.

Why
    The instruction is a hint that dependents may start. A dependent that relies on it instead of on
    `griddepcontrol.wait` misses later writes; and one that allocates tensor memory blocks on an SM until the columns of
    this kernel are freed.

ISA
    PTX ISA 9.4, 9.7.15.14 "griddepcontrol": writes after launch_dependents need the dependent's wait; 9.7.18.7.1
    "tcgen05.alloc" blocks until columns are free.

Bad
    ```ptx
    warp 0:
    griddepcontrol.launch_dependents;        // PDL802
    st.global.b32 [data], r1;
    ```

Good
    ```ptx
    warp 0:
    st.global.b32 [data], r1;
    griddepcontrol.launch_dependents;
    ```

Limits
    A note, never an error: a dependent that waits is right whatever this kernel does. Writes of other roles count only
    where the same warp also launches; results stored through a peer are not followed. A generic address counts as
    one of global memory unless it is made from one of another space.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind, in_global
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "move griddepcontrol.launch_dependents below the last write, or make sure that every dependent waits"


@rule(code="PDL802", name="dependents-launched-before-last-write", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for launch in flow.select(lambda e: e.kind is Kind.GRID_LAUNCH):
            path = flow.find_path(launch, _finishes, lambda e: False)
            if path is None:
                yield proved(model, stream, launch, "no write and no dealloc follows")
            else:
                yield _violation(model, stream, launch, path[-1])


def _finishes(event: Event) -> bool:
    if event.kind in (Kind.STORE, Kind.ATOMIC):
        return in_global(event)
    return event.kind in (Kind.BULK_STORE, Kind.TMEM_DEALLOC)


def _violation(model: KernelModel, stream: Stream, launch: Event, late: Event) -> Judgement:
    witness = (
        step(model, stream, launch, "lets dependent grids start"),
        step(model, stream, late, f"comes later: {late.kind.value}"),
    )
    message = f"{model.role_of(stream)} launches dependents before its last {late.kind.value}"
    return violated(model, stream, launch, message, severity=Severity.NOTE, witness=witness, fix=_FIX)
