"""The machine code gives a TMEM stage away while a load of it is still in flight.

What
    At every instruction of the SASS that realizes a release of tensor memory, each `LDTM` of what is given away has
    completed on all paths: a scoreboard that it, or a younger `LDTM`, releases has been waited for.

Why
    `tcgen05.wait::ld` is a promise of the PTX; in machine code it is a wait mask on some later instruction, and
    assemblers have lost it: ptxas 12.9 puts no wait before the arrive when load and `wait::ld` stand in different
    blocks. The PTX is right, the kernel races.

ISA
    SASS of ptxas 12.9 to 13.5: `LDTM` releases a write scoreboard when its registers are written, in order; the wait
    mask is bits 116-121 of an encoding (docs/facts.md). PTX ISA 9.4, 9.7.18.8.5 "tcgen05.wait".

Bad
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];        // SAS801
    st.global.b32 [gp], r2;
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Good
    ```ptx
    warp 0:
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [t];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.shared::cta.b64 _, [bar];
    st.global.b32 [gp], r2;
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
    tcgen05.fence::after_thread_sync;
    tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
    ```

Limits
    Which signals give tensor memory away is read from the PTX, as for TCG101. Without PTX every arrive-like instruction
    counts, and a load in flight there is unknown, not wrong. Calls are not followed. Flags in ordinary memory are
    judged where some role polls memory before it writes tensor memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.handoff import Handoffs
from verifier.analyses.releases import Release, releases
from verifier.analyses.sass.sinks import is_flag, is_sink, polls_before_tmem_writes
from verifier.analyses.sass_evidence import Evidence, SassLoads, sass_loads
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict, WitnessStep
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.rules.registry import rule
from verifier.rules.sass_support import distrusted, in_all_texts, unguarded_uses
from verifier.rules.support import proved, unknown

_FIX = (
    "put tcgen05.wait::ld between the load and this release; where it is there, the assembler lost it: "
    "assemble with ptxas 13.0 or newer"
)
_MORE_SIGNALS = frozenset({Kind.TMEM_COMMIT, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.BARRIER_COMPLETE})


@rule(
    code="SAS801",
    name="sass-tmem-load-in-flight-at-release",
    hazard=Hazard.CODEGEN,
    since="0.1.0",
    isa=("sass",),
    arch=("sm_100", "sm_101", "sm_103", "sm_107", "sm_110"),
)
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side = kernel.machine
    assert side is not None
    if not any(e.kind is Kind.TMEM_LOAD for e in side.model.events):
        return
    loads = sass_loads(kernel)
    if loads is None:
        yield distrusted(side)
        return
    yield from unguarded_uses(side)
    if kernel.ptx is None:
        yield from _without_ptx(kernel, loads)
    else:
        for release in _releases(kernel, kernel.ptx):
            yield from _judge(kernel.ptx, loads, release)


def _releases(kernel: KernelFacts, model: KernelModel) -> Iterator[Release]:
    """Signals that give TMEM away, those of the tensor core, of st.async and of flags in memory included."""
    yield from releases(kernel, model, Kind.TMEM_LOAD, Kind.TMEM_WAIT_LOAD)
    handoffs = Handoffs(kernel, model)
    polled = polls_before_tmem_writes(kernel, model)
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        accesses = flow.select(lambda e: e.kind is Kind.TMEM_LOAD)
        issued = flow.may_reach(accesses, lambda e: False)
        for signal in flow.select(lambda e: e.kind in _MORE_SIGNALS or is_flag(e)):
            before = [a for i, a in enumerate(accesses) if issued.get(signal.instr, 0) >> i & 1]
            if not before:
                continue
            if is_flag(signal):
                if polled:
                    yield Release(stream, signal, (), tuple(before), False)
                continue
            takers = [(access, handoffs.takers(stream, signal, access)) for access in before]
            given = tuple((access, found[0]) for access, found in takers if found)
            if given:
                yield Release(stream, signal, given, (), True)


def _judge(model: KernelModel, loads: SassLoads, release: Release) -> Iterator[Judgement]:
    targets = [load for load, _ in release.given]
    if not release.resolved:
        targets = [event for event in model.events if event.kind is Kind.TMEM_LOAD]
    if not targets:
        return
    evidence = loads.judge(release.stream, release.signal, targets)
    if evidence.verdict is Verdict.PROVED:
        yield _answer(model, release, evidence, Verdict.PROVED, evidence.text)
    elif evidence.verdict is Verdict.UNKNOWN or not release.resolved:
        reason = evidence.text if release.resolved else f"{evidence.text}; who waits for this signal is not known"
        yield _answer(model, release, evidence, Verdict.UNKNOWN, reason)
    else:
        yield _violation(model, release, evidence)


def _answer(model: KernelModel, release: Release, evidence: Evidence, verdict: Verdict, reason: str) -> Judgement:
    return Judgement(
        verdict=verdict,
        role=model.role_of(release.stream),
        location=in_all_texts(release.signal, evidence.sink),
        reason=reason,
        message=f"cannot be decided: {reason}" if verdict is Verdict.UNKNOWN else "",
        severity=Severity.WARNING,
        hazard=Hazard.CODEGEN,
        shape=f"{release.signal.opcode}: {verdict.value}",
    )


def _violation(model: KernelModel, release: Release, evidence: Evidence) -> Judgement:
    role = model.role_of(release.stream)
    taken = dict(release.given)
    taker = next(iter(taken.values()))
    receiver = model.role_of(taker.stream)
    assert evidence.load is not None
    assert evidence.sink is not None
    issued = "LDTM is issued, behind the signal"
    signals = "signals, and the load is still to come"
    if evidence.missing:
        issued = f"LDTM is issued; it releases {evidence.missing} when it is complete"
        signals = f"signals without having waited for {evidence.missing}"
    witness = (
        WitnessStep(role=role, fact=issued, location=evidence.load),
        WitnessStep(role=role, fact=signals, location=evidence.sink),
        WitnessStep(role=receiver, fact="waits for that signal", location=taker.wait.location),
        WitnessStep(
            role=receiver,
            fact=f"may now touch the same columns ({taker.write.kind.value})",
            location=taker.write.location,
        ),
    )
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=in_all_texts(release.signal, evidence.sink),
        reason=evidence.text,
        message=f"in the machine code {role} gives TMEM to {receiver} before a load of it is complete: {evidence.text}",
        severity=Severity.ERROR,
        hazard=Hazard.CODEGEN,
        witness=witness,
        fix=_FIX,
        shape=f"{release.signal.opcode}|{evidence.missing}",
    )


def _without_ptx(kernel: KernelFacts, loads: SassLoads) -> Iterator[Judgement]:
    """Every sink that a load comes before: which of them give TMEM away is not known."""
    model = loads.side.model
    for stream in model.streams:
        flight = loads.flight(stream)
        for sink in kernel.flow(model, stream).select(is_sink):
            if not flight.before(sink):
                continue
            evidence = loads.judge_sink(stream, sink)
            if evidence.verdict is Verdict.PROVED:
                yield proved(model, stream, sink, evidence.text)
            else:
                yield unknown(model, stream, sink, f"{evidence.text}; without PTX nobody can tell whether it matters")
