"""Whether every wait of a run means one phase in every schedule (checks (b) and (c); (a) and (d) are in `signals`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.signals import WaitRecord

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine


class WaitFault(msgspec.Struct, frozen=True):
    """`wait` may return for another phase than the one it means, or miss it.

    `passer` is the phase whose completion does not depend on the wait: after it the parity of the wait means the
    phase two further on.
    """

    wait: WaitRecord
    passer: int


def wait_faults(machine: Machine) -> list[WaitFault]:
    """The first faulty wait of each site and warp."""
    found: dict[tuple[int, tuple[int, int]], WaitFault] = {}
    components = {name: warp.component for name, warp in machine.warps.items()}
    for wait in machine.signals.waits:
        key = (wait.instr, wait.warp)
        if key in found:
            continue
        following = wait.meant + 1
        if wait.seen != wait.meant:
            found[key] = WaitFault(wait, following)
        elif following < wait.barrier.current:
            clock = wait.barrier.phases[following].clock
            if clock.get(components[wait.warp], -1) < wait.epoch:
                found[key] = WaitFault(wait, following)
    return list(found.values())
