"""What the runs of a kernel show about its memories, in terms that rules can print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from verifier.analyses.protocol.explore import Protocol, agreed
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access, Conflict
from verifier.analyses.protocol.signals import WaitRecord
from verifier.analyses.protocol.tmem import Clash
from verifier.model.events import Kind


class LateRead(msgspec.Struct, frozen=True):
    """Two accesses of tensor memory that nothing orders, in `run`."""

    run: Machine
    clash: Clash


def late_reads(protocol: Protocol, *, sure: bool = True) -> dict[int, list[LateRead]]:
    """Releasing instruction -> loads that come after it although the release gives their columns away.

    Unless `sure`, also what only one kind of inputs shows.
    """
    found: dict[int, list[LateRead]] = {}
    for read in _confirmed(protocol, _is_late_read, sure):
        release = read.clash.release
        if release is not None:
            found.setdefault(release.instr, []).append(read)
    return found


def early_frees(protocol: Protocol, *, sure: bool = True) -> dict[int, list[LateRead]]:
    """Dealloc instruction -> accesses that nothing orders with it; unless `sure`, also what one kind of input shows."""
    found: dict[int, list[LateRead]] = {}
    for read in _confirmed(protocol, _is_early_free, sure):
        conflict = read.clash.conflict
        freeing = conflict.later if conflict.later.instr in read.run.tmem.frees else conflict.earlier
        found.setdefault(freeing.instr, []).append(read)
    return found


def _confirmed(protocol: Protocol, wanted: Callable[[Machine, Clash], bool], sure: bool) -> Iterator[LateRead]:
    """Clashes that enough runs show at the same instructions; of these, all footprints of the first such run."""

    def sites(run: Machine) -> dict[tuple[int, int], Clash]:
        return {_key(c.conflict): c for c in run.tmem.clashes.values() if wanted(run, c)}

    for run, chosen in agreed(protocol.runs, sites, protocol.needed if sure else 1):
        for clash in run.tmem.clashes.values():
            if wanted(run, clash) and _key(clash.conflict) == _key(chosen.conflict):
                yield LateRead(run, clash)


def tmem_races(protocol: Protocol, *, sure: bool = True) -> dict[int, list[LateRead]]:
    """Later instruction -> accesses of tensor memory that nothing orders, beside late reads and early frees.

    A load or store of the earlier warp that it has only not waited for is left to the rules on wait::ld and wait::st.
    """
    found: dict[int, list[LateRead]] = {}
    for read in _confirmed(protocol, _is_tmem_race, sure):
        found.setdefault(read.clash.conflict.later.instr, []).append(read)
    return found


def _is_tmem_race(run: Machine, clash: Clash) -> bool:
    if _is_early_free(run, clash) or (_is_late_read(run, clash) and clash.release is not None):
        return False
    earlier = run.code.events[clash.conflict.earlier.instr]
    return not (clash.conflict.issued and earlier.kind in (Kind.TMEM_LOAD, Kind.TMEM_STORE))


def _is_late_read(run: Machine, clash: Clash) -> bool:
    earlier, later = clash.conflict.earlier, clash.conflict.later
    if clash.conflict.issued or earlier.write or not later.write or earlier.instr in run.tmem.inputs:
        return False
    return later.instr not in run.tmem.frees


def _is_early_free(run: Machine, clash: Clash) -> bool:
    return bool({clash.conflict.earlier.instr, clash.conflict.later.instr} & run.tmem.frees)


def handovers(protocol: Protocol) -> set[tuple[int, int]]:
    """(releasing instruction, warp) of signals through which a later write of loaded columns is ordered."""
    found = set()
    for run in protocol.runs:
        for handover in run.tmem.handovers.values():
            if handover.writer not in run.tmem.frees:
                found.add((handover.instr, handover.warp[1]))
    return found


def races(protocol: Protocol) -> dict[int, list[tuple[Machine, Conflict]]]:
    """Later instruction -> unordered accesses of shared memory, as at least two runs show.

    Corner cases (zero trips) count, and so does what happened before an input was missing.
    """
    found: dict[int, list[tuple[Machine, Conflict]]] = {}
    runs = _in_phase((*protocol.runs, *protocol.corners, *protocol.partial))
    for run, conflict in agreed(runs, _race_sites, protocol.needed):
        found.setdefault(conflict.later.instr, []).append((run, conflict))
    return found


def odd_races(protocol: Protocol) -> dict[int, Machine]:
    """Later instruction -> run of unordered accesses that only one kind of inputs shows."""
    return {c.later.instr: run for run, c in agreed(_in_phase(protocol.runs), _race_sites, 1)}


def _in_phase(runs: Iterable[Machine]) -> list[Machine]:
    """A run whose signals may land in other phases shows that, and no more."""
    return [run for run in runs if not (run.signals.early or run.signals.excess)]


def _race_sites(run: Machine) -> dict[tuple[int, int], Conflict]:
    return {_key(conflict): conflict for conflict in run.traffic.conflicts.values()}


def _key(conflict: Conflict) -> tuple[int, int]:
    return (conflict.earlier.instr, conflict.later.instr)


def last_wait(run: Machine, access: Access, component: int | None = None) -> WaitRecord | None:
    """The last wait of the access's warp before it; on one barrier when `component` is given."""
    for wait in reversed(run.signals.waits):
        if wait.warp != access.warp or wait.time > access.time:
            continue
        if component is None or wait.barrier.component == component:
            return wait
    return None
