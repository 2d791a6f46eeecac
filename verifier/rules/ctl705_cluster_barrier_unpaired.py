"""An arrive on the cluster barrier has no wait, or a wait no arrive.

What
    On every path of a thread, arrives on the cluster barrier and waits for it alternate: arrive, wait, arrive, wait.
    The last arrive is waited for before the thread exits.

Why
    Two arrives without a wait between, or a wait without an arrive, are undefined: the cluster hangs or goes on early.
    Who exits after an arrive alone has not synchronized: a peer may still use this CTA's shared memory.

ISA
    PTX ISA 9.4, 9.7.15.3 "barrier.cluster": each thread of the cluster arrives once per phase; an arrive that is not
    followed by a wait before the next arrive is undefined behaviour.

Bad
    ```ptx
    cluster 2
    warp 0:
    barrier.cluster.arrive.aligned;
    st.shared.b32 [buf], r1;
    barrier.cluster.arrive.aligned;        // CTL705
    barrier.cluster.wait.aligned;
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    barrier.cluster.arrive.aligned;
    st.shared.b32 [buf], r1;
    barrier.cluster.wait.aligned;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ```

Limits
    An exit with an arrive that nobody waits for is a warning: the ISA does not forbid it. What the barrier publishes is
    SCP302.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "let each barrier.cluster.arrive be followed by one barrier.cluster.wait of the same thread"
_STEPS = (Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT)


@rule(code="CTL705", name="cluster-barrier-unpaired", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for event in flow.select(lambda e: e.kind in _STEPS):
            yield _judge(model, stream, flow, event)


def _judge(model: KernelModel, stream: Stream, flow: EventFlow, event: Event) -> Judgement:
    arrives = event.kind is Kind.CLUSTER_ARRIVE
    after = _next(flow, event)
    if not arrives and flow.find_path(None, lambda e: e is event, lambda e: e.kind is Kind.CLUSTER_ARRIVE) is not None:
        return _violation(model, stream, event, None, "waits, and no arrive of its own precedes on this path")
    if after is not None:
        fact = "arrives again with no wait between" if arrives else "waits again with no arrive between"
        return _violation(model, stream, after, event, fact)
    left = _exit(flow, event) if arrives else None
    if left is not None:
        return _violation(model, stream, event, None, "arrives, and a path leads to the exit with no wait", left)
    return proved(model, stream, event, "arrives and waits alternate on every path")


def _next(flow: EventFlow, event: Event) -> Event | None:
    """The next event of the same kind on a path with none of the other kind between."""
    kind = event.kind
    path = flow.find_path(event, lambda e: e.kind is kind, lambda e: e.kind in _STEPS and e.kind is not kind)
    return None if path is None else path[-1]


def _exit(flow: EventFlow, event: Event) -> Event | None:
    path = flow.find_path(event, _leaves, lambda e: e.kind is Kind.CLUSTER_WAIT)
    return None if path is None else path[-1]


def _leaves(event: Event) -> bool:
    return event.kind is Kind.EXIT and not event.opcode.startswith("trap")


def _violation(
    model: KernelModel, stream: Stream, event: Event, first: Event | None, fact: str, left: Event | None = None
) -> Judgement:
    steps = [] if first is None else [step(model, stream, first, first.kind.value)]
    steps.append(step(model, stream, event, fact))
    if left is not None:
        steps.append(step(model, stream, left, "exits"))
    role = model.role_of(stream)
    message = f"{role} does not pair arrives and waits of the cluster barrier: it {fact}"
    severity = Severity.ERROR if left is None else Severity.WARNING
    return violated(model, stream, event, message, severity=severity, witness=tuple(steps), fix=_FIX)
