"""Every rule's documentation examples are run: the bad one is reported at its mark, the good one is not reported."""

from __future__ import annotations

import pytest

from tests.rules.example_kernel import complete
from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Finding, Profile, Verdict
from verifier.launch import LaunchFacts
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source
from verifier.rules import all_rules, run_rules
from verifier.rules.docs import code_blocks
from verifier.rules.registry import Rule

PTX_RULES = [rule for rule in all_rules() if rule.isa == ("ptx",)]


def findings(rule: Rule, fragment: str) -> tuple[list[Finding], dict[int, str], int]:
    arch = "sm_90a" if rule.arch == ("sm_90",) else "sm_100a"
    text, marks = complete(fragment, arch, init="mbarrier.init" not in fragment)
    function = lower_ptx(parse_ptx(Source("example.ptx", text)))[0]
    launch = LaunchFacts()
    kernel = KernelFacts(
        name="example", arch=arch, source="example.ptx", launch=launch, ptx=KernelModel(function, lift_ptx, launch)
    )
    outcome = run_rules(kernel, [rule], Policy(profile=Profile.ISA))
    return list(outcome.findings), marks, len(outcome.obligations)


@pytest.mark.parametrize("rule", PTX_RULES, ids=lambda rule: rule.code)
def test_bad_example_is_reported_where_it_says(rule: Rule) -> None:
    for block in code_blocks(rule.doc.sections["Bad"]):
        found, marks, _ = findings(rule, block)
        assert marks, "a bad example marks the line it expects the finding on: // CODE"
        assert set(marks.values()) == {rule.code}
        assert {f.location.ptx_line for f in found if f.verdict is Verdict.VIOLATED} == set(marks)
        assert all(f.witness and f.message and f.fix for f in found if f.verdict is Verdict.VIOLATED)


@pytest.mark.parametrize("rule", PTX_RULES, ids=lambda rule: rule.code)
def test_good_example_is_proved(rule: Rule) -> None:
    for block in code_blocks(rule.doc.sections["Good"]):
        found, _, obligations = findings(rule, block)
        assert not found
        assert obligations, "a good example must give the rule something to prove"
