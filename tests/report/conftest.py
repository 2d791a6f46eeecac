"""Results that the tests of every report share."""

from __future__ import annotations

import pytest

from tests.report.samples import TOOLS, outcome
from verifier.errors import InputError, ParseError
from verifier.report.results import Failure, Results
from verifier.rules import RuleCount


@pytest.fixture
def results() -> Results:
    """A violation, unknowns, an idle and a skipped rule."""
    return Results((outcome(),), (), TOOLS)


@pytest.fixture
def incomplete() -> Results:
    """The same, and two inputs that could not be checked."""
    failures = (
        Failure.of(ParseError("unexpected character", file="bad.ptx", line=3, column=9, expected=("opcode",))),
        Failure.of(InputError("the file is empty", where="empty.ptx", do="give another")),
    )
    return Results((outcome(),), failures, TOOLS)


@pytest.fixture
def clean() -> Results:
    """Two proved kernels for two architectures."""
    kernels = tuple(
        outcome(arch=arch, findings=(), obligations=(), ledger=(RuleCount(rule="TCG101", proved=4),))
        for arch in ("sm_103a", "sm_100a")
    )
    return Results(kernels, (), TOOLS)
