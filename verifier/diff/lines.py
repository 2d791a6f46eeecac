"""What is compared: the code of a kernel as lines whose names are abstracted.

A line has a `key`, which must be equal on both sides, and `slots`, the names in it (registers, labels, symbols), of
which only the pattern matters: two listings are the same code if their keys are equal line by line and one bijection
maps all slots. A label is a line of its own, in front of the instruction it names; what a function declares are the
first lines.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property

import msgspec

from verifier.findings import Location
from verifier.model.cfg import Cfg
from verifier.model.events import Event


class LineKind(enum.Enum):
    INSTRUCTION = "instruction"
    LABEL = "label"
    DECLARATION = "declaration"


class Effect(enum.Enum):
    """Whether a line may change places with another: `READ` with all but `ORDERED`, `ORDERED` only with `PURE`."""

    PURE = "pure"
    READ = "read"
    ORDERED = "ordered"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `opcode` has all modifiers, `pattern` is the line with its names abstracted, `text` as it was written.

    `block` numbers basic blocks, `depth` counts the loops around the line, `roles` name the warps that execute it.
    `event` is the meaning of a PTX instruction, if it has one. `synchronizes` marks what belongs to the skeleton of
    synchronization, `steers` tests and branches; `closed` says that control never goes on to the next line.
    """

    kind: LineKind
    key: Hashable
    slots: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    opcode: str
    pattern: str
    text: str
    location: Location = Location()
    effect: Effect = Effect.PURE
    block: int = -1
    depth: int = 0
    roles: tuple[str, ...] = ()
    event: Event | None = None
    synchronizes: bool = False
    steers: bool = False
    closed: bool = False


class Listing:
    """All lines of one kernel at one level ("ptx", "sass" or "ir"), in the order of the text."""

    def __init__(self, level: str, lines: Sequence[Line], registers: Mapping[str, str] | None = None) -> None:
        self.level = level
        self.lines = tuple(lines)
        self._registers = registers or {}

    def name(self, slot: str) -> str:
        """What the text calls a slot: of a web of definitions and uses, its register."""
        return self._registers.get(slot, slot)

    @cached_property
    def instructions(self) -> int:
        """How many of the lines are instructions."""
        return sum(line.kind is LineKind.INSTRUCTION for line in self.lines)

    @cached_property
    def writers(self) -> dict[str, tuple[int, ...]]:
        """The lines that give a slot its value: writes of a register, the label itself, a symbol's declaration."""
        found: dict[str, list[int]] = {}
        for index, line in enumerate(self.lines):
            for slot in line.writes if line.kind is LineKind.INSTRUCTION else line.slots:
                found.setdefault(slot, []).append(index)
        return {slot: tuple(indices) for slot, indices in found.items()}

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Names of all roles, in the order in which they appear."""
        return tuple(dict.fromkeys(role for line in self.lines for role in line.roles))


def depends(first: Line, second: Line) -> bool:
    """Whether exchanging two lines could change what they do."""
    if LineKind.LABEL in (first.kind, second.kind) or LineKind.DECLARATION in (first.kind, second.kind):
        return True
    if _ordered(first.effect, second.effect):
        return True
    wrote, writes = set(first.writes), set(second.writes)
    return bool(wrote & writes or wrote.intersection(second.reads) or writes.intersection(first.reads))


def _ordered(first: Effect, second: Effect) -> bool:
    return Effect.ORDERED in (first, second) and Effect.PURE not in (first, second)


def loop_depths(cfg: Cfg, spins: Callable[[int], bool]) -> list[int]:
    """Number of loops around each block. A loop of which every instruction `spins` only retries a wait: it is none."""
    hot = [loop for loop in cfg.loops if not all(spins(i) for block in loop.blocks for i in _instructions(cfg, block))]
    return [sum(block.index in loop.blocks for loop in hot) for block in cfg.blocks]


def _instructions(cfg: Cfg, block: int) -> range:
    return range(cfg.blocks[block].start, cfg.blocks[block].end)
