"""The machine code does not keep the order of synchronization that the PTX states.

What
    Whatever comes before a synchronizing operation on all paths of the PTX (other synchronization, accesses to tensor
    memory and shared memory, MMAs, bulk copies) comes before it in the SASS of the same warps; no TMEM access slips
    behind an arrive that the PTX puts it before; and an arrive counts for as many arrivals.

Why
    ptxas may move a `tcgen05.ld` across a relaxed arrive, in both directions, and does. A load that sinks below the
    arrive reads columns that may already be overwritten. An arrive for one lane that becomes one for all active lanes
    completes the phase early.

ISA
    SASS of ptxas 12.9 to 13.5 (docs/facts.md: relaxed arrives are the only ones across which loads move). PTX ISA 9.4,
    9.7.15.16.13 "mbarrier.arrive".

Bad
    ```ptx
    warp 0:
    ld.global.b32 r9, [data]; add.u32 r9, r9, t;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {r2, r3, r4, r5}, [r9];
    mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];        // SAS802
    st.global.v4.b32 [gp], {r2, r3, r4, r5};
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    ld.global.b32 r9, [data]; add.u32 r9, r9, t;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {r2, r3, r4, r5}, [r9];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];
    st.global.v4.b32 [gp], {r2, r3, r4, r5};
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Limits
    SASS is joined to PTX by line information; a build without it is unknown. Fences that lower to no instruction of
    their own have no place in the SASS. Where order is lost only on paths of copied code, the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.releases import releases
from verifier.analyses.sass.arrivals import disagreement
from verifier.analyses.sass.compare import SYNCHRONIZES, WAITS, Comparison
from verifier.analyses.sass.order import Displaced
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.sass_support import apart, doubted, in_all_texts

_FIX = "complete the access before the signal: tcgen05.wait::ld (or ::st) between the two keeps ptxas from moving it"
_COUNT = "compare the builds of two assemblers; keep the arrive in a branch of its own"
_Given = set[tuple[int, int]]


@rule(code="SAS802", name="sass-reordered-synchronization", hazard=Hazard.CODEGEN, since="0.1.0", isa=("ptx", "sass"))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side, model = kernel.machine, kernel.ptx
    assert side is not None
    assert model is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    if not side.join.has_lines:
        yield from apart(kernel, SYNCHRONIZES, "the SASS has no line information that leads to the PTX")
        return
    found = releases(kernel, model, Kind.TMEM_LOAD, Kind.TMEM_WAIT_LOAD)
    given = {(load.instr, release.signal.instr) for release in found for load, _ in release.given}
    compared = False
    for stream in side.model.streams:
        for other in side.join.streams(stream):
            comparison = Comparison(side, kernel.flow(model, other), kernel.flow(side.model, stream))
            for event in comparison.events():
                compared = compared or any(copy.kind in SYNCHRONIZES for copy in comparison.copies(event))
                yield from _judge(model, other, comparison, event, given)
    if not compared:
        yield from apart(
            kernel, SYNCHRONIZES, "no synchronization of the PTX is found in the SASS, which may be of another program"
        )


def _judge(
    model: KernelModel, stream: Stream, comparison: Comparison, event: Event, given: _Given
) -> Iterator[Judgement]:
    for copy in comparison.copies(event) if event.kind is Kind.BARRIER_ARRIVE else ():
        text = disagreement(comparison.ptx_flow, event, comparison.sass_flow, copy)
        if text:
            yield _miscounted(model, stream, event, copy, text)
            return
    displaced = list(comparison.displaced(event))
    shown = [item for item in displaced if item.shown is not None]
    if shown:
        yield _moved(model, stream, comparison, event, shown[0], given)
    elif displaced:
        reason = f"{displaced[0].earlier.opcode} is not before it on every path of the SASS, which copies code"
        yield _answer(model, stream, comparison, event, Verdict.UNKNOWN, reason)
    elif comparison.earlier(event) or event.kind is Kind.BARRIER_ARRIVE:
        reason = f"{len(comparison.earlier(event))} operation(s) of the PTX come before it in the SASS, too"
        yield _answer(model, stream, comparison, event, Verdict.PROVED, reason)


def _answer(
    model: KernelModel, stream: Stream, comparison: Comparison, event: Event, verdict: Verdict, reason: str
) -> Judgement:
    return Judgement(
        verdict=verdict,
        role=model.role_of(stream),
        location=in_all_texts(event, comparison.copies(event)[0].location),
        reason=reason,
        message=f"cannot be decided: {reason}" if verdict is Verdict.UNKNOWN else "",
        severity=Severity.NOTE,
        hazard=Hazard.CODEGEN,
        shape=f"{event.opcode}: order",
    )


def _moved(
    model: KernelModel, stream: Stream, comparison: Comparison, event: Event, moved: Displaced, given: _Given
) -> Judgement:
    assert moved.shown is not None
    ahead, behind = moved.shown
    role = model.role_of(stream)
    earlier = moved.earlier
    message = f"{role}: the PTX has {earlier.opcode} before {event.opcode}, the SASS {_at(ahead)} before {_at(behind)}"
    witness = (
        WitnessStep(role=role, fact="comes first in the PTX", location=earlier.location),
        WitnessStep(role=role, fact="comes after it in the PTX", location=event.location),
        WitnessStep(role=role, fact=f"{_name(ahead)} comes first in the SASS", location=ahead.location),
        WitnessStep(role=role, fact=f"{_name(behind)} comes after it in the SASS", location=behind.location),
    )
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=in_all_texts(event, comparison.copies(event)[0].location),
        reason=message,
        message=message,
        severity=_severity(earlier, event, given),
        hazard=Hazard.CODEGEN,
        witness=witness,
        fix=_FIX,
        shape=f"{earlier.opcode}|{event.opcode}",
    )


def _severity(earlier: Event, later: Event, given: _Given) -> Severity:
    """An error where something is lost: columns that are given away, or an order that the PTX promises.

    A relaxed signal promises none for what comes before it, and no signal does for what comes after it.
    """
    if later.kind not in SYNCHRONIZES:
        return Severity.ERROR if earlier.kind in WAITS else Severity.NOTE
    if (earlier.instr, later.instr) in given:
        return Severity.ERROR
    return Severity.WARNING if later.sem == "relaxed" else Severity.ERROR


def _miscounted(model: KernelModel, stream: Stream, event: Event, copy: Event, text: str) -> Judgement:
    role = model.role_of(stream)
    witness = (
        WitnessStep(role=role, fact="arrives in the PTX", location=event.location),
        WitnessStep(role=role, fact=f"{copy.opcode} arrives in the SASS: {text}", location=copy.location),
    )
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=in_all_texts(event, copy.location),
        reason=text,
        message=f"{role} arrives for another number of arrivals than the PTX says: {text}",
        severity=Severity.ERROR,
        hazard=Hazard.CODEGEN,
        witness=witness,
        fix=_COUNT,
        shape=f"{event.opcode}|{text}",
    )


def _name(event: Event) -> str:
    return event.opcode.split(".")[0]


def _at(event: Event) -> str:
    return f"{_name(event)} at {event.location.sass_offset or 0:#x}"
