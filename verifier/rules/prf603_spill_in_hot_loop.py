"""A loop moves registers to local memory and back.

What
    No loop that does work contains `LDL` or `STL`: spilled registers, or an array that the compiler could not keep in
    registers.

Why
    Local memory is memory: each access costs L1 bandwidth and, after an eviction, a trip to L2. In the loop of a GEMM
    the accumulators are the usual victims, when one more live value exceeds the register budget of the launch.

ISA
    SASS of ptxas 12.9 to 13.5: `LDL` and `STL`. PTX ISA 9.4, 5.1.5 "Local state space", 11.4.2 ".maxnreg".

Bad
    ```ptx
    threads 1024
    .local .align 4 .b8 stack[512];
    mov.b32 r9, stack;
    L0: and.b32 r5, r4, 31; shl.b32 r5, r5, 2; add.u32 r6, r9, r5;
    ld.local.b32 r7, [r6];        // PRF603
    add.u32 r7, r7, r3;
    st.local.b32 [r6], r7;
    add.u32 r4, r4, 3; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    st.global.b32 [gp], r7;
    ```

Good
    ```ptx
    L0: add.u32 r7, r7, r3;
    ld.global.b32 r5, [gp]; add.u32 r7, r7, r5;
    add.u32 r4, r4, 3; setp.lt.u32 q2, r4, r8; @q2 bra L0;
    st.global.b32 [gp], r7;
    ```

Limits
    Whether an access spills a register or belongs to an array in local memory is told by the PTX line it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass.hot import within
from verifier.analyses.sass.side import SassSide
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity, Verdict, WitnessStep
from verifier.model.cfg import Loop
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream
from verifier.rules.hot_loops import Costly, clean_loops
from verifier.rules.registry import rule
from verifier.rules.sass_support import doubted

_WHAT = Costly("LDL or STL", "uses local memory")
_SPILLS = "raise the register budget (.maxnreg, setmaxnreg, fewer threads) or shorten what lives across the loop"
_ARRAY = "index the array with constants (unroll the loop) so that it can stay in registers"


@rule(code="PRF603", name="spill-in-hot-loop", hazard=Hazard.PERFORMANCE, since="0.1.0", isa=("sass",))
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    side = kernel.machine
    assert side is not None
    if doubt := list(doubted(side)):
        yield from doubt
        return
    for stream in side.model.streams:
        spills = kernel.flow(side.model, stream).select(lambda e: e.kind is Kind.SPILL)
        yield from clean_loops(side, stream, spills, _WHAT)
        for loop in side.loops(stream).outermost:
            inside = [e for e in spills if within(stream, [loop], e)]
            if inside:
                yield _violation(side, stream, loop, inside)


def _violation(side: SassSide, stream: Stream, loop: Loop, inside: Sequence[Event]) -> Judgement:
    role = side.model.role_of(stream)
    loops = side.loops(stream)
    loads = sum(e.has("load") for e in inside)
    array = [e for e in inside if any(source.space == "local" for source in side.join.events(e.instr))]
    what = "spilled registers" if not array else "a local array" if len(array) == len(inside) else "an array and spills"
    message = f"{role} uses local memory in a loop: {loads} LDL and {len(inside) - loads} STL, {what}"
    deepest = sorted(inside, key=lambda e: -loops.depth(e.instr))[:3]
    witness = [
        WitnessStep(role=role, fact=f"{e.opcode}, {loops.depth(e.instr)} loop(s) around it", location=e.location)
        for e in deepest
    ]
    return Judgement(
        verdict=Verdict.VIOLATED,
        role=role,
        location=inside[0].location,
        reason=message,
        message=message,
        severity=Severity.WARNING,
        hazard=Hazard.PERFORMANCE,
        witness=tuple(witness),
        fix=_ARRAY if len(array) == len(inside) else _SPILLS,
        shape=f"local memory in a loop: {what}",
    )
