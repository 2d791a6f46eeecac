"""Waivers: where a comment counts, what settings and a baseline waive, and that an idle one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.samples import finding, outcome
from verifier.config import Bar, Ignore, load_config, load_ignores
from verifier.errors import ConfigError
from verifier.findings import Location, Obligation, Verdict, Waiver
from verifier.report import baseline
from verifier.report.comments import find_comments
from verifier.report.results import Results, Tools
from verifier.report.waivers import Usage, Waivers, merge_usage
from verifier.rules import KernelOutcome, RuleCount, select_rules

SOURCE = '''\
def kernel(acc):
    """verifier: ignore[TCG101] is only text here"""
    acc.load()
    acc.release(  # verifier: ignore[TCG101] slot is never reused
        stage,
    )
    # verifier: ignore[TCG102, MBR] on its own line

    # and a word more
    acc.fence()
    if acc.done():  # verifier: ignore[release-without-tcgen05-fence] by name
        acc.next()
    acc.other()  # verifier: ignore[TCG101]
    acc.more()  # verifier: ignore TCG101 what
    acc.last()  # verifier: ignore[NOPE!] why
'''


def test_a_comment_covers_its_statement() -> None:
    comments = {comment.line: comment for comment in find_comments(SOURCE, "gemm.py")}
    spans = {line: (c.first, c.last, c.codes, c.reason) for line, c in comments.items() if not c.problem}
    assert spans == {
        4: (4, 6, ("TCG101",), "slot is never reused"),
        7: (10, 10, ("TCG102", "MBR"), "on its own line"),
        11: (11, 11, ("release-without-tcgen05-fence",), "by name"),
    }


def test_a_comment_needs_a_code_and_a_reason() -> None:
    problems = {c.line: c.problem for c in find_comments(SOURCE, "gemm.py") if c.problem}
    assert problems == {
        13: "gives no reason: write one after the bracket",
        14: "names no rule: write ignore[CODE] and a reason",
        15: "NOPE! is no rule: write ignore[CODE] and a reason",
    }


def test_cuda_has_comments_of_its_own() -> None:
    (comment,) = find_comments("int x;\nload(); // verifier: ignore[PRF601] cold path\n", "kernel.cu")
    assert (comment.line, comment.codes, comment.reason) == (2, ("PRF601",), "cold path")


def test_a_file_that_is_no_python_has_no_comments() -> None:
    assert find_comments("def (: # verifier: ignore[TCG101] why\n  '''", "broken.py")[0].first == 1


def waive(
    subject: KernelOutcome, source: str = "", *, complete: bool = False, **options: object
) -> tuple[KernelOutcome, Usage]:
    waivers = Waivers(lambda file: source, rules=select_rules(), **options)  # type: ignore[arg-type]
    return waivers.apply(subject), waivers.usage(complete=complete)


def at(line: int, **changes: object) -> KernelOutcome:
    """A kernel whose one violation is at this Python line."""
    place = Location(ptx_line=3, file="gemm.py", line=line)
    found = finding(location=place, **changes)
    ledger = (RuleCount(rule=found.rule, violated=1),)
    obligation = Obligation(rule=found.rule, verdict=found.verdict, role=found.role, location=place)
    return outcome(findings=(found,), obligations=(obligation,), ledger=ledger)


@pytest.mark.parametrize(("line", "waived"), [(3, False), (4, True), (5, True), (6, True), (7, False)])
def test_a_comment_waives_what_is_found_at_its_statement(line: int, waived: bool) -> None:
    left, usage = waive(at(line), SOURCE)
    assert bool(left.suppressed) is waived
    assert bool(left.findings) is not waived
    if waived:
        (item,) = left.suppressed
        assert (item.waiver, item.reason, item.origin) == (Waiver.SOURCE, "slot is never reused", "gemm.py:4")
        assert usage.used == ("gemm.py:4",)


def test_a_comment_waives_only_the_rules_it_names() -> None:
    assert waive(at(10), SOURCE)[0].findings
    assert waive(at(10, rule="MBR203"), SOURCE)[0].suppressed
    assert waive(at(11, rule="TCG102"), SOURCE)[0].suppressed


def test_a_waived_finding_passes_and_an_unknown_one_passes_strict() -> None:
    unknown = at(4, verdict=Verdict.UNKNOWN)
    unknown = outcome(
        findings=unknown.findings, obligations=unknown.obligations, ledger=(RuleCount(rule="TCG101", unknown=1),)
    )
    assert Results((unknown,), (), Tools(version="0")).exit_code(Bar(strict=True)) == 1
    left, _ = waive(unknown, SOURCE)
    assert Results((left,), (), Tools(version="0")).exit_code(Bar(strict=True)) == 0


def test_an_idle_comment_is_told_where_its_rule_looked() -> None:
    place = Location(file="gemm.py", line=5)
    proved = outcome(
        findings=(),
        ledger=(RuleCount(rule="TCG101", proved=1),),
        obligations=(Obligation(rule="TCG101", verdict=Verdict.PROVED, role="mma", location=place),),
    )
    notices = waive(proved, SOURCE)[1].notices()
    assert "gemm.py:4: unused waiver of TCG101, take it out" in notices
    assert "gemm.py:13: a waiver without effect, it gives no reason: write one after the bracket" in notices
    assert not [notice for notice in notices if "gemm.py:7:" in notice]  # no rule looked there
    elsewhere = outcome(
        findings=(),
        ledger=(RuleCount(rule="TCG101", proved=1), RuleCount(rule="MBR201")),
        obligations=(
            Obligation(rule="TCG101", verdict=Verdict.PROVED, role="mma", location=Location(file="gemm.py", line=1)),
        ),
    )
    assert not [notice for notice in waive(elsewhere, SOURCE)[1].notices() if "unused" in notice]
    whole = [notice for notice in waive(elsewhere, SOURCE, complete=True)[1].notices() if "unused" in notice]
    assert whole == [
        "gemm.py:4: unused waiver of TCG101, take it out",
        "gemm.py:7: unused waiver of MBR, take it out",
    ]


def test_settings_waive_by_kernel_architecture_and_toolchain() -> None:
    fits = Ignore(
        code="TCG", reason="old assembler", kernel="ge*", arch="sm_100a", toolchain="ptxas 13.4", origin="x 1"
    )
    left, _ = waive(at(1), ignores=(fits,))
    (item,) = left.suppressed
    assert (item.waiver, item.origin) == (Waiver.SETTINGS, "x 1")
    for change in ({"code": "MBR"}, {"kernel": "moe*"}, {"arch": "sm_90a"}, {"toolchain": "ptxas 12"}):
        other = Ignore(**{"code": "TCG", "reason": "r", "origin": "x", **change})
        assert waive(at(1), ignores=(other,))[0].findings


def test_an_idle_setting_is_told_where_it_applies() -> None:
    clean = outcome(findings=(), obligations=(), ledger=(RuleCount(rule="TCG101", proved=1),))
    idle = Ignore(code="TCG101", reason="r", origin="pyproject.toml 1")
    assert waive(clean, ignores=(idle,))[1].notices() == (
        "pyproject.toml 1: unused waiver of TCG101 for kernel *, take it out",
    )
    for change in ({"kernel": "other"}, {"code": "MBR201"}, {"toolchain": "ptxas 12"}):
        other = Ignore(**{"code": "TCG101", "reason": "r", "origin": "p 1", **change})
        assert waive(clean, ignores=(other,))[1].notices() == ()


def test_what_one_part_of_a_run_uses_is_idle_in_none() -> None:
    used = waive(at(4), SOURCE)[1]
    place = Location(file="gemm.py", line=5)
    obligation = Obligation(rule="TCG101", verdict=Verdict.PROVED, role="mma", location=place)
    clean = outcome(findings=(), ledger=(RuleCount(rule="TCG101", proved=1),), obligations=(obligation,))
    idle = waive(clean, SOURCE)[1]
    assert [item.key for item in idle.idle] == ["gemm.py:4"]
    assert merge_usage([idle, used]).idle == ()


def test_a_baseline_round_trips(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(baseline.render(baseline.baseline_of([at(1)])))
    known = baseline.load(file)
    left, usage = waive(at(1), baseline=known)
    assert [item.waiver for item in left.suppressed] == [Waiver.BASELINE]
    assert usage.notices() == ()
    new = at(1, fingerprint="e" * 64)
    left, usage = waive(new, baseline=known)
    assert left.findings == new.findings
    (notice,) = usage.notices()
    assert notice.startswith("the baseline holds a TCG101 of gemm that is gone")


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 2, "findings": []}', '{"findings": [{}]}'])
def test_a_bad_baseline_is_one_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"verifier baseline"):
        baseline.load(file)


def settings(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    return file


def test_settings_are_read(tmp_path: Path) -> None:
    file = settings(
        tmp_path,
        "[tool.verifier]\nstrict = true\n"
        '[[tool.verifier.suppress]]\ncode = "PRF601"\nreason = "cold"\nkernel = "tgv*"\n',
    )
    assert load_config(file) == {"strict": True}
    (ignore,) = load_ignores(file)
    assert (ignore.code, ignore.kernel, ignore.reason) == ("PRF601", "tgv*", "cold")
    assert ignore.origin == "pyproject.toml [[tool.verifier.suppress]] 1"


@pytest.mark.parametrize(
    "entry", ['code = "PRF"', 'reason = "x"', 'code = "PRF"\nreason = " "', 'code = "P"\nwho = "x"']
)
def test_settings_need_code_and_reason(tmp_path: Path, entry: str) -> None:
    file = settings(tmp_path, f"[[tool.verifier.suppress]]\n{entry}\n")
    with pytest.raises(ConfigError):
        load_ignores(file)
