"""`verifier rules` and `verifier explain`."""

from __future__ import annotations

import json

import pytest

from tests.cli.support import Verifier
from verifier.rules import SECTIONS, Rule, all_rules

RULES = all_rules()
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_the_list_has_every_rule(verifier: Verifier) -> None:
    lines = verifier("rules").out.splitlines()
    assert [line.split()[:2] for line in lines] == [[rule.code, rule.name] for rule in RULES]
    assert all(rule.doc.summary in line for rule, line in zip(RULES, lines, strict=True))
    listed = json.loads(verifier("rules", "--format", "json").out)
    assert [entry["code"] for entry in listed] == [rule.code for rule in RULES]


@each_rule
def test_text(verifier: Verifier, rule: Rule) -> None:
    out = verifier("explain", rule.code).out
    assert out.startswith(f"{rule.code} {rule.name}\n\n{rule.doc.summary}\n")
    assert "```" not in out
    positions = [out.index(f"\n\n{heading}") for heading in ("What it checks", "Why it matters", *SECTIONS[2:])]
    assert positions == sorted(positions)


@each_rule
def test_by_name_and_in_lower_case(verifier: Verifier, rule: Rule) -> None:
    out = verifier("explain", rule.code).out
    assert verifier("explain", rule.name).out == verifier("explain", rule.code.lower()).out == out


def test_markdown_and_json(verifier: Verifier) -> None:
    rule = RULES[0]
    assert verifier("explain", rule.code, "--format", "md").out.startswith(f"## {rule.code} {rule.name}\n")
    explained = json.loads(verifier("explain", rule.code, "--format", "json").out)
    assert tuple(explained["sections"]) == SECTIONS


@pytest.mark.parametrize("prefix", ["TCG", "tcg1", "SAS80"])
def test_the_letters_of_a_code_list_its_family(verifier: Verifier, prefix: str) -> None:
    family = [rule for rule in RULES if rule.code.startswith(prefix.upper())]
    lines = verifier("explain", prefix).out.splitlines()
    assert [line.split()[0] for line in lines[: len(family)]] == [rule.code for rule in family]
    assert lines[len(family) :] == ["", f"`verifier explain {family[0].code}` explains one of them"]
    listed = json.loads(verifier("explain", prefix, "--format", "json").out)
    assert [entry["code"] for entry in listed] == [rule.code for rule in family]
    assert verifier("explain", prefix, "--format", "md").out.count("\n## ") == len(family) - 1


def test_a_slip_gets_a_hint(verifier: Verifier) -> None:
    ran = verifier("explain", "TCG10l")
    assert ran.code == 2
    assert "did you mean TCG10" in ran.err
