"""What a kernel costs, before and after: resources, instructions, and every opcode that synchronizes or spills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from verifier.diff.lines import LineKind, Listing
from verifier.diff.sides import Side

Number = int | float

LOOPS = " in loops"
# Opcodes beside those that synchronize whose number a reviewer looks at.
_WATCHED = ("NOP", "LDL", "STL")


class Delta(msgspec.Struct, frozen=True):
    """A number before and after; None where a side does not tell."""

    before: Number | None
    after: Number | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


Metrics = Mapping[str, Delta]


def resources(before: Side, after: Side) -> dict[str, Delta]:
    """Registers, stack, shared memory, barriers, spills and code size, as far as the builds say."""
    ours, theirs = _resources(before), _resources(after)
    return {name: Delta(ours.get(name), theirs.get(name)) for name in dict.fromkeys((*ours, *theirs))}


def _resources(side: Side) -> dict[str, Number]:
    found: dict[str, Number | None] = {}
    if side.usage is not None:
        found["spill store bytes"] = side.usage.spill_stores
        found["spill load bytes"] = side.usage.spill_loads
    if side.info is not None:
        found = {
            "registers": side.info.registers,
            **found,
            "stack bytes": side.info.frame,
            "shared bytes": side.info.shared,
            "barriers": side.info.barriers,
            "code bytes": side.info.code_size,
        }
    return {name: value for name, value in found.items() if value is not None}


def opcodes(before: Listing, after: Listing) -> dict[str, Delta]:
    """Instructions of all kinds, and the number of each watched opcode, all and `in loops`."""
    name = f"{before.level.upper()} instructions"
    ours, theirs = _counts(before), _counts(after)
    table = {name: Delta(before.instructions, after.instructions)}
    table.update({key: Delta(ours[key], theirs[key]) for key in sorted(ours.keys() | theirs.keys())})
    return table


def _counts(listing: Listing) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in listing.lines:
        if line.kind is LineKind.INSTRUCTION and (line.synchronizes or line.opcode.split(".")[0] in _WATCHED):
            counts[line.opcode] += 1
            counts[line.opcode + LOOPS] += line.depth > 0
    return counts


def family(metrics: Metrics, name: str) -> Delta | None:
    """The metric `name`, or the sum over the opcodes that begin with it: `MEMBAR` counts `MEMBAR.ALL.GPU`, too.

    None when nothing of that name was measured on either side.
    """
    if name in metrics:
        return metrics[name]
    stem, loops = (name.removesuffix(LOOPS), LOOPS) if name.endswith(LOOPS) else (name, "")
    found = [d for key, d in metrics.items() if key.startswith(f"{stem}.") and key.endswith(LOOPS) == bool(loops)]
    if not found:
        return None
    return Delta(sum(d.before or 0 for d in found), sum(d.after or 0 for d in found))
