"""The vocabulary of an answer: verdicts, severities, locations, witnesses, obligations and findings.

These are the values that rules produce and reports render; nothing here knows how a verdict is reached.
"""

from __future__ import annotations

import enum

import msgspec


class Verdict(str, enum.Enum):
    """What is known about one obligation. `UNKNOWN` is never clean."""

    PROVED = "proved"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


class Severity(str, enum.Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Hazard(str, enum.Enum):
    """`CONTRACT`: the PTX memory model does not order it. `CODEGEN`: the SASS itself shows it."""

    CONTRACT = "contract"
    CODEGEN = "codegen"
    PERFORMANCE = "performance"


class Profile(str, enum.Enum):
    """How strictly the severity policy reads the ISA (docs/verdicts.md)."""

    DEFAULT = "default"
    ISA = "isa"


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place in the artifacts: PTX line (1-based), SASS byte offset, Python file and line (1-based)."""

    ptx_line: int | None = None
    sass_offset: int | None = None
    file: str | None = None
    line: int | None = None


class WitnessStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the path that leads to a violation: who, what, where."""

    role: str
    fact: str
    location: Location


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of one obligation.

    `severity` and `hazard` matter only where the verdict is not proved. `reason` explains a proof or an
    unknown in one clause; `message` is the sentence a finding opens with; `fix` is what to do.
    `shape` names the obligation without line numbers or registers: the fingerprint is made from it.
    """

    verdict: Verdict
    role: str
    location: Location
    reason: str = ""
    message: str = ""
    severity: Severity = Severity.ERROR
    hazard: Hazard = Hazard.CONTRACT
    witness: tuple[WitnessStep, ...] = ()
    fix: str = ""
    shape: str = ""


class Obligation(msgspec.Struct, frozen=True, kw_only=True):
    """One place a rule must justify, with its verdict."""

    rule: str
    verdict: Verdict
    role: str
    location: Location
    reason: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A violated or unknown obligation, explained."""

    rule: str
    name: str
    severity: Severity
    hazard: Hazard
    verdict: Verdict
    kernel: str
    role: str
    message: str
    fingerprint: str
    location: Location
    witness: tuple[WitnessStep, ...] = ()
    fix: str = ""


class Waiver(str, enum.Enum):
    """Who said that a finding need not fail a run: a comment in the kernel, the settings, or the baseline."""

    SOURCE = "source"
    SETTINGS = "settings"
    BASELINE = "baseline"


class Suppressed(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that stays in the report and no longer fails the run. `origin` is where the waiver stands."""

    finding: Finding
    waiver: Waiver
    reason: str
    origin: str
