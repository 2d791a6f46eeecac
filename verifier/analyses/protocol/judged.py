"""What the runs of a kernel show about tensor memory, in terms that rules can print."""

from __future__ import annotations

import msgspec

from verifier.analyses.protocol.explore import Protocol
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.shadow import Access
from verifier.analyses.protocol.signals import WaitRecord
from verifier.analyses.protocol.tmem import Clash


class LateRead(msgspec.Struct, frozen=True):
    """A load of columns that a signal had already given away: `clash` in `run`."""

    run: Machine
    clash: Clash


def late_reads(protocol: Protocol) -> dict[int, list[LateRead]]:
    """Releasing instruction -> loads that come after it although the release gives their columns away.

    Only what two runs show is reported: one script alone may break a contract between a kernel and its host.
    """
    found: dict[int, list[LateRead]] = {}
    seen: dict[tuple[int, int, int], int] = {}
    for run in protocol.runs:
        keys = set()
        for clash in run.tmem.clashes.values():
            if _is_late_read(run, clash) and clash.release is not None:
                keys.add((clash.release.instr, clash.conflict.earlier.instr, clash.conflict.later.instr))
        for key in keys:
            seen[key] = seen.get(key, 0) + 1
    for run in protocol.runs[:1]:
        for clash in run.tmem.clashes.values():
            if not _is_late_read(run, clash) or clash.release is None:
                continue
            key = (clash.release.instr, clash.conflict.earlier.instr, clash.conflict.later.instr)
            if seen[key] > 1 or len(protocol.runs) == 1:
                found.setdefault(clash.release.instr, []).append(LateRead(run, clash))
    return found


def _is_late_read(run: Machine, clash: Clash) -> bool:
    earlier, later = clash.conflict.earlier, clash.conflict.later
    if clash.conflict.issued or earlier.write or not later.write:
        return False
    return later.instr not in run.tmem.frees


def handovers(protocol: Protocol) -> set[tuple[int, int]]:
    """(releasing instruction, warp) of signals through which a later write of loaded columns is ordered."""
    found = set()
    for run in protocol.runs:
        for handover in run.tmem.handovers.values():
            if handover.writer not in run.tmem.frees:
                found.add((handover.instr, handover.warp[1]))
    return found


def last_wait(run: Machine, access: Access, component: int | None = None) -> WaitRecord | None:
    """The last wait of the access's warp before it; on one barrier when `component` is given."""
    for wait in reversed(run.signals.waits):
        if wait.warp != access.warp or wait.time > access.time:
            continue
        if component is None or wait.barrier.component == component:
            return wait
    return None
