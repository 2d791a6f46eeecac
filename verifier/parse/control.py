"""The control word of a SASS instruction: scheduling data that only `nvdisasm -hex` shows.

Positions were pinned on sm_90a and sm_100a with ptxas 13.5.37 (docs/facts.md): in the 128-bit encoding the stall count
is bits 105-108, the yield flag 109, the write scoreboard 110-112, the read scoreboard 113-115, the wait mask 116-121
and the reuse flags 122-124.
"""

from __future__ import annotations

import msgspec

from verifier.parse.sass_ast import Immediate, Indices, SassInstruction, Word

NO_SCOREBOARD = 7
SCOREBOARDS = 6

_STALL = 41  # positions within the second word
_YIELD = 45
_WRITE = 46
_READ = 49
_WAIT = 52
_REUSE = 58


class Control(msgspec.Struct, frozen=True, gc=False):
    """`write` and `read` are the scoreboards that the instruction releases when its results are written and when its
    sources have been read; `wait` is the mask of scoreboards that must be zero before it issues; `reuse` the mask
    of operand slots kept in the reuse cache; `stall` is in cycles."""

    stall: int
    yields: bool
    write: int | None
    read: int | None
    wait: int
    reuse: int

    def waits_for(self, scoreboard: int) -> bool:
        return bool(self.wait >> scoreboard & 1)


class Depbar(msgspec.Struct, frozen=True, gc=False):
    """A DEPBAR: waits until each scoreboard of `mask` counts `at_most` or less."""

    mask: int
    at_most: int


def decode_control(words: tuple[int, int]) -> Control:
    """Control data of the two 64-bit words of an encoding."""
    high = words[1]
    write = high >> _WRITE & 7
    read = high >> _READ & 7
    return Control(
        stall=high >> _STALL & 0xF,
        yields=not high >> _YIELD & 1,  # nvdisasm prints Y where the bit is clear
        write=None if write == NO_SCOREBOARD else write,
        read=None if read == NO_SCOREBOARD else read,
        wait=high >> _WAIT & 0x3F,
        reuse=high >> _REUSE & 7,
    )


def control_of(instruction: SassInstruction) -> Control | None:
    """Control data of an instruction; None when the listing was made without -hex."""
    return None if instruction.words is None else decode_control(instruction.words)


def depbar_of(instruction: SassInstruction) -> Depbar | None:
    """What a `DEPBAR.LE SBn, k[, {..}]` or `DEPBAR {..}` waits for; None for any other instruction."""
    if instruction.opcode.partition(".")[0] != "DEPBAR":
        return None
    mask = at_most = 0
    for operand in instruction.operands:
        if isinstance(operand, Word) and operand.text.startswith("SB"):
            mask |= 1 << int(operand.text[2:])
        elif isinstance(operand, Indices):
            mask |= sum(1 << index for index in operand.items)
        elif isinstance(operand, Immediate):
            at_most = int(operand.value)
    return Depbar(mask, at_most)
