"""A finding keeps its fingerprint when lines move, registers and labels are renamed, and addresses shift."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.example_kernel import complete
from verifier.cli.inputs import discover
from verifier.cli.loading import load_kernels
from verifier.cli.parts import LoadOptions
from verifier.config import Policy
from verifier.errors import VerifierError
from verifier.findings import Finding, Profile
from verifier.rules import all_rules, run_rules
from verifier.rules.docs import code_blocks
from verifier.rules.registry import Rule

PTX_RULES = [rule for rule in all_rules() if rule.isa == ("ptx",)]
ASK_SASS = ("TCG101",)  # their witness says what the machine code does
_REGISTER = re.compile(r"(?<![\w.%:])(?:(?:r|f|rd)\d+|q2?)(?![\w.:])")
_LABEL = re.compile(r"(?m)^(\w+):")


def moved(text: str) -> str:
    """The same kernel further down in its file and in memory, with other names for registers and labels."""
    text = text.replace("r<32>", "x_r<32>").replace("f<32>", "x_f<32>").replace("rd<8>", "x_rd<8>")
    text = _REGISTER.sub(lambda name: f"x_{name[0]}", text)
    for label in set(_LABEL.findall(text)):
        text = re.sub(rf"\b{label}\b", f"X_{label}", text)
    prologue = "// a longer prologue\nnanosleep.u32 20;\nnanosleep.u32 40;\n"
    return "// moved\n\n" + text.replace("ld.param.u64 gp", f"{prologue}ld.param.u64 gp", 1)


def found(path: Path, text: str, rule: Rule) -> dict[str, Finding]:
    path.write_text(text)
    bundles, errors = discover([path])
    assert not errors
    findings: dict[str, Finding] = {}
    for loaded in load_kernels(bundles, LoadOptions(assemble=rule.code in ASK_SASS)):
        assert not isinstance(loaded, VerifierError), loaded
        outcome = run_rules(loaded.kernel, [rule], Policy(profile=Profile.ISA))
        findings |= {finding.fingerprint: finding for finding in outcome.findings}
    return findings


@pytest.mark.parametrize("rule", PTX_RULES, ids=lambda rule: rule.code)
def test_it_is_the_same_finding(rule: Rule, tmp_path: Path) -> None:
    arch = "sm_90a" if rule.arch == ("sm_90",) else "sm_100a"
    for block in code_blocks(rule.doc.sections["Bad"]):
        text, _ = complete(block, arch, init="mbarrier.init" not in block)
        before, after = (found(tmp_path / "example.ptx", version, rule) for version in (text, moved(text)))
        lines = [{finding.location.ptx_line for finding in findings.values()} for findings in (before, after)]
        assert lines[0]
        assert lines[0] != lines[1]
        assert before.keys() == after.keys()
