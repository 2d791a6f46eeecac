"""The warps together ask for more registers than the SM has: setmaxnreg.inc waits for ever.

What
    The register counts that the warps of a CTA end up with (`setmaxnreg`, or the count at entry) add up to at most the
    register file.

Why
    `setmaxnreg.inc` blocks until the CTA's pool has enough free registers. When the sum is too large, the last
    warpgroup never gets them and the kernel hangs at its start.

ISA
    PTX ISA 9.4, 9.7.21.5 "setmaxnreg": the pool is the CTA's registers at launch; compute capability 9.0 and 10.x have
    65,536 registers an SM (CUDA Programming Guide, compute capabilities).

Bad
    ```ptx
    threads 512
    setp.lt.u32 q, r0, 256;
    @q bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 240;        // RES951
    bra DONE;
    PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 24;
    DONE:
    ```

Good
    ```ptx
    threads 512
    setp.lt.u32 q, r0, 256;
    @q bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 224;
    bra DONE;
    PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 24;
    DONE:
    ```

Limits
    Warps that never change their count are taken at their share of the register file, the most they can have had at
    entry. The largest count that a warp asks for on any path is the one that is summed.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream
from verifier.model.values import WARP
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_REGISTER_FILE = 65_536
_GRANULARITY = 8
_FIX = "lower the setmaxnreg.inc counts: sum of (threads x registers) over all warps at most 65,536"


@rule(code="RES951", name="register-pool-oversubscribed", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    changes = [(s, e) for s in model.streams for e in model.events if e.kind is Kind.REGISTERS and s.runs(e)]
    raises = [(s, e) for s, e in changes if e.opcode.startswith("setmaxnreg.inc")]
    if not raises:
        return
    stream, largest = max(raises, key=lambda pair: _count(*pair) or 0)
    warps = {warp: s for s in model.streams for warp in s.warps}
    if model.shape.block is None or any(_count(s, e) is None for s, e in changes):
        yield unknown(model, stream, largest, "block size or register count is not known")
        return
    entry = _REGISTER_FILE // (len(warps) * WARP) // _GRANULARITY * _GRANULARITY
    wanted = {warp: max((_count(s, e) or 0 for s, e in changes if warp in s.warps), default=entry) for warp in warps}
    total = WARP * sum(wanted.values())
    if total <= _REGISTER_FILE:
        yield proved(model, stream, largest, f"{total} of {_REGISTER_FILE} registers")
        return
    steps = tuple(step(model, s, e, f"warps {_list(s)} go to {_count(s, e)} registers") for s, e in changes[:8])
    message = f"the warps ask for {total} registers, the SM has {_REGISTER_FILE}: setmaxnreg.inc never returns"
    yield violated(model, stream, largest, message, severity=Severity.ERROR, witness=steps, fix=_FIX)


def _count(stream: Stream, event: Event) -> int | None:
    return stream.value(event.instr, event.number).constant if event.number is not None else None


def _list(stream: Stream) -> str:
    return ", ".join(map(str, stream.warps))
