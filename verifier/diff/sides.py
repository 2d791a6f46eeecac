"""One build of one kernel as the comparison takes it, and which builds of two sets belong together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec

from verifier.analyses.facts import KernelFacts
from verifier.compile.artifacts import Usage
from verifier.diff.sass_lines import MachineCode
from verifier.launch import LaunchFacts
from verifier.parse.cubin import KernelInfo
from verifier.parse.ptx_ast import PtxFile


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One build of one kernel.

    `name` is the kernel's name for people, `entry` that of its entry function, `path` where it lies below what was
    compared or the kernel case that it is of ("" for a single file). `ir` is the text of the compiler's IR. File names
    below `root` are shown without.
    """

    name: str
    entry: str
    arch: str
    path: str
    source: str
    facts: KernelFacts
    launch: LaunchFacts = LaunchFacts()
    ptx: PtxFile | None = None
    sass: MachineCode | None = None
    info: KernelInfo | None = None
    usage: Usage | None = None
    ir: str | None = None
    toolchain: Mapping[str, str] = {}
    root: str = ""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that are on both sides, and those that are only on one."""

    pairs: tuple[tuple[Side, Side], ...]
    removed: tuple[Side, ...]
    added: tuple[Side, ...]


# From the surest identity to the weakest. Each is tried on what is left over, and only where it is unique.
_IDENTITIES: tuple[Callable[[Side], Hashable], ...] = (
    lambda side: (side.path, side.name, side.arch),
    lambda side: (side.name, side.arch),
    lambda side: (side.entry, side.arch),
    lambda side: (side.path, side.arch),
    lambda side: side.arch,
    lambda side: None,
)


def pair(before: Sequence[Side], after: Sequence[Side]) -> Pairing:
    """Pair kernels by where they lie and what they are called; what is left alone on each side is one pair, too."""
    left, right = list(before), list(after)
    pairs: dict[int, Side] = {}
    while found := _surest(left, right):
        for ours, theirs in found:
            pairs[id(ours)] = theirs
            left.remove(ours)
            right.remove(theirs)
    return Pairing(
        pairs=tuple((side, pairs[id(side)]) for side in before if id(side) in pairs),
        removed=tuple(left),
        added=tuple(right),
    )


def _surest(left: Sequence[Side], right: Sequence[Side]) -> list[tuple[Side, Side]]:
    """What the surest identity that pairs anything pairs."""
    for identity in _IDENTITIES:
        ours, theirs = _unique(left, identity), _unique(right, identity)
        found = [(side, theirs[key]) for key, side in ours.items() if key in theirs]
        if found:
            return found
    return []


def _unique(sides: Sequence[Side], identity: Callable[[Side], Hashable]) -> dict[Hashable, Side]:
    found: dict[Hashable, list[Side]] = {}
    for side in sides:
        found.setdefault(identity(side), []).append(side)
    return {key: group[0] for key, group in found.items() if len(group) == 1}


# What decides the machine code, among the tools that a build names.
_DECISIVE = {"dsl": "DSL", "nvrtc": "NVRTC", "assembler": "assembler", "ptx": "PTX version"}


def toolchain_changes(before: Side, after: Side) -> tuple[str, ...]:
    """Tools that differ, as `assembler ptxas 12.9.86 -> ptxas 13.5.37`; what one side does not name is not compared."""
    pairs = ((label, before.toolchain.get(key), after.toolchain.get(key)) for key, label in _DECISIVE.items())
    changes = [f"{label} {old} -> {new}" for label, old, new in pairs if old and new and old != new]
    if before.arch != after.arch:
        changes.append(f"architecture {before.arch} -> {after.arch}")
    return tuple(changes)
