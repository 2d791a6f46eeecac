"""Scoreboards of the instructions of one function, as the issue logic sees them."""

from __future__ import annotations

from verifier.model.program import Function
from verifier.parse.control import control_of, depbar_of
from verifier.parse.sass_ast import SassInstruction

ALL = 0x3F


class Controls:
    """For each instruction: the mask of scoreboards that are zero before it acts, and the scoreboard that it releases
    when its results are written (None: it has none).

    `complete` is False when some instruction has no encoding (the listing was made without -hex).
    """

    def __init__(self, function: Function) -> None:
        self.waits: list[int] = []
        self.writes: list[int | None] = []
        self.complete = True
        for instr in function.instrs:
            origin = instr.origin
            control = control_of(origin) if isinstance(origin, SassInstruction) else None
            if control is None or not isinstance(origin, SassInstruction):
                self.complete = False
                self.waits.append(0)
                self.writes.append(None)
                continue
            depbar = depbar_of(origin)
            # A bound above zero proves nothing about a particular operation.
            drained = depbar.mask if depbar is not None and depbar.at_most == 0 else 0
            self.waits.append(control.wait | drained)
            self.writes.append(control.write)


def scoreboards(mask: int) -> str:
    """`SB0`, `SB1 or SB3`."""
    return " or ".join(f"SB{n}" for n in range(6) if mask >> n & 1)
