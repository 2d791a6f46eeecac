"""`verify --defects`: what counts as found, and what as a surprise."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.registry import Defect
from verifier.cli.defects import DefectResult, _stands_at, _surprises
from verifier.findings import Finding, Hazard, Location, Severity, Verdict


def finding(rule: str, *, line: int = 7, file: str = "/a/b/mailbox.py", severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        rule=rule,
        name="x",
        severity=severity,
        hazard=Hazard.CONTRACT,
        verdict=Verdict.VIOLATED,
        kernel="k",
        role="r",
        message="m",
        fingerprint="f",
        location=Location(file=file, line=line),
    )


def test_the_line_and_the_file_decide() -> None:
    source = Path("kernels/mailbox.py")
    assert _stands_at(finding("A"), source, (7,))
    assert not _stands_at(finding("A", line=8), source, (7,))
    assert not _stands_at(finding("A", file="/a/other.py"), source, (7,))


def test_consequences_are_no_surprise() -> None:
    defect = Defect("d", "MBR202", "s", also=("TCG104",))
    found = [finding("MBR202"), finding("TCG104"), finding("SCP301", severity=Severity.NOTE), finding("MEM401")]
    assert _surprises(found, defect) == ("MEM401", "SCP301")


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({"found_at": "a.py:1"}, True),
        ({}, False),
        ({"found_at": "a.py:1", "surprises": ("X",)}, False),
        ({"found_at": "a.py:1", "error": "no compiler"}, False),
    ],
)
def test_good_needs_the_finding_and_nothing_else(changes: dict[str, object], good: bool) -> None:
    result = DefectResult(kernel="k", arch="sm_100a", defect="d", rule="R", **changes)  # type: ignore[arg-type]
    assert result.good is good
