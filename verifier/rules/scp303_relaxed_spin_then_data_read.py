"""A flag is polled without acquire, and the data it announces is read.

What
    A loop that polls a word of global memory with weak, volatile or relaxed loads, and after which memory is read,
    has an acquire between: an acquiring load, or an acquire fence of adequate scope on every path from the loop to
    the read.

Why
    Seeing the flag orders nothing by itself. Reads that follow may be served from an L1 line, or issued, before the
    flag was seen; the data is stale although the flag is new.

ISA
    PTX ISA 9.4, 8.8 "Release and acquire patterns": a relaxed read needs an acquire fence after it; 8.4.2 volatile is
    relaxed at system scope.

Bad
    ```ptx
    L1: ld.relaxed.gpu.global.u32 r4, [flag];        // SCP303
    setp.eq.u32 q, r4, 0;
    @q bra L1;
    ld.global.u32 r5, [data];
    ```

Good
    ```ptx
    L1: ld.acquire.gpu.global.u32 r4, [flag];
    setp.eq.u32 q, r4, 0;
    @q bra L1;
    ld.global.u32 r5, [data];
    ```

Limits
    Only flags in global memory; what is read after the loop is taken to be what the flag announces, unless it is the
    flag itself, another one, or a kernel parameter. If only strong or `.nc` loads follow, the answer is unknown: they
    may be flags of their own, or read what nobody writes. Loops that retry an atomic are not looked at.
    A fence must reach the thread that writes the flag, not as far as the poll does: `.gpu` where nothing says that
    other devices write it, also after a volatile poll. Where the flag is accessed with `.sys` written out, and a fence
    stops at `.gpu`, the answer is unknown: it is wrong only if another device, or the host, is the writer.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.polls import is_polled
from verifier.analyses.visibility import acquires_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.isa.scopes import acquires
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.places import Place
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_ACCESSES = (Kind.LOAD, Kind.STORE, Kind.ATOMIC)
_OWN_FLAGS = "only loads follow that may be flags of their own, or what nobody writes (.nc)"
_OTHER_DEVICE = (
    "the acquire fence reaches this GPU only, and the flag is accessed with .sys: another device may write it"
)
_FIX = "poll with ld.acquire of a scope that reaches the writer, or put fence.acquire after the loop"


@rule(code="SCP303", name="relaxed-spin-then-data-read", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for poll in flow.select(lambda e: e.kind is Kind.LOAD and e.space == "global"):
            if is_polled(stream, poll):
                yield from _judge(model, stream, flow, poll)


def _judge(model: KernelModel, stream: Stream, flow: EventFlow, poll: Event) -> Iterator[Judgement]:
    flag = model.place(stream, poll, poll.address)
    flags = {e.instr for e in flow.select(lambda e: e.kind is Kind.LOAD) if is_polled(stream, e)}  # each tried again

    def reads(event: Event) -> bool:
        if event.kind is Kind.BULK_LOAD:
            return True
        if event.kind is not Kind.LOAD or event.space not in ("global", None) or event.instr in flags:
            return False
        return model.place(stream, event, event.address) != flag

    if flow.find_path(poll, reads, lambda e: False) is None:
        return
    if acquires(poll.sem):
        yield proved(model, stream, poll, f"polls with {poll.sem}.{poll.scope}")
        return
    near = poll.scope if poll.scope in ("cta", "cluster") else "gpu"
    if flow.find_path(poll, reads, lambda e: acquires_at(e, near, "global")) is None:
        far = flow.find_path(poll, reads, lambda e: acquires_at(e, "sys", "global"))
        if far is None or not _is_system_wide(model, poll, flag):
            yield proved(model, stream, poll, "an acquire fence on every path from the loop to the reads")
        else:
            yield unknown(model, stream, poll, _OTHER_DEVICE)
        return
    path = flow.find_path(poll, lambda e: reads(e) and not _stands_alone(e), lambda e: acquires_at(e, near, "global"))
    if path is None:
        yield unknown(model, stream, poll, _OWN_FLAGS)
        return
    how = f"{poll.sem}.{poll.scope}" if poll.scope else "weak"
    witness = (
        step(model, stream, poll, f"polls the flag; {how} orders nothing after it"),
        step(model, stream, path[-1], "reads memory with no acquire in between: it may be stale"),
    )
    message = f"{model.role_of(stream)} reads data after a spin on a flag that does not acquire"
    yield violated(model, stream, poll, message, severity=Severity.ERROR, witness=witness, fix=_FIX)


def _is_system_wide(model: KernelModel, poll: Event, flag: Place) -> bool:
    """Whether the flag is accessed, by the poll or elsewhere, with `.sys` written out: `.volatile` only implies it."""
    if _spells_sys(poll):
        return True
    others = [e for e in model.events if e.kind in _ACCESSES and _spells_sys(e)] if flag.resolved else []
    return any(model.place(s, e, e.address) == flag for s in model.streams for e in others if s.runs(e))


def _spells_sys(event: Event) -> bool:
    return event.scope == "sys" and event.has("sys")


def _stands_alone(read: Event) -> bool:
    """Whether a read may have nothing to do with the flag: a flag of its own, or of what nobody writes."""
    return read.kind is Kind.LOAD and (read.sem != "weak" or read.has("nc"))
