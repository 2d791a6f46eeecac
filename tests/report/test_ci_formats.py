"""JUnit, annotations, job summary and concise text, read by parsers and compared with writers that are not ours."""

from __future__ import annotations

import itertools
from typing import Any
from xml.etree import ElementTree

import github_action_utils
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt

from tests.report.lines import Lines
from tests.report.samples import TOOLS, finding, outcome
from verifier.config import Bar
from verifier.findings import Location, Severity, Suppressed, Verdict, Waiver
from verifier.report import concise, github, junit
from verifier.report.results import Results
from verifier.rules import RuleCount, select_rules

LAX = Bar()
HOSTILE = 'a|b`c <script>alert("1")</script> [x](http://e.org) 100% @all\x1b[31m\x00::error::\nnext, line'


def suites(results: Results, bar: Bar = LAX) -> list[Any]:
    return list(JUnitXml.fromstring(junit.render(results, select_rules(), bar).encode()))


def cases(results: Results, bar: Bar = LAX) -> dict[str, Any]:
    return {case.name.split()[0]: case for suite in suites(results, bar) for case in suite}


def test_junit_has_a_case_for_each_rule(results: Results) -> None:
    (suite,) = suites(results)
    assert (suite.name, suite.tests, suite.failures, suite.errors, suite.skipped) == (
        "gemm sm_100a ptxas 13.4.59", 4, 1, 0, 1,
    )  # fmt: skip
    found = cases(results)
    (failure,) = found["TCG101"].result
    assert isinstance(failure, Failure)
    assert failure.message == "the stage is released while a load of it may be in flight"
    assert "1. epilogue: the load starts [PTX 2, SASS 0x0100, gemm.py:7]" in failure.text
    (skipped,) = found["PRF601"].result
    assert isinstance(skipped, Skipped)
    assert skipped.message == "needs SASS"
    assert found["SCP301"].result == []


def test_junit_follows_the_bar() -> None:
    findings = (finding(severity=Severity.WARNING), finding(verdict=Verdict.UNKNOWN, rule="MBR201"))
    ledger = (RuleCount(rule="TCG101", violated=1), RuleCount(rule="MBR201", unknown=1))
    lax = Results((outcome(findings=findings, ledger=ledger),), (), TOOLS)
    assert cases(lax)["TCG101"].result == []
    assert isinstance(cases(lax)["MBR201"].result[0], Skipped)
    strict = cases(lax, Bar(fail_on=Severity.WARNING, strict=True))
    assert all(isinstance(strict[code].result[0], Failure) for code in ("TCG101", "MBR201"))


def test_junit_fails_under_strict_what_was_not_run_for_want_of_its_input() -> None:
    ledger = (
        RuleCount(rule="TCG101", skipped="needs PTX", missed=True),
        RuleCount(rule="WGM901", skipped="not for sm_100a"),
    )
    half = Results((outcome(findings=(), ledger=ledger),), (), TOOLS)
    assert all(isinstance(case.result[0], Skipped) for case in cases(half).values())
    strict = cases(half, Bar(strict=True))
    assert isinstance(strict["TCG101"].result[0], Failure)
    assert isinstance(strict["WGM901"].result[0], Skipped)


def test_junit_names_what_could_not_be_checked(incomplete: Results) -> None:
    *_, inputs = suites(incomplete)
    assert [case.name for case in inputs] == ["bad.ptx:3:9", "empty.ptx"]
    assert all(isinstance(case.result[0], Error) for case in inputs)


def test_junit_survives_what_xml_forbids() -> None:
    hostile = Results((outcome(name=HOSTILE, findings=(finding(message=HOSTILE),)),), (), TOOLS)
    (failure,) = cases(hostile)["TCG101"].result
    assert failure.message == HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}").replace(
        "\x00", "\N{REPLACEMENT CHARACTER}"
    )


