"""A word that other CTAs still poll is set back: a poller can miss the value for ever.

What
    A global word that a loop polls until it reaches a value is not overwritten after the loop, unless another atomic
    operation in between tells that every poller has left.

Why
    The first CTA to leave the loop resets the counter for the next launch; a slower one, which has not yet seen the
    value, then polls a word that never reaches it again. The grid hangs, rarely, under load.

ISA
    PTX ISA 9.4, 8.9 "Causality order": nothing orders the reset after the reads of pollers that have not yet observed
    the value.

Bad
    ```ptx
    atom.acq_rel.gpu.global.add.u32 r3, [flag], 1;
    L1: ld.acquire.gpu.global.u32 r4, [flag];
    setp.lt.u32 q, r4, 2;
    @q bra L1;
    mov.u32 r5, 0;
    st.relaxed.gpu.global.u32 [flag], r5;        // CTL704
    ```

Good
    ```ptx
    atom.acq_rel.gpu.global.add.u32 r3, [flag], 1;
    L1: ld.acquire.gpu.global.u32 r4, [flag];
    setp.lt.u32 q, r4, 2;
    @q bra L1;
    mov.u32 r5, 0;
    atom.acq_rel.gpu.global.add.u32 r6, [flag+4], 1;
    setp.ne.u32 q2, r6, 1;
    @q2 bra L2;
    st.relaxed.gpu.global.u32 [flag], r5;
    L2:
    ```

Limits
    Needs reasoning over all CTAs of the grid: a warning. That the atomic in between really counts the pollers out is
    not checked, only that there is one on every path.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.polls import is_polled
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "count the pollers out with a second atomic and let the last one reset, or use a counter that only grows"


@rule(code="CTL704", name="spin-word-reset-under-pollers", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        polls = [p for p in flow.select(lambda e: e.kind is Kind.LOAD and e.space == "global") if is_polled(stream, p)]
        for poll in polls:
            for reset in flow.events:
                if _writes_same(model, stream, poll, reset):
                    yield from _judge(model, stream, flow, poll, reset)


def _judge(model: KernelModel, stream: Stream, flow: EventFlow, poll: Event, reset: Event) -> Iterator[Judgement]:
    if flow.find_path(poll, lambda e: e is reset, lambda e: False) is None:
        return
    if flow.find_path(poll, lambda e: e is reset, lambda e: e.kind is Kind.ATOMIC) is None:
        yield proved(model, stream, reset, "an atomic operation counts the pollers out first")
        return
    witness = (
        step(model, stream, poll, "polls the word until it has reached a value"),
        step(model, stream, reset, "overwrites it: another CTA may still be polling, and never see the value"),
    )
    message = f"{model.role_of(stream)} resets a word that other CTAs may still be polling"
    yield violated(model, stream, reset, message, severity=Severity.WARNING, witness=witness, fix=_FIX)


def _writes_same(model: KernelModel, stream: Stream, poll: Event, event: Event) -> bool:
    if event.kind is not Kind.STORE or event.space != "global":
        return False
    place = model.place(stream, poll, poll.address)
    return place.resolved and place == model.place(stream, event, event.address)
