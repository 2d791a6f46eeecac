"""Which findings a change fixes and which it brings, by fingerprint."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from verifier.config import Policy
from verifier.diff.sides import Side
from verifier.findings import Finding, Verdict
from verifier.rules import KernelOutcome, Rule, run_rules


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Findings by what became of them. `checked` is False where the code is the same and no rule had to run."""

    checked: bool
    fixed: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()
    unchanged: int = 0
    proved_before: int = 0
    proved_after: int = 0


UNCHECKED = Verdicts(checked=False)


def compare_verdicts(before: Side, after: Side, rules: Sequence[Rule], policy: Policy) -> Verdicts:
    """Check both sides under one name, because the name of the kernel is part of a fingerprint."""
    old, new = (_outcome(side, after.name, rules, policy) for side in (before, after))
    ours, theirs = ({f.fingerprint: f for f in outcome.findings} for outcome in (old, new))
    return Verdicts(
        checked=True,
        fixed=tuple(finding for key, finding in ours.items() if key not in theirs),
        new=tuple(finding for key, finding in theirs.items() if key not in ours),
        unchanged=len(ours.keys() & theirs.keys()),
        proved_before=_proved(old),
        proved_after=_proved(new),
    )


def _outcome(side: Side, name: str, rules: Sequence[Rule], policy: Policy) -> KernelOutcome:
    facts = copy.copy(side.facts)
    facts.name = name
    return run_rules(facts, rules, policy)


def _proved(outcome: KernelOutcome) -> int:
    return sum(obligation.verdict is Verdict.PROVED for obligation in outcome.obligations)