@pytest.mark.parametrize("message", ["plain", HOSTILE])
def test_annotations_are_what_another_writer_writes(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = finding(message=message, witness=(), name=f"n:{message[:1]},")
    lines = github.commands(Results((outcome(findings=(found,)),), (), TOOLS), Bar()).splitlines()
    text = f"{message} (kernel gemm, sm_100a, role epilogue; gemm.ptx)"
    github_action_utils.error(text, title=f"TCG101 {found.name}", file="gemm.py", line=9)
    assert lines[0] == capsys.readouterr().out.rstrip("\n")
    assert len([line for line in lines if line.startswith("::")]) == 1


def test_annotations_put_the_worst_first(results: Results) -> None:
    findings = tuple(
        finding(severity=severity, fingerprint=severity.value)
        for severity in (Severity.NOTE, Severity.ERROR, Severity.WARNING)
    )
    lines = github.commands(Results((outcome(findings=findings),), (), TOOLS, ("tidy up",)), Bar()).splitlines()
    assert [line.split(" ")[0] for line in lines[:4]] == ["::error", "::warning", "::notice", "::notice"]
    assert lines[3] == "::notice title=verifier::tidy up"


def test_unknown_is_an_annotation_too() -> None:
    open_finding = Results((outcome(findings=(finding(verdict=Verdict.UNKNOWN),)),), (), TOOLS)
    assert github.commands(open_finding, Bar()).startswith("::warning title=unknown TCG101")
    assert github.commands(open_finding, Bar(strict=True)).startswith("::error title=unknown TCG101")


def _tokens(markdown: str) -> list[Any]:
    parser = MarkdownIt("gfm-like", {"linkify": False})
    return [token for block in parser.parse(markdown) for token in (block, *(block.children or []))]


def test_the_job_summary_is_markdown(results: Results) -> None:
    tokens = _tokens(github.job_summary(results))
    assert sum(token.type == "tr_open" for token in tokens) == 2
    assert sum(token.type == "list_item_open" for token in tokens) == 2  # the steps of the witness
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    assert headings[1] == "error: TCG101 release-before-tmem-load-completes"


def test_nothing_of_a_kernel_is_markup_in_the_job_summary() -> None:
    hostile = outcome(
        name=HOSTILE, findings=(finding(message=HOSTILE, role=HOSTILE, fix=HOSTILE, kernel=HOSTILE, witness=()),)
    )
    tokens = _tokens(github.job_summary(Results((hostile,), (), TOOLS, (HOSTILE,))))
    assert not [token for token in tokens if token.type in ("html_inline", "html_block", "link_open", "image")]
    cells = [token for token in tokens if token.type == "td_open"]
    assert len(cells) == 7
    spoken = " ".join(token.content for token in tokens if token.type == "text")
    assert '<script>alert("1")</script>' in spoken


def test_concise_is_one_line_a_finding(results: Results) -> None:
    lines = concise.render(results).splitlines()
    assert lines[0] == (
        "gemm.py:9: error[TCG101 release-before-tmem-load-completes] "
        "the stage is released while a load of it may be in flight (gemm, sm_100a, epilogue)"
    )
    assert lines[-1].startswith("1 kernel (sm_100a): ")
    assert len(lines) == 2


def test_concise_makes_no_line_of_a_name() -> None:
    """A line of a file's name would be a command to the runner that reads the log."""
    odd = finding(location=Location(ptx_line=3), witness=(), message=HOSTILE)
    lines = concise.render(Results((outcome(source="a\n::error::x.ptx", findings=(odd,)),), (), TOOLS)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a\\n::error::x.ptx:3: error[TCG101 ")
    assert "\x1b" not in lines[0]


def test_findings_of_several_inputs_name_them() -> None:
    several = Results(tuple(outcome(source=source) for source in ("a/gemm.ptx", "b/gemm.ptx")), (), TOOLS)
    lines = concise.render(several).splitlines()
    assert [line.rpartition(" ")[2] for line in lines[:2]] == ["a/gemm.ptx)", "b/gemm.ptx)"]
    both = "a/gemm.ptx, b/gemm.ptx"
    assert f"role epilogue; {both})" in github.commands(several, LAX)
    assert any(both in token.content for token in _tokens(github.job_summary(several)))
    document = ElementTree.fromstring(junit.render(several, select_rules(), LAX))
    assert [suite.get("file") for suite in document.iter("testsuite")] == ["a/gemm.ptx", "b/gemm.ptx"]


def test_lines_count_in_the_ptx_of_a_joined_input() -> None:
    bare = finding(location=Location(ptx_line=3), witness=())
    joined = Results((outcome(source="a.ptx + b.cubin", findings=(bare,)),), (), TOOLS)
    assert concise.render(joined).startswith("a.ptx:3: error[TCG101 ")


def test_waived_findings_are_told_in_every_format(results: Results) -> None:
    waived = Suppressed(finding=finding(), waiver=Waiver.SOURCE, reason="slot is ours", origin="gemm.py:8")
    ledger = (RuleCount(rule="TCG101", violated=1),)
    only = Results((outcome(findings=(), ledger=ledger, suppressed=(waived,)),), (), TOOLS)
    from verifier.report import text

    assert (
        "  waived TCG101 violated, epilogue at PTX 3, SASS 0x0340, gemm.py:9: slot is ours (gemm.py:8)"
        in text.render(only, Lines())
    )
    assert "slot is ours" in junit.render(only, select_rules(), Bar())
    assert cases(only)["TCG101"].result == []
    assert only.exit_code(Bar()) == 0
