"""Scoreboards of the instructions of one function, as the issue logic sees them."""

from __future__ import annotations

from verifier.model.program import Function
from verifier.parse.control import control_of, depbar_of
from verifier.parse.sass_ast import SassInstruction

ALL = 0x3F


class Controls:
    """For each instruction: the mask of scoreboards that are zero before it acts (`waits`; `masks` is what of it stands
    in its encoding), and the scoreboards that it releases when its results are written and its sources read.

    `complete` is False when some instruction has no encoding (the listing was made without -hex).
    """

    def __init__(self, function: Function) -> None:
        self.waits: list[int] = []
        self.masks: list[int] = []
        self.writes: list[int | None] = []
        self.reads: list[int | None] = []
        self.complete = True
        for instr in function.instrs:
            origin = instr.origin
            control = control_of(origin) if isinstance(origin, SassInstruction) else None
            if control is None or not isinstance(origin, SassInstruction):
                self.complete = False
                self.waits.append(0)
                self.masks.append(0)
                self.writes.append(None)
                self.reads.append(None)
                continue
            depbar = depbar_of(origin)
            # A bound above zero proves nothing about a particular operation.
            drained = depbar.mask if depbar is not None and depbar.at_most == 0 else 0
            self.waits.append(control.wait | drained)
            self.masks.append(control.wait)
            self.writes.append(control.write)
            self.reads.append(control.read)


def scoreboards(mask: int) -> str:
    """`SB0`, `SB1 or SB3`."""
    return " or ".join(f"SB{n}" for n in range(6) if mask >> n & 1)
