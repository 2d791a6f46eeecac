"""A setmaxnreg of the PTX is missing in the machine code.

What
    For every `setmaxnreg` of the PTX the SASS has a `USETMAXREG` of the same direction and count.

Why
    ptxas drops all of them, with nothing but an info line, when it cannot tell how many registers the kernel starts
    with. The warps that were to get 240 registers then run with the flat budget and spill, or the kernel runs at a
    fraction of the planned occupancy.

ISA
    PTX ISA 9.4, 9.7.20.5 "setmaxnreg" (it may have no effect); ptxas message C7508.

Bad
    ```ptx
    threads 384
    setp.lt.u32 q, r0, 128; @q bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 240;        // PRF604
    st.global.b32 [gp], r0; bra DONE;
    PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 24;        // PRF604
    DONE:
    ```

Good
    ```ptx
    threads 384
    .minnctapersm 1
    setp.lt.u32 q, r0, 128; @q bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 240;
    st.global.b32 [gp], r0; bra DONE;
    PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 24;
    DONE:
    ```

Limits
    Counts are compared for the warps of each role; a `USETMAXREG` without line information is matched by its count.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.side import SassSide
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, WitnessStep
from verifier.model.events import Event, Kind
from verifier.model.program import Const
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.sass_support import doubted
from verifier.rules.support import proved, step, violated

_DROPPED = "C7508"
_FIX = "state how many registers the kernel starts with: .minnctapersm 1 (CuTe DSL: min_blocks_per_mp=1) or .maxnreg"


@rule(code="PRF604", name="setmaxnreg-dropped", hazard=Hazard.PERFORMANCE, since="0.1.0", isa=("ptx", "sass"))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side = kernel.machine
    model = kernel.ptx
    assert side is not None
    assert model is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    for stream in model.streams:
        for event in kernel.flow(model, stream).select(lambda e: e.kind is Kind.REGISTERS):
            if any(_same(event, other) for other in _present(side, stream)):
                yield proved(model, stream, event, "USETMAXREG is in the SASS of these warps")
            else:
                yield _violation(kernel, side, stream, event)


def _present(side: SassSide, stream: Stream) -> list[Event]:
    members = set(stream.members)
    streams = [s for s in side.model.streams if members & set(s.members)]
    return [e for e in side.model.events if e.kind is Kind.REGISTERS and any(s.runs(e) for s in streams)]


def _same(ptx: Event, sass: Event) -> bool:
    direction = "inc" if ptx.opcode.startswith("setmaxnreg.inc") else "dec"
    known = isinstance(ptx.number, Const) and isinstance(sass.number, Const)
    return sass.has(direction) and (not known or ptx.number == sass.number)


def _violation(kernel: KernelFacts, side: SassSide, stream: Stream, event: Event) -> Judgement:
    model = kernel.ptx
    assert model is not None
    role = model.role_of(stream)
    said = [m for m in kernel.messages or () if m.code == _DROPPED]
    total = sum(e.kind is Kind.REGISTERS for e in side.model.events)
    witness = [
        step(model, stream, event, "asks for another number of registers"),
        WitnessStep(
            role=role, fact=f"the SASS of these warps has no such USETMAXREG ({total} in all)", location=event.location
        ),
        *(WitnessStep(role=role, fact=f"ptxas: ({m.code}) {m.text}", location=event.location) for m in said[:1]),
    ]
    return violated(
        model,
        stream,
        event,
        f"{role} asks for registers that it does not get: ptxas dropped the setmaxnreg",
        severity=Severity.WARNING,
        witness=tuple(witness),
        fix=_FIX,
        hazard=Hazard.PERFORMANCE,
    )
