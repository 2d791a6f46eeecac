"""What a run found, as every report renders it: kernels, the inputs that could not be checked, totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

import msgspec

from verifier.config import Bar
from verifier.errors import ParseError, VerifierError
from verifier.findings import Finding, Severity, Verdict
from verifier.rules import KernelOutcome

ASSEMBLED_HERE = " for this check"  # behind the name of an assembler: PTX came without machine code
_RANK = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the verifier and of what it would call; empty where a tool is not installed."""

    version: str
    ptxas: str = ""
    nvdisasm: str = ""
    dsl: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An input that could not be checked. `kind` is the class of the error."""

    kind: str
    what: str
    where: str = ""
    do: str = ""
    unparsed: bool = False

    @classmethod
    def of(cls, error: VerifierError) -> Failure:
        return cls(
            kind=type(error).__name__,
            what=error.what,
            where=error.where,
            do=error.do,
            unparsed=isinstance(error, ParseError),
        )


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """`errors`, `warnings` and `notes` count violations that nobody waived, `suppressed` counts findings that somebody
    did; `unparsed` counts lines that no grammar accepted, `unknown_instructions` those that were parsed and that no
    table knows, `not_run` rules that apply to a kernel and could not look at it."""

    kernels: int
    proved: int
    violated: int
    unknown: int
    errors: int
    warnings: int
    notes: int
    unparsed: int
    unknown_instructions: int
    suppressed: int = 0
    not_run: int = 0


def sources(builds: Iterable[KernelOutcome]) -> str:
    """The inputs that builds came from."""
    return ", ".join(dict.fromkeys(kernel.source for kernel in builds))


def first_file(kernel: KernelOutcome) -> str:
    """The file of an input that PTX lines count in, where PTX and machine code come from two."""
    return kernel.source.partition(" + ")[0]


class Excerpts(Protocol):
    """Where a report gets the lines that it quotes; an empty text when there is none."""

    def ptx_line(self, kernel: KernelOutcome, line: int) -> str: ...
    def python_line(self, file: str, line: int) -> str: ...


class Results:
    """The outcome of one run over any number of kernels; `notices` say what a user should tidy up."""

    def __init__(
        self,
        kernels: tuple[KernelOutcome, ...],
        failures: tuple[Failure, ...],
        tools: Tools,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.kernels = kernels
        self.failures = failures
        self.tools = tools
        self.notices = notices

    @property
    def findings(self) -> Iterator[Finding]:
        for kernel in self.kernels:
            yield from kernel.findings

    @property
    def mixed(self) -> bool:
        """The kernels come from several inputs."""
        return len({kernel.source for kernel in self.kernels}) > 1

    @cached_property
    def totals(self) -> Totals:
        counts = [count for kernel in self.kernels for count in kernel.ledger]
        violations = [f.severity for f in self.findings if f.verdict is Verdict.VIOLATED]
        return Totals(
            kernels=len(self.kernels),
            proved=sum(count.proved for count in counts),
            violated=sum(count.violated for count in counts),
            unknown=sum(count.unknown for count in counts),
            errors=violations.count(Severity.ERROR),
            warnings=violations.count(Severity.WARNING),
            notes=violations.count(Severity.NOTE),
            unparsed=sum(failure.unparsed for failure in self.failures),
            unknown_instructions=sum(n for kernel in self.kernels for n in kernel.unknown_opcodes.values()),
            suppressed=sum(len(kernel.suppressed) for kernel in self.kernels),
            not_run=sum(count.missed for count in counts),
        )

    def exit_code(self, bar: Bar) -> int:
        """2: something could not be checked; 1: the bar is not met; 0: it is."""
        if self.failures or not self.kernels:
            return 2
        worst = max((_RANK[f.severity] for f in self.findings if f.verdict is Verdict.VIOLATED), default=-1)
        waived = sum(s.finding.verdict is Verdict.UNKNOWN for kernel in self.kernels for s in kernel.suppressed)
        unknown = self.totals.unknown - waived + self.totals.unknown_instructions + self.totals.not_run
        return int(worst >= _RANK[bar.fail_on] or (bar.strict and unknown > 0))
