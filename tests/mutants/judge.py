"""Runs rules over a mutant, and reads and writes the lists of what becomes of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutate import LAUNCHES, Mutant
from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Profile, Verdict
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source
from verifier.rules import Rule, all_rules, run_rules

HERE = Path(__file__).parent
CAUGHT = HERE / "caught.toml"  # mutant -> the rule that reports it; written by `python -m tests.mutants.update`
EQUIVALENT = HERE / "equivalent.toml"  # mutant -> why it is as right as the original; written and reviewed by hand

# Rules that run the whole protocol take most of the time: others are preferred where both report a mutant.
PROTOCOL = frozenset({"CTL703", "MBR202", "MBR203", "MBR205", "MEM401", "TCG103", "TCG104"})


def ptx_rules() -> list[Rule]:
    return [rule for rule in all_rules() if rule.isa == ("ptx",)]


def violated(kernel: str, text: str, rules: Sequence[Rule]) -> list[str]:
    """Codes of the rules that report a violation, of any severity, in the strict profile."""
    launch = LAUNCHES[kernel]
    function = lower_ptx(parse_ptx(Source(f"{kernel}.ptx", text)))[-1]
    model = KernelModel(function, lift_ptx, launch)
    facts = KernelFacts(name=kernel, arch="sm_100a", source=f"{kernel}.ptx", launch=launch, ptx=model)
    found = run_rules(facts, rules, Policy(profile=Profile.ISA)).findings
    return sorted({f.rule for f in found if f.verdict is Verdict.VIOLATED})


def caught_by(mutant: Mutant) -> str | None:
    """The rule to hold responsible for a mutant: a local one if there is any, and not one about cost."""
    rules = ptx_rules()
    local = violated(mutant.kernel, mutant.text, [r for r in rules if r.code not in PROTOCOL])
    found = local or violated(mutant.kernel, mutant.text, [r for r in rules if r.code in PROTOCOL])
    return min(found, key=lambda code: (code.startswith("PRF"), code)) if found else None


def read(path: Path) -> dict[str, dict[str, str]]:
    """Kernel -> mutant -> what the list says of it."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    return toml.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path: Path, table: dict[str, dict[str, str]]) -> None:
    lines = ["# Written by `python -m tests.mutants.update`: the rule that reports each mutant."]
    for kernel, entries in table.items():
        lines += ["", f"[{kernel}]"]
        lines += [f"{json.dumps(name)} = {json.dumps(rule)}" for name, rule in entries.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
