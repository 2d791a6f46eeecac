"""Runs one rule over a fragment (see `example_kernel`) and gives its obligations by PTX line."""

from __future__ import annotations

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
from verifier.rules import find_rule, run_rules


def kernel_of(text: str, arch: str = "sm_100a") -> KernelFacts:
    """The last kernel of a PTX text."""
    function = lower_ptx(parse_ptx(Source("fragment.ptx", text)))[-1]
    launch = LaunchFacts()
    model = KernelModel(function, lift_ptx, launch)
    return KernelFacts(name=function.name, arch=arch, source="fragment.ptx", launch=launch, ptx=model)


def judge(
    code: str, fragment: str, arch: str = "sm_100a", profile: Profile = Profile.DEFAULT
) -> tuple[list[Verdict], list[Finding]]:
    """(verdict of each obligation, findings) of one rule on a completed fragment."""
    text, _ = complete(fragment, arch, init="mbarrier.init" not in fragment)
    outcome = run_rules(kernel_of(text, arch), [find_rule(code)], Policy(profile=profile))
    return [o.verdict for o in outcome.obligations], list(outcome.findings)
