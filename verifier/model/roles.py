"""Names for what warps do: streams of the same warps and the same main work are one role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from verifier.model.events import Event, Kind
from verifier.model.streams import Stream


class Role(msgspec.Struct, frozen=True):
    """Warps with one task, and the streams they execute (several when a leader warp has extra duties)."""

    name: str
    warps: tuple[int, ...]
    streams: tuple[Stream, ...]


# What a warp is called, by the first line whose work it does. The order says which work is the more telling one.
_NAMES: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("mma", frozenset({Kind.TMEM_MMA})),
    ("softmax", frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE})),
    ("epilogue", frozenset({Kind.TMEM_LOAD})),
    ("wgmma", frozenset({Kind.WGMMA_MMA})),
    ("tma-load", frozenset({Kind.BULK_LOAD})),
    ("scheduler", frozenset({Kind.CLC_CANCEL})),
    ("tma-store", frozenset({Kind.BULK_STORE})),
    ("copy", frozenset({Kind.COPY_ASYNC})),
    ("sender", frozenset({Kind.ASYNC_STORE})),
)
_MAIN = frozenset().union(*(kinds for _, kinds in _NAMES))


def name_roles(streams: Sequence[Stream], events: Sequence[Event]) -> tuple[Role, ...]:
    """Roles in the order of their first warp. A name that several roles would have gets a number."""
    by_warp: dict[int, list[Stream]] = {}
    for stream in streams:
        for warp in stream.warps:
            by_warp.setdefault(warp, []).append(stream)
    distinct = len({s.instructions for s in streams}) > 1
    common = frozenset.intersection(*(s.instructions for s in streams)) if distinct else frozenset()
    groups: list[tuple[str, frozenset[int], list[int]]] = []
    for warp in sorted(by_warp):
        name, work = _describe(by_warp[warp], events, common)
        for other, shared, warps in groups:
            if name == other and (work & shared or (not work and not shared)):
                warps.append(warp)
                break
        else:
            groups.append((name, work, [warp]))
    return tuple(_numbered(groups, by_warp))


def _describe(streams: Sequence[Stream], events: Sequence[Event], common: frozenset[int]) -> tuple[str, frozenset[int]]:
    """(name, the events that make it) of one warp."""
    reached = frozenset().union(*(s.instructions for s in streams))
    own = [e for e in events if e.instr in reached and any(s.runs(e) for s in streams)]
    specific = [e for e in own if e.instr not in common]
    kinds = {e.kind for e in specific}
    for name, wanted in _NAMES:
        if wanted <= kinds:
            return name, frozenset(e.instr for e in specific if e.kind in wanted)
    if common and not any(e.kind is not Kind.EXIT for e in specific):
        return "idle", frozenset()
    if any(e.kind in (Kind.BARRIER_ARRIVE, Kind.BARRIER_WAIT) for e in specific):
        return "scheduler", frozenset(e.instr for e in specific if e.kind is Kind.BARRIER_WAIT)
    if common and kinds & _MAIN == set() and not any(e.kind in (Kind.LOAD, Kind.STORE) for e in specific):
        return "helper", frozenset()
    return "all" if not common else "worker", frozenset(e.instr for e in specific)


def _numbered(groups: Sequence[tuple[str, frozenset[int], list[int]]], by_warp: dict[int, list[Stream]]) -> list[Role]:
    totals = Counter(name for name, _, _ in groups)
    seen: Counter[str] = Counter()
    roles = []
    for name, _, warps in groups:
        seen[name] += 1
        label = f"{name}-{seen[name]}" if totals[name] > 1 else name
        streams = list(dict.fromkeys(s for w in warps for s in by_warp[w]))
        roles.append(Role(label, tuple(warps), tuple(streams)))
    return roles
