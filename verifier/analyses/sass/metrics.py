"""Numbers of a kernel's machine code: instructions, and each opcode that synchronizes or spills, all and in loops."""

from __future__ import annotations

from collections import Counter

from verifier.analyses.sass.side import SassSide
from verifier.isa.sass_ops import Part, decode
from verifier.parse.sass_ast import SassInstruction

LOOPS = " in loops"
_ORDINARY = frozenset(
    {Part.PLAIN, Part.NOP, Part.CONTROL, Part.COLLECTIVE, Part.SLEEP, Part.LOAD, Part.STORE, Part.CACHE_CONTROL}
)


def sass_metrics(side: SassSide) -> dict[str, int]:
    """`sass_instructions`, and for each such opcode its number and, as `<opcode> in loops`, that in loops that do work.

    The padding behind a function does not count, and a wait's own retry loop is no loop.
    """
    instrs = side.model.function.instrs
    counts: Counter[str] = Counter()
    hot = _in_hot_loops(side)
    for instr in instrs:
        op = decode(instr.opcode)
        if op.part in _ORDINARY and op.row.space != "local":
            continue
        counts[instr.opcode] += 1
        counts[instr.opcode + LOOPS] += instr.index in hot
    return {"sass_instructions": len(instrs) - _padding(side), **{name: counts[name] for name in sorted(counts)}}


def _in_hot_loops(side: SassSide) -> frozenset[int]:
    found: set[int] = set()
    for stream in side.model.streams:
        for loop in side.loops(stream).outermost:
            for block in loop.blocks:
                bounds = stream.cfg.blocks[block]
                found.update(range(bounds.start, bounds.end))
    return frozenset(found)


def _padding(side: SassSide) -> int:
    """NOPs at the end, and the branch to itself before them."""
    count = 0
    for instr in reversed(side.model.function.instrs):
        origin = instr.origin
        if not isinstance(origin, SassInstruction) or origin.opcode not in ("NOP", "BRA"):
            break
        count += 1
        if origin.opcode == "BRA":
            break
    return count
