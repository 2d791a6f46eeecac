"""The baseline: findings that were there when a code base adopted the verifier, by fingerprint.

A run with a baseline fails on what is new and tells what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from verifier.errors import ConfigError
from verifier.findings import Finding
from verifier.rules import KernelOutcome

SCHEMA_VERSION = 1
_AGAIN = "write it again: verifier baseline"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One finding; everything but the fingerprint is for people."""

    fingerprint: str
    rule: str
    kernel: str
    role: str
    verdict: str
    message: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one run, in the order of their fingerprints."""

    schema_version: int = SCHEMA_VERSION
    findings: tuple[Entry, ...]


def baseline_of(kernels: Sequence[KernelOutcome]) -> Baseline:
    """The baseline that makes `kernels` pass; waived findings are no part of it."""
    entries = {finding.fingerprint: _entry(finding) for kernel in kernels for finding in kernel.findings}
    return Baseline(findings=tuple(entries[key] for key in sorted(entries)))


def render(baseline: Baseline) -> str:
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1).decode() + "\n"


def load(path: Path) -> Baseline:
    """Read a baseline. Raises `ConfigError` when it cannot be read or has another schema version."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise ConfigError(f"the baseline cannot be read: {error.strerror}", where=str(path), do=_AGAIN) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"is no baseline: {error}", where=str(path), do=_AGAIN) from error
    if found.schema_version != SCHEMA_VERSION:
        raise ConfigError(f"schema version {found.schema_version} is not known", where=str(path), do=_AGAIN)
    return found


def _entry(finding: Finding) -> Entry:
    return Entry(
        fingerprint=finding.fingerprint,
        rule=finding.rule,
        kernel=finding.kernel,
        role=finding.role,
        verdict=finding.verdict.value,
        message=finding.message,
    )
