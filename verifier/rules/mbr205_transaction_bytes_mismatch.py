"""Expected and delivered bytes of a barrier's phase differ.

What
    In every phase of an mbarrier the bytes announced with `expect_tx` equal the bytes that the copies of that phase
    complete.

Why
    A phase completes when its transaction count is back at zero. Too few bytes announced: the count goes negative and
    the phase never completes, or completes with half a tile. Too many: the phase never completes.

ISA
    PTX ISA 9.4, 9.7.15.16.8 "Phase completion", 9.7.15.16.14 "mbarrier.expect_tx"; 9.7.10.28 "cp.async.bulk": a
    complete-tx with the size of the copy.

Bad
    ```ptx
    warp 0:
    elect.sync _|q, -1;
    @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;                                      // MBR205
    @q cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [gp], 2048, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    ```

Good
    ```ptx
    warp 0:
    elect.sync _|q, -1;
    @q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    @q cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [gp], 2048, [bar];
    warp 1:
    L1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra L1;
    ```

Limits
    PTX does not say how many bytes a tensor copy moves. Its box is at most the gap to the next destination in shared
    memory; the sums are proved when boxes that fill their stages (or a power of two less of them) make every phase
    balance. A violation that rests on boxes filling their stages says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.alu import OFFSET_MASK
from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.transactions import Balance, Bytes, Equation, Sum, judge
from verifier.analyses.protocol.witness import location, role_at, step_at
from verifier.config import Policy
from verifier.findings import Hazard, Judgement
from verifier.model.events import Kind
from verifier.rules.protocol_support import broken, first, holds, not_run, open_question, protocol_of
from verifier.rules.registry import rule

_FIX = "announce exactly the bytes of the copies that complete on this barrier in one phase"


@rule(code="MBR205", name="transaction-bytes-mismatch", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    copies = (Kind.BULK_LOAD, Kind.BULK_PEER, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.CLC_CANCEL, Kind.BARRIER_EXPECT)
    copy = first(kernel, *copies)
    if copy is None or first(kernel, Kind.BARRIER_INIT) is None:
        return
    protocol = protocol_of(kernel)
    run = protocol.base or protocol.hang
    if run is None:
        yield open_question("all", copy.location, protocol.doubt, "bytes")
        return
    known = protocol.bytes_of(run)
    yield from not_run(protocol, Kind.BULK_LOAD)
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for balance in known.balances:
        key = (balance.barrier & OFFSET_MASK, balance.expecting)
        if key not in seen:
            seen.add(key)
            yield from _judge(protocol, run, known, balance)


def _judge(protocol: Protocol, run: Machine, known: Bytes, balance: Balance) -> Iterator[Judgement]:
    site = (balance.expecting or balance.copying)[0]
    role, shape = role_at(run, site), f"bytes of {balance.label.partition(' of ')[0]}"
    verdicts = [(equation, judge(equation, known)) for equation in balance.equations]
    bad = [(equation, why) for equation, why in verdicts if why in (Sum.SHORT, Sum.OVER, Sum.OVER_IF_DENSE)]
    if bad:
        yield _violation(run, known, balance, *bad[0])
    elif any(why is Sum.OPEN for _, why in verdicts):
        reason = f"the boxes of the tensor copies on {balance.label} are not determined by the code"
        yield open_question(role, location(run, site), reason, shape)
    else:
        expected = ", ".join(sorted({str(equation.expected) for equation in balance.equations}))
        yield holds(protocol, role, location(run, site), f"{expected} bytes a phase of {balance.label}", shape)


def _violation(run: Machine, known: Bytes, balance: Balance, equation: Equation, why: Sum) -> Judgement:
    site = (balance.expecting or balance.copying)[0]
    delivered = equation.most(known)
    words = {Sum.SHORT: "at most ", Sum.OVER: "", Sum.OVER_IF_DENSE: ""}[why]
    message = f"{balance.label} expects {equation.expected} bytes a phase, its copies deliver {words}{delivered}"
    if why is Sum.OVER_IF_DENSE:
        message += " if each box fills its stage"
    steps = [step_at(run, instr, f"announces bytes on {balance.label}") for instr in balance.expecting[:2]]
    steps += [
        step_at(run, instr, f"copies into a stage, completing on {balance.label}") for instr in balance.copying[:4]
    ]
    return broken(role_at(run, site), location(run, site), message, tuple(steps), _FIX, f"bytes {equation.expected}")
