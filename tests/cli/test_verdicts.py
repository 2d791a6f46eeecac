"""Verdicts that are kept: what makes them valid, and that a run over unchanged kernels takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernels.registry import CASES
from tests.cli.support import Verifier
from verifier.cli import loading, runner, verdicts
from verifier.cli.inputs import Bundle
from verifier.cli.verdicts import Verdicts
from verifier.compile.artifacts import Artifacts, Meta
from verifier.config import Policy
from verifier.findings import Location, Obligation, Profile, Verdict
from verifier.rules import KernelOutcome, select_rules

RULES = select_rules(("TCG101", "MBR201"))


def build(name: str = "kernel_a", ptx: str = "1" * 64) -> Bundle:
    meta = Meta(name=name, arch="sm_100a", files={"kernel.ptx": ptx})
    return Bundle(source=f"kernels/{name}.py", compiled=Artifacts(meta=meta, ptx="text"))


def outcome(name: str = "kernel_a") -> KernelOutcome:
    obligation = Obligation(rule="MBR201", verdict=Verdict.PROVED, role="mma", location=Location(ptx_line=7, line=9))
    return KernelOutcome(
        name=name,
        arch="sm_100a",
        source=f"kernels/{name}.py",
        roles=(),
        obligations=(obligation,),
        findings=(),
        ledger=(),
        metrics={"registers": 40},
    )


def test_what_was_filed_comes_back(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path, RULES, Policy())
    assert kept.get(build()) is None
    kept.put(build(), [outcome(), outcome("maps")])
    assert Verdicts(tmp_path, RULES, Policy()).get(build()) == (outcome(), outcome("maps"))


@pytest.mark.parametrize("change", ["files", "name", "rules", "policy", "code", "libraries"])
def test_whatever_decides_a_verdict_makes_it_another(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Verdicts(tmp_path, RULES, Policy()).put(build(), [outcome()])
    bundle, rules, policy = build(), RULES, Policy()
    match change:
        case "files":
            bundle = build(ptx="2" * 64)
        case "name":
            bundle = build("kernel_b")
        case "rules":
            rules = RULES[:1]
        case "policy":
            policy = Policy(profile=Profile.ISA)
        case "code":
            monkeypatch.setattr(verdicts, "_code", lambda: "other")
        case "libraries":
            monkeypatch.setattr(verdicts, "_libraries", lambda: {"lark": "0"})
    assert Verdicts(tmp_path, rules, policy).get(bundle) is None


def test_a_damaged_entry_counts_as_absent(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path, RULES, Policy())
    kept.put(build(), [outcome()])
    (entry,) = tmp_path.glob("verdicts/v1/*/*.json")
    entry.write_bytes(entry.read_bytes()[:-9])
    assert kept.get(build()) is None


def test_a_build_without_digests_is_not_filed(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path, RULES, Policy())
    bundle = Bundle(source="a.py", compiled=Artifacts(meta=Meta(name="a", arch="sm_100a"), ptx="text"))
    kept.put(bundle, [outcome()])
    assert kept.get(bundle) is None
    assert not list(tmp_path.rglob("*.json"))


def test_the_entries_used_last_stay(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path, RULES, Policy())
    names = ["a", "b", "c"]
    for name in names:
        kept.put(build(name), [outcome(name)])
    for age, name in enumerate(("b", "c", "a")):
        for path in tmp_path.glob("verdicts/v1/*/*.json"):
            if f'"name":"{name}"' in path.read_text():
                os.utime(path, (1000 + age, 1000 + age))
    assert kept.get(build("b")) is not None  # which counts as a use
    kept.prune(2)
    assert [kept.get(build(name)) is not None for name in names] == [True, True, False]


@pytest.mark.toolchain
def test_an_unchanged_kernel_is_not_checked_again(
    verifier: Verifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIFIER_CACHE_DIR", str(tmp_path))
    checked: list[Bundle] = []
    load = loading.load_kernels

    def count(bundles: Any, options: Any) -> Any:
        checked.extend(bundles)
        return load(bundles, options)

    monkeypatch.setattr(runner, "load_kernels", count)
    arguments = ("verify", CASES[0].name, "--arch", "sm_100a", "--defect", "no-wait-ld")
    first = verifier(*arguments)
    assert len(checked) == 1
    second = verifier(*arguments)
    assert len(checked) == 1
    assert (first.code, first.out) == (second.code, second.out)
    assert "tcgen05.ld" in second.out  # quotes the PTX
    third = verifier(*arguments, "--profile", "isa")
    assert len(checked) == 2
    assert third.code == 1
    verifier(*arguments, "--no-cache")
    assert len(checked) == 3
