"""The hand-off table of `verifier show barriers`: each mbarrier, who signals it, who waits, and what it guards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from verifier.analyses.facts import KernelFacts
from verifier.analyses.guarded import handed_over
from verifier.model.barriers import Barrier, BarrierUse
from verifier.model.events import Event, Kind, in_shared
from verifier.model.kernel import KernelModel
from verifier.model.program import Arg, Const, Reg
from verifier.model.streams import Stream
from verifier.report.text import place

_FIRST = (Kind.BARRIER_INIT, Kind.BARRIER_EXPECT, Kind.BARRIER_ARRIVE, Kind.TMEM_COMMIT)
_COPIES = frozenset({Kind.BULK_LOAD, Kind.BULK_PEER, Kind.ASYNC_STORE, Kind.ASYNC_REDUCE, Kind.CLC_CANCEL})
_TENSOR = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE, Kind.TMEM_MMA, Kind.TMEM_COPY, Kind.TMEM_SHIFT})


def barriers(kernel: KernelFacts, model: KernelModel) -> Iterator[str]:
    """Each mbarrier of one instruction set: stages, arrival count, uses by role, and the data that it hands over."""
    found = model.barriers
    for barrier in found.arrays:
        count = "never initialised here" if barrier.count is None else f"count {barrier.count}"
        yield f"{barrier.name}: {_many(barrier.stages, 'stage')}, {count}"
        uses = [use for use in found.uses if use.barrier is barrier]
        waits = [use for use in uses if use.event.kind is Kind.BARRIER_WAIT]
        signals = [use for use in uses if use.event.kind is not Kind.BARRIER_WAIT]
        for kind in dict.fromkeys((*_FIRST, *(use.event.kind for use in signals))):
            yield from _lines(model, kind, [use for use in signals if use.event.kind is kind])
        yield from _lines(model, Kind.BARRIER_WAIT, waits)
        yield from _guards(kernel, model, barrier, signals)
    yield from _unresolved(kernel, model)
    if not found.arrays and not found.unresolved:
        yield "no mbarrier"


def _unresolved(kernel: KernelFacts, model: KernelModel) -> Iterator[str]:
    uses = model.barriers.unresolved
    if not uses:
        return
    head = f"unresolved: {_many(len(uses), 'use')} whose barrier is not known"
    if model is kernel.sass and kernel.ptx is not None:
        kinds = Counter(event.kind.value for _, event in uses)
        yield f"{head} from machine code ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}): see PTX"
        return
    yield head
    for stream, event in uses:
        yield f"    {model.role_of(stream)}: {event.kind.value}  [{place(event.location)}]  {event.opcode}"


def _lines(model: KernelModel, kind: Kind, uses: Sequence[BarrierUse]) -> Iterator[str]:
    """Uses of one kind: a line for each role and way, with all places."""
    grouped: dict[tuple[str, str], dict[str, None]] = {}
    for use in uses:
        order = f" {use.event.sem}" + (f".{use.event.scope}" if use.event.scope else "")
        where = " in a peer CTA" if use.remote else ""
        what = f"{kind.value}{order if use.event.sem != 'weak' else ''}{where}{_operands(use)}"
        grouped.setdefault((model.role_of(use.stream), what), {})[place(use.event.location)] = None
    for (role, what), places in grouped.items():
        yield f"    {what} by {role}: {'; '.join(places)}"


def _operands(use: BarrierUse) -> str:
    """Count, bytes and parity, as far as the instruction has them."""
    event, stream = use.event, use.stream
    parts = []
    if event.kind is Kind.BARRIER_ARRIVE and event.count is not None:
        parts.append(f"count {_number(stream, event, event.count)}")
    if event.size is not None:
        word = "expecting" if event.kind in (Kind.BARRIER_ARRIVE, Kind.BARRIER_EXPECT) else "of"
        parts.append(f"{word} {_number(stream, event, event.size)} bytes")
    if event.parity is not None:
        parts.append(f"parity {_number(stream, event, event.parity)}")
    return f" ({', '.join(parts)})" if parts else ""


def _number(stream: Stream, event: Event, operand: Arg) -> str:
    """A number where the operand folds to one, else the register."""
    constant = stream.value(event.instr, operand).constant
    if constant is not None:
        return str(constant)
    return operand.name if isinstance(operand, Reg) else str(operand.value) if isinstance(operand, Const) else "?"


def _guards(kernel: KernelFacts, model: KernelModel, barrier: Barrier, signals: Sequence[BarrierUse]) -> Iterator[str]:
    """What the signals hand over: bytes that copies write, and what a role touched before it arrived."""
    found: dict[str, None] = {}
    for use in signals:
        role = model.role_of(use.stream)
        if use.event.kind in _COPIES:
            found[f"{_at(model, use.stream, use.event)} written by {use.event.kind.value} of {role}"] = None
        elif use.event.kind is Kind.TMEM_COMMIT:
            found[f"tensor memory and operands of the MMAs of {role}"] = None
        elif use.event.kind in (Kind.BARRIER_ARRIVE, Kind.COPY_ARRIVE):
            for access in filter(_is_on_chip, handed_over(kernel, model, use)):
                found[f"{_at(model, use.stream, access)} of {access.kind.value} by {role}"] = None
    if found:
        yield f"    guards {'; '.join(found)}"


def _is_on_chip(access: Event) -> bool:
    return access.kind in _TENSOR or in_shared(access)


def _at(model: KernelModel, stream: Stream, access: Event) -> str:
    if access.kind in _TENSOR:
        return "tensor memory"
    where = model.place(stream, access, access.address)
    if where.base is None:
        return "shared memory"
    name = str(where.base.key[-1])
    return f"{name}+{where.first}{' + stage' if where.stage else ''}" if where.first or where.stage else name


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
