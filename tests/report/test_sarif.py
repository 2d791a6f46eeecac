"""SARIF: valid by the official schema, the witness as code flow, fingerprints that stay, GitHub's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.report.lines import Lines
from tests.report.samples import TOOLS, finding, outcome
from verifier.findings import Location, Severity, Suppressed, Verdict, Waiver, WitnessStep
from verifier.report import sarif
from verifier.report.results import Results
from verifier.rules import select_rules

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0.json").read_text())
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


def render(results: Results, **options: Any) -> dict[str, Any]:
    log = json.loads(sarif.render(results, Lines(), select_rules(), **options))
    VALIDATOR.validate(log)
    run: dict[str, Any] = log["runs"][0]
    return run


def test_the_schema_can_refuse(results: Results) -> None:
    log = json.loads(sarif.render(results, Lines(), select_rules()))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not VALIDATOR.is_valid(log)


def test_a_finding_is_a_result_at_its_python_line(results: Results) -> None:
    (result,) = render(results)["results"]
    assert (result["ruleId"], result["level"], result["kind"]) == ("TCG101", "error", "fail")
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "gemm.py", "uriBaseId": "%SRCROOT%"}
    assert physical["region"]["startLine"] == 9
    assert result["message"]["text"].startswith(
        "the stage is released while a load of it may be in flight (kernel gemm"
    )
    rules = render(results)["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == "TCG101"
    assert "### Limits" in rules[result["ruleIndex"]]["help"]["markdown"]


def test_the_witness_is_the_code_flow(results: Results) -> None:
    (result,) = render(results)["results"]
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    texts = [step["location"]["message"]["text"] for step in steps]
    assert texts == [
        (
            "epilogue: the load starts | PTX 2, SASS 0x0100, gemm.py:7 | "
            "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];"
        ),
        (
            "epilogue: the stage is released; no wait::ld stands between | PTX 3, SASS 0x0340, gemm.py:9 | "
            "mbarrier.arrive.shared.b64 _, [%r3]; // free"
        ),
    ]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in steps] == [7, 9]


def test_fingerprints_do_not_depend_on_lines(results: Results) -> None:
    moved = finding(location=Location(ptx_line=99, file="gemm.py", line=70))
    (before,) = render(results)["results"]
    (after,) = render(Results((outcome(findings=(moved,)),), (), TOOLS))["results"]
    assert before["partialFingerprints"] == after["partialFingerprints"]
    assert set(before["partialFingerprints"]) == {"verifierFinding/v1", "primaryLocationLineHash"}


def test_builds_of_one_finding_share_a_result() -> None:
    kernels = tuple(outcome(arch=arch) for arch in ("sm_100a", "sm_103a"))
    (result,) = render(Results(kernels, (), TOOLS))["results"]
    assert [build["arch"] for build in result["properties"]["builds"]] == ["sm_100a", "sm_103a"]
    assert "sm_100a, sm_103a" in result["message"]["text"]


def test_builds_name_their_input_and_lines_count_in_its_ptx() -> None:
    bare = (finding(location=Location(ptx_line=3)),)
    kernels = tuple(outcome(source=source, findings=bare) for source in ("a/gemm.ptx + a/x.cubin", "b/gemm.ptx"))
    (result,) = render(Results(kernels, (), TOOLS))["results"]
    sources = [build["source"] for build in result["properties"]["builds"]]
    assert sources == ["a/gemm.ptx + a/x.cubin", "b/gemm.ptx"]
    physical = result["locations"][0]["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == ("a/gemm.ptx", 3)


def test_unknown_is_open_and_not_a_pass() -> None:
    (result,) = render(Results((outcome(findings=(finding(verdict=Verdict.UNKNOWN),)),), (), TOOLS))["results"]
    assert (result["kind"], result["level"]) == ("open", "none")


@pytest.mark.parametrize(
    ("waiver", "kind"), [(Waiver.SOURCE, "inSource"), (Waiver.SETTINGS, "external"), (Waiver.BASELINE, "external")]
)
def test_waivers_are_suppressions(waiver: Waiver, kind: str) -> None:
    waived = Suppressed(finding=finding(), waiver=waiver, reason="known", origin="gemm.py:8")
    (result,) = render(Results((outcome(findings=(), suppressed=(waived,)),), (), TOOLS), baseline=True)["results"]
    assert result["suppressions"] == [{"kind": kind, "status": "accepted", "justification": "known (gemm.py:8)"}]
    assert result["baselineState"] == ("unchanged" if waiver is Waiver.BASELINE else "new")


def test_what_could_not_be_checked_is_a_notification(incomplete: Results) -> None:
    (invocation,) = render(incomplete)["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [note["descriptor"]["id"] for note in invocation["toolExecutionNotifications"]] == [
        "ParseError",
        "InputError",
    ]


def test_a_long_witness_is_cut_and_says_so() -> None:
    steps = tuple(WitnessStep(role="mma", fact=f"step {n}", location=Location(ptx_line=2)) for n in range(1, 1001))
    (result,) = render(Results((outcome(findings=(finding(witness=steps),)),), (), TOOLS))["results"]
    (flow,) = result["codeFlows"]
    locations = flow["threadFlows"][0]["locations"]
    assert len(locations) == sarif.MAX_STEPS
    assert flow["message"]["text"] == "800 steps in the middle are left out"
    assert "step 1 " in locations[0]["location"]["message"]["text"]
    assert "step 1000 " in locations[-1]["location"]["message"]["text"]


def test_too_many_results_keep_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 2)
    findings = tuple(
        finding(fingerprint=str(n) * 64, severity=severity)
        for n, severity in enumerate((Severity.NOTE, Severity.WARNING, Severity.ERROR))
    )
    run = render(Results((outcome(findings=findings),), (), TOOLS))
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "1 findings were left out: a run may have 2"


def test_a_finding_without_a_python_line_is_at_its_ptx() -> None:
    bare = finding(location=Location(ptx_line=3))
    (result,) = render(Results((outcome(findings=(bare,)),), (), TOOLS))["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "gemm.ptx"
    assert physical["region"]["startLine"] == 3


def test_rules_keep_the_limits_of_code_scanning(results: Results) -> None:
    rules = render(results)["tool"]["driver"]["rules"]
    assert rules
    for rule in rules:
        assert len(rule["properties"]["tags"]) <= 20
        assert len(rule["name"]) <= 255
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert len(rule["fullDescription"]["text"]) <= 1024
