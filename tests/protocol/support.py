"""Kernels for protocol tests: stored PTX, edits of it, and fragments completed to kernels."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rules.example_kernel import complete
from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Judgement, Verdict
from verifier.launch import Dim3, LaunchFacts
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source
from verifier.rules import find_rule

DATA = Path(__file__).with_name("data")
CODES = ("TCG103", "TCG104", "MBR202", "MBR203", "MBR205", "CTL703", "MEM401")


def stored(name: str) -> str:
    return (DATA / f"{name}.ptx").read_text()


def facts(text: str, cluster: Dim3 | None = None) -> KernelFacts:
    launch = LaunchFacts(cluster=cluster)
    function = lower_ptx(parse_ptx(Source("kernel.ptx", text)))[0]
    model = KernelModel(function, lift_ptx, launch)
    return KernelFacts(name=function.name, arch=function.arch, source="kernel.ptx", launch=launch, ptx=model)


def fragment(text: str, *, init: bool = True) -> KernelFacts:
    """A fragment as in the rules' documentation, completed to a kernel."""
    return facts(complete(text, "sm_100a", init=init)[0])


def judge(kernel: KernelFacts, code: str) -> list[Judgement]:
    return list(find_rule(code).check(kernel, Policy()))


def verdicts(kernel: KernelFacts) -> dict[str, set[Verdict]]:
    return {code: {j.verdict for j in judge(kernel, code)} for code in CODES}


def violated(kernel: KernelFacts) -> set[str]:
    return {code for code, seen in verdicts(kernel).items() if Verdict.VIOLATED in seen}


def without(text: str, pattern: str, which: int = 0) -> str:
    """The text without the `which`-th line that matches."""
    lines = text.split("\n")
    found = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    del lines[found[which]]
    return "\n".join(lines)


def swapped(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after)
