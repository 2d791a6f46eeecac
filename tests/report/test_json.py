"""The JSON report and its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.report.samples import TOOLS, finding, outcome
from verifier.config import Bar
from verifier.findings import Location, Severity, Verdict
from verifier.report import json_v1, schema
from verifier.report.results import Results
from verifier.rules import RuleCount

SCHEMA = json.loads(schema.STORED.read_text())


def render(results: Results) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json_v1.render(results))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_shape(results: Results) -> None:
    report = render(results)
    assert report["schema_version"] == 1
    assert report["complete"] is True
    assert report["tool"] == {"version": "0.1.0", "ptxas": "13.5.37", "nvdisasm": "13.5.37", "dsl": "4.8.1"}
    (kernel,) = report["kernels"]
    assert kernel["roles"] == [{"name": "epilogue", "warps": [0, 1, 2, 3]}, {"name": "mma", "warps": [4]}]
    assert kernel["metrics"] == {"registers": 40, "spill_ratio": 0.5}
    assert kernel["toolchain"] == {"assembler": "ptxas 13.4.59"}
    assert kernel["obligations"][0] == {
        "rule": "TCG101",
        "verdict": "proved",
        "role": "epilogue",
        "location": {"ptx_line": 2, "sass_offset": 256, "file": "gemm.py", "line": 7},
        "reason": "waited for",
    }
    (found,) = report["findings"]
    assert {
        key: found[key] for key in ("rule", "severity", "hazard", "verdict", "kernel", "arch", "source", "role")
    } == {
        "rule": "TCG101",
        "severity": "error",
        "hazard": "contract",
        "verdict": "violated",
        "kernel": "gemm",
        "arch": "sm_100a",
        "source": "gemm.ptx",
        "role": "epilogue",
    }
    assert found["witness"][0]["fact"] == "the load starts"
    assert report["summary"] == {
        "kernels": 1,
        "proved": 1,
        "violated": 1,
        "unknown": 5,
        "errors": 1,
        "warnings": 0,
        "notes": 0,
        "unparsed": 0,
        "unknown_instructions": 0,
        "suppressed": 0,
        "not_run": 0,
    }


def test_a_finding_leads_to_its_kernel() -> None:
    """Two inputs may have kernels of one name."""
    kernels = tuple(outcome(source=source) for source in ("a/gemm.ptx", "b/gemm.ptx"))
    report = render(Results(kernels, (), TOOLS))
    known = [(kernel["name"], kernel["arch"], kernel["source"]) for kernel in report["kernels"]]
    assert [(found["kernel"], found["arch"], found["source"]) for found in report["findings"]] == known


def test_the_ledger_keeps_the_zeros(results: Results) -> None:
    rules = {rule["rule"]: rule for rule in render(results)["kernels"][0]["rules"]}
    assert rules["SCP301"] == {"rule": "SCP301", "proved": 0, "violated": 0, "unknown": 0, "skipped": ""}
    assert rules["PRF601"]["skipped"] == "needs SASS"


def test_what_failed_stands_at_the_top(incomplete: Results) -> None:
    report = render(incomplete)
    assert report["complete"] is False
    assert [error["kind"] for error in report["errors"]] == ["ParseError", "InputError"]
    assert report["errors"][0]["where"] == "bad.ptx:3:9"
    assert report["summary"]["unparsed"] == 1


def test_unknown_places_are_left_out() -> None:
    bare = outcome(findings=(finding(location=Location(sass_offset=0)),))
    assert render(Results((bare,), (), TOOLS))["findings"][0]["location"] == {"sass_offset": 0}


@pytest.mark.parametrize("key", ["summary", "findings", "tool"])
def test_the_schema_misses_what_is_missing(results: Results, key: str) -> None:
    report = render(results)
    del report[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(report)


@pytest.mark.parametrize("verdict", ["proved", "clean"])
def test_the_schema_refuses_a_finding_that_is_none(results: Results, verdict: str) -> None:
    report = render(results)
    report["findings"][0]["verdict"] = verdict
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(report)


def severities(*found: Severity, verdict: Verdict = Verdict.VIOLATED) -> Results:
    findings = tuple(finding(severity=severity, verdict=verdict) for severity in found)
    return Results((outcome(findings=findings, ledger=()),), (), TOOLS)


@pytest.mark.parametrize(
    ("found", "fail_on", "code"),
    [
        ([], "note", 0),
        (["note"], "error", 0),
        (["note", "warning"], "error", 0),
        (["error"], "error", 1),
        (["note", "error"], "error", 1),
        (["warning"], "warning", 1),
        (["note"], "warning", 0),
        (["note"], "note", 1),
    ],
)
def test_exit_codes(found: list[str], fail_on: str, code: int) -> None:
    assert severities(*map(Severity, found)).exit_code(Bar(fail_on=Severity(fail_on))) == code


def test_an_unknown_fails_only_under_strict(results: Results) -> None:
    unknown = Results((outcome(findings=(finding(verdict=Verdict.UNKNOWN),)),), (), TOOLS)
    assert unknown.exit_code(Bar()) == 0
    assert unknown.exit_code(Bar(strict=True)) == 1


def test_a_rule_that_could_not_be_run_fails_only_under_strict() -> None:
    ledger = (
        RuleCount(rule="TCG101", skipped="needs PTX", missed=True),
        RuleCount(rule="WGM901", skipped="not for sm_100a"),
    )
    half = Results((outcome(findings=(), ledger=ledger),), (), TOOLS)
    assert half.exit_code(Bar()) == 0
    assert half.exit_code(Bar(strict=True)) == 1
    assert render(half)["summary"]["not_run"] == 1


def test_an_instruction_that_no_table_knows_is_unknown() -> None:
    strange = Results((outcome(findings=(), ledger=(), unknown_opcodes={"frob.b32": 2}),), (), TOOLS)
    assert strange.exit_code(Bar()) == 0
    assert strange.exit_code(Bar(strict=True)) == 1
    assert render(strange)["summary"]["unknown_instructions"] == 2


def test_what_could_not_be_checked_outweighs_all(incomplete: Results) -> None:
    assert incomplete.exit_code(Bar()) == 2
    assert Results((), (), TOOLS).exit_code(Bar()) == 2
