"""Which state space a generic address points into, told by what the address is made of.

PTX ISA 9.4, 6.4.1.1 "Generic addressing": a generic address is made from one of a state space by `cvta`. Kernel
parameters that hold pointers are addresses of global memory (CUDA's launch interface knows no others).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from verifier.model.events import SHARED, Event, Kind
from verifier.model.lower_ptx import Resolved
from verifier.model.program import Arg, Function, Reg, Sym
from verifier.model.ssa import Ssa, SsaValue

_ACCESSES = frozenset({Kind.LOAD, Kind.STORE, Kind.ATOMIC})
_POINTER_BITS = 64
_INDICES = frozenset({"mul", "shl", "shr", "div", "rem", "zext", "sext"})  # their results are no pointers
_SPACES = (*sorted(SHARED, reverse=True), "global", "local", "const", "param", "param::entry", "param::func")


def resolve_spaces(function: Function, ssa: Ssa, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events, with the space of generic accesses filled in where it is known."""
    return tuple(_resolved(function, ssa, e) if e.kind in _ACCESSES and e.space is None else e for e in events)


def _resolved(function: Function, ssa: Ssa, event: Event) -> Event:
    terms = event.address.terms if event.address is not None else ()
    reads = ssa.reads[event.instr]
    found = frozenset(_made_of(function, [reads.get(t.name, t) if isinstance(t, Reg) else t for t in terms]))
    shared = found & SHARED
    if shared:  # also where it may be another space: what may be shared memory is taken to be it
        space = "shared::cluster" if "shared::cluster" in shared else "shared"
    elif len(found) == 1:
        (space,) = found
    else:
        return event
    return msgspec.structs.replace(event, space=space)


def _made_of(function: Function, roots: Iterable[SsaValue | Arg]) -> Iterator[str]:
    """Spaces of the objects and pointers that a sum, a select or a merge of addresses goes back to."""
    work, seen = list(roots), set[int]()
    while work:
        value = work.pop()
        if isinstance(value, Sym) and value.space in _SPACES:
            yield value.space
        if not isinstance(value, SsaValue) or value.id in seen:
            continue
        seen.add(value.id)
        if value.old is not None:
            work.append(value.old)
        if value.incoming is not None:
            work += value.incoming.values()
        elif value.assign is not None and value.assign.width >= _POINTER_BITS:
            space = _given(function, value)
            if space:
                yield space
            elif value.assign.op not in _INDICES:
                work += value.args


def _given(function: Function, value: SsaValue) -> str | None:
    """The space that an instruction itself gives its result."""
    assert value.assign is not None
    resolved = function.instrs[value.instr].origin
    if value.assign.op == "ld_param":
        return "global"
    if value.assign.op == "mapa":
        return "shared::cluster"
    if isinstance(resolved, Resolved) and resolved.op.family == "cvta":
        return resolved.op.first_of(_SPACES)
    return None
