"""The examples in the documentation of rules on machine code, assembled: bad ones are reported, good ones are not."""

from __future__ import annotations

import pytest

from tests.rules.example_kernel import complete
from tests.sass.support import build, check
from verifier.findings import Verdict
from verifier.rules import all_rules
from verifier.rules.docs import code_blocks
from verifier.rules.engine import KernelOutcome
from verifier.rules.registry import Rule

pytestmark = pytest.mark.toolchain

SASS_RULES = [rule for rule in all_rules() if "sass" in rule.isa]


def outcome_of(rule: Rule, fragment: str) -> tuple[KernelOutcome, dict[int, str]]:
    """What the rule says of a fragment, and the lines that the fragment marks."""
    arch = "sm_90a" if rule.arch == ("sm_90",) else "sm_100a"
    directives = [line for line in fragment.splitlines() if line.startswith(".minnctapersm")]
    body = "\n".join(line for line in fragment.splitlines() if line not in directives)
    text, marks = complete(body, arch, init="mbarrier.init" not in fragment)
    head, threads, rest = text.partition(".reqntid")
    return check(build("\n".join([head.rstrip("\n"), *directives]) + "\n" + threads + rest, arch), rule.code), {
        line + len(directives): code for line, code in marks.items()
    }


@pytest.mark.parametrize("rule", SASS_RULES, ids=lambda rule: rule.code)
def test_bad_example_is_reported_where_it_says(rule: Rule) -> None:
    for block in code_blocks(rule.doc.sections["Bad"]):
        outcome, marks = outcome_of(rule, block)
        assert set(marks.values()) == {rule.code}
        violated = [f for f in outcome.findings if f.verdict is Verdict.VIOLATED]
        assert {f.location.ptx_line for f in violated} == set(marks)
        assert all(f.witness and f.message and f.fix for f in violated)


@pytest.mark.parametrize("rule", SASS_RULES, ids=lambda rule: rule.code)
def test_good_example_is_proved(rule: Rule) -> None:
    for block in code_blocks(rule.doc.sections["Good"]):
        outcome, _ = outcome_of(rule, block)
        assert not outcome.findings
        assert outcome.obligations, "a good example must give the rule something to prove"
