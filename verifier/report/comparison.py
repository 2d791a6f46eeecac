"""What changed between a run and the last good one, as reports show it. The nightly job computes it."""

from __future__ import annotations

import msgspec

Number = int | float


class Build(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One kernel as one toolchain builds it for one architecture."""

    kernel: str
    arch: str
    toolchain: str

    def __str__(self) -> str:
        return f"{self.kernel} {self.arch} {self.toolchain}"


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that is new or gone. `failing`: it is reason enough for exit code 1."""

    fingerprint: str
    rule: str
    name: str
    severity: str
    verdict: str
    role: str
    message: str
    builds: tuple[Build, ...]
    file: str = ""
    line: int | None = None
    failing: bool = False

    @property
    def place(self) -> str:
        """`kernels/gemm.py:12`, or an empty text."""
        return f"{self.file}:{self.line}" if self.file and self.line else ""


class Counts(msgspec.Struct, frozen=True):
    """Obligations of one rule by verdict."""

    proved: int = 0
    violated: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        parts = ((self.proved, "proved"), (self.violated, "violated"), (self.unknown, "unknown"))
        return ", ".join(f"{number} {word}" for number, word in parts if number) or "nothing to check"


class VerdictChange(msgspec.Struct, frozen=True, kw_only=True):
    """Obligations of one rule in one build, where their number or verdicts changed. None: the rule did not run."""

    build: Build
    rule: str
    before: Counts | None
    after: Counts | None


class CodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """Generated code of one build that is not what it was; None where one of the two runs lacks it."""

    build: Build
    ptx: bool | None
    sass: bool | None
    before: str = ""
    after: str = ""

    @property
    def levels(self) -> str:
        return " and ".join(name for name, changed in (("PTX", self.ptx), ("SASS", self.sass)) if changed)


class MetricChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number that changed; `failing` when it grew by more than its threshold."""

    build: Build
    name: str
    before: Number
    after: Number
    limit: str = ""
    failing: bool = False


class Unchecked(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that gave no verdict: how it ended and what it said."""

    build: Build
    state: str
    what: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One run against the last good run of each of its cells.

    `bases` names those runs, () when there is none; `toolchains` says which columns are not built by what they were.
    """

    bases: tuple[int, ...] = ()
    new: tuple[FindingChange, ...] = ()
    fixed: tuple[FindingChange, ...] = ()
    verdicts: tuple[VerdictChange, ...] = ()
    code: tuple[CodeChange, ...] = ()
    metrics: tuple[MetricChange, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    toolchains: tuple[str, ...] = ()

    @property
    def regressions(self) -> int:
        """How many changes are reason enough for exit code 1."""
        return sum(change.failing for change in self.new) + sum(change.failing for change in self.metrics)


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One toolchain of a kernel. Columns with the same letter have the same code; "" where there is none."""

    toolchain: str
    ptx: str
    sass: str
    verdicts: tuple[str, ...] = ()


class Across(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel as several toolchains build it. `rules` are those whose counts differ; a column has them in order."""

    kernel: str
    arch: str
    rules: tuple[str, ...]
    columns: tuple[Column, ...]
