"""Two builds of one kernel -> everything that a report says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from verifier.config import Policy
from verifier.diff.claims import Claim, claims_of, sentence
from verifier.diff.hunks import Comparison, compare
from verifier.diff.ir_lines import ir_listing
from verifier.diff.lines import Line, LineKind, Listing
from verifier.diff.metrics import Delta, opcodes, resources
from verifier.diff.ptx_lines import ptx_listing, written_functions
from verifier.diff.sass_lines import sass_listing
from verifier.diff.sides import Side, toolchain_changes
from verifier.diff.skeleton import Skeleton, compare_skeletons
from verifier.diff.verdicts import UNCHECKED, Verdicts, compare_verdicts
from verifier.errors import InputError
from verifier.launch import LaunchFacts
from verifier.model.kernel import KernelModel
from verifier.model.program import Instr
from verifier.rules import Rule


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`instructions`: list hunks of instructions also where the toolchain changed."""

    rules: tuple[Rule, ...]
    policy: Policy = Policy()
    ir: bool = False
    instructions: bool = False


class LevelDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one kernel."""

    comparison: Comparison
    claims: tuple[Claim, ...]
    sentence: str

    @property
    def level(self) -> str:
        return self.comparison.level

    @property
    def hunks(self) -> int:
        return len(self.comparison.hunks)


class KernelDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel. Where the toolchain changed, `levels` has only those that are the same code all the same, unless
    instructions were asked for."""

    name: str
    arch: str
    before: Side
    after: Side
    levels: tuple[LevelDiff, ...]
    skeletons: tuple[Skeleton, ...]
    metrics: Mapping[str, Delta]
    verdicts: Verdicts
    toolchain: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders below which the source files of both sides lie."""
        return tuple(side.root for side in (self.after, self.before) if side.root)

    @property
    def main(self) -> LevelDiff | None:
        """The level that the claim is about: the first one that differs, else the first."""
        return next((level for level in self.levels if level.hunks), self.levels[0] if self.levels else None)

    @property
    def hunks(self) -> int:
        return self.main.hunks if self.main else 0

    @property
    def skeleton_identical(self) -> bool:
        """Of the machine code where both sides have it, else of the PTX."""
        return self.skeletons[-1].identical if self.skeletons else True

    @property
    def differs(self) -> bool:
        """Whether there is a hunk; across toolchains, whether the skeleton or a verdict changed."""
        if self.toolchain and not self.hunks:
            return not self.skeleton_identical or bool(self.verdicts.fixed or self.verdicts.new)
        return self.hunks > 0


def compare_kernel(before: Side, after: Side, options: Options) -> KernelDiff:
    """Compare two builds of one kernel at every level that both have. Raises InputError when there is none."""
    changes = toolchain_changes(before, after)
    listings = list(_listings(before, after, options))
    if not listings:
        raise InputError(
            f"the two builds of {after.name} have nothing in common to compare",
            where=f"{before.source}, {after.source}",
            do="give both as PTX, or both as cubin or SASS listing",
        )
    levels = [_level(old, new) for old, new in listings]
    if changes and not options.instructions:
        levels = [level for level in levels if not level.hunks]  # the others drown the rest in instructions
    code = [(old, new) for old, new in listings if new.level != "ir"]
    metrics = resources(before, after)
    for old, new in code:
        metrics.update(opcodes(old, new))
    same = not changes and not any(level.hunks for level in levels)
    return KernelDiff(
        name=after.name,
        arch=after.arch,
        before=before,
        after=after,
        levels=tuple(levels),
        skeletons=tuple(compare_skeletons(old, new) for old, new in code),
        metrics=metrics,
        verdicts=UNCHECKED if same else compare_verdicts(before, after, options.rules, options.policy),
        toolchain=changes,
    )


def _level(before: Listing, after: Listing) -> LevelDiff:
    comparison = compare(before, after)
    claims = claims_of(comparison)
    return LevelDiff(comparison=comparison, claims=claims, sentence=sentence(comparison, claims))


def _listings(before: Side, after: Side, options: Options) -> Iterator[tuple[Listing, Listing]]:
    """Listings of both sides at each level that both have, PTX first."""
    launch = _known_launch(before.launch, after.launch)
    if before.ptx is not None and after.ptx is not None:
        yield _ptx(before, launch[0]), _ptx(after, launch[1])
    if before.sass is not None and after.sass is not None:
        yield _sass(before), _sass(after)
    if options.ir:
        if before.ir is None or after.ir is None:
            raise InputError(
                f"no IR of {after.name} on both sides",
                where=(before if before.ir is None else after).source,
                do="kernels that `verifier` compiled have it (kernel.mlir); leave out --level ir for others",
            )
        yield ir_listing(before.source, before.ir), ir_listing(after.source, after.ir)


def _ptx(side: Side, launch: Sequence[Line]) -> Listing:
    assert side.ptx is not None
    assert side.facts.ptx is not None
    listing = ptx_listing(side.ptx, side.facts.ptx, written_functions(side.ptx))
    return Listing("ptx", [*launch, *listing.lines])


def _sass(side: Side) -> Listing:
    assert side.sass is not None
    return sass_listing(side.entry, side.sass, _roles(side))


def _roles(side: Side) -> Callable[[Instr], tuple[str, ...]]:
    """Who executes a SASS instruction: by its PTX line, or without PTX by the streams of the machine code itself."""
    if side.facts.ptx is not None:
        by_line = _role_names(side.facts.ptx, lambda instr: instr.location.ptx_line)
        return lambda instr: by_line.get(instr.location.ptx_line, ())
    if side.facts.sass is not None:
        by_offset = _role_names(side.facts.sass, lambda instr: instr.location.sass_offset)
        return lambda instr: by_offset.get(instr.location.sass_offset, ())
    return lambda instr: ()


def _role_names(model: KernelModel, place: Callable[[Instr], int | None]) -> dict[int | None, tuple[str, ...]]:
    found: dict[int | None, dict[str, None]] = {}
    for role in model.roles:
        for stream in role.streams:
            for index in stream.instructions:
                found.setdefault(place(stream.function.instrs[index]), {})[role.name] = None
    found.pop(None, None)
    return {at: tuple(names) for at, names in found.items()}


def _known_launch(before: LaunchFacts, after: LaunchFacts) -> tuple[list[Line], list[Line]]:
    """Declarations of what both sides know about the launch."""
    ours, theirs = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    known = [name for name in ours if ours[name] is not None and theirs[name] is not None]
    return [_launch_line(name, ours[name]) for name in known], [_launch_line(name, theirs[name]) for name in known]


def _launch_line(name: str, value: object) -> Line:
    shown = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = f"launch {name} {shown}"
    return Line(kind=LineKind.DECLARATION, key=("launch", name, value), opcode="launch", pattern=text, text=text)
