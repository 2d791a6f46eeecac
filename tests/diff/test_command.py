"""`verifier diff` on files: formats, exit codes, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from tests.diff.conftest import Diff
from tests.diff.edits import CLUSTER_WAIT, FULL_FENCE, PTX, RELAXED_WAIT, SASS, relax_waits, renumber, replace_line
from verifier.cli import run
from verifier.diff.schema import PATH as SCHEMA
from verifier.diff.schema import schema

AFTER = renumber(relax_waits(PTX))


def test_the_text_says_everything_in_order(diff: Diff) -> None:
    ran = diff(PTX, AFTER)
    assert ran.code == 1
    titles = re.findall(r"^  ([A-Z]+) ", ran.out, re.MULTILINE)
    assert titles == ["CLAIM", "SYNC", "COST", "RULES"]
    assert "(549 -> 553 PTX instructions; 584 names correspond one to one," in ran.out
    assert "   4 x  - mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%r], %r\n" in ran.out
    assert "tma-load  2  kernels/gemm_splitk_mailbox.py:199, :207\n" in ran.out
    assert "mma  2  kernels/gemm_splitk_mailbox.py:222, :233\n" in ran.out
    assert ran.out.splitlines()[-1].startswith("the generated code differs only at 4 waits, each now a relaxed")


def test_no_difference_is_exit_zero_and_said(diff: Diff) -> None:
    ran = diff(PTX, renumber(PTX))
    assert ran.code == 0
    assert "PTX skeleton identical" in ran.out
    assert ran.out.splitlines()[-1] == "the generated code is the same"


def test_sides_stand_beside_each_other_where_there_is_room(diff: Diff, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = diff(PTX, AFTER).out
    monkeypatch.setenv("COLUMNS", "200")
    wide = diff(PTX, AFTER).out
    beside = re.compile(r"- mbarrier\.try_wait\.\S+ .*\| \+ mbarrier\.try_wait")
    assert beside.search(wide)
    assert not beside.search(narrow)


def test_full_lists_every_hunk(diff: Diff) -> None:
    ran = diff(PTX, AFTER, "--full")
    assert len(re.findall(r"PTX hunk \d of 4, changed: kernels/gemm_splitk_mailbox.py:\d+", ran.out)) == 4


def test_json_has_the_promised_shape(diff: Diff) -> None:
    report = diff(PTX, AFTER, "--format", "json").report
    assert report["schema_version"] == 1
    assert report["error"] is None
    summary = report["summary"]
    assert (summary["hunks"], summary["reorders"], summary["conflicts"]) == (4, 0, 0)
    assert summary["renamed"] > 500
    assert summary["skeleton_identical"] is False
    (kernel,) = report["kernels"]
    assert kernel["arch"] == "sm_100a"
    assert [claim["count"] for claim in kernel["claims"]] == [4]
    assert len(kernel["hunks"]) == 4
    assert kernel["metrics"]["PTX instructions"] == {"before": 549, "after": 553}
    assert kernel["verdicts"]["fixed"] == kernel["verdicts"]["new"] == []
    assert report["expectation"] is None


def test_github_is_markdown(diff: Diff) -> None:
    ran = diff(PTX, AFTER, "--format", "github")
    assert ran.out.startswith("### the generated code differs only at 4 waits")
    assert "```diff\n@@ 4 x @@\n- mbarrier.try_wait" in ran.out
    assert "| cost | before | after | in loops |" in ran.out


def test_a_listing_is_compared_with_a_listing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, text in (("a", SASS), ("b", replace_line(SASS, "CCTL.IVALL", ""))):
        (tmp_path / f"{name}.sass").write_text(text)
    assert run(["diff", str(tmp_path / "a.sass"), str(tmp_path / "a.sass")]) == 0
    assert run(["diff", str(tmp_path / "a.sass"), str(tmp_path / "b.sass")]) == 1
    assert "the machine code differs only by `CCTL.IVALL` removed" in capfd.readouterr().out


def test_ptx_and_a_listing_have_nothing_in_common(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ptx").write_text(PTX)
    (tmp_path / "b.sass").write_text(SASS)
    assert run(["diff", str(tmp_path / "a.ptx"), str(tmp_path / "b.sass"), "--no-assemble"]) == 2
    assert "nothing in common to compare" in capfd.readouterr().err


@pytest.mark.parametrize("change", [(".target sm_100a", ".target sm_103a"), (".version 9.4", ".version 8.8")])
def test_other_tools_are_refused_unless_allowed(diff: Diff, change: tuple[str, str]) -> None:
    after = PTX.replace(*change)
    assert after != PTX
    refused = diff(PTX, after)
    assert refused.code == 2
    assert "the tools differ" in refused.err
    allowed = diff(PTX, after, "--allow-toolchain-change")
    assert allowed.code == 0
    assert allowed.out.startswith("TOOLCHAIN CHANGED: ")


def test_across_tools_only_synchronization_and_verdicts_decide(diff: Diff) -> None:
    """Instructions drown such a comparison; --full asks for them."""
    old = PTX.replace(".version 9.4", ".version 8.8")
    plain = old.replace("min.s32", "max.s32")
    assert diff(plain, PTX, "--allow-toolchain-change").code == 0
    assert "the generated code differs only at" in diff(plain, PTX, "--allow-toolchain-change", "--full").out
    synchronizing = replace_line(old, "fence.mbarrier_init.release.cluster;", "")
    assert diff(synchronizing, PTX, "--allow-toolchain-change").code == 1


@pytest.mark.parametrize("path", ["../nowhere/before.ptx", "nowhere/../before.ptx"])
def test_a_path_that_is_not_there_is_no_range(path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "after.ptx").write_text(PTX)
    assert run(["diff", path, str(tmp_path / "after.ptx")]) == 2
    assert capfd.readouterr().err == f"error: cannot be read: No such file or directory\n  where: {path}\n"


def test_one_argument_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ptx").write_text(PTX)
    assert run(["diff", str(tmp_path / "a.ptx")]) == 2
    assert "two things are compared" in capfd.readouterr().err


def test_a_refusal_is_json_too(diff: Diff, tmp_path: Path) -> None:
    other = PTX.replace(".target sm_100a", ".target sm_103a")
    ran = diff(PTX, other, "--format", "json")
    assert ran.code == 2
    assert "the tools differ" in ran.err
    assert ran.report["subjects"] == [str(tmp_path / "before.ptx"), str(tmp_path / "after.ptx")]
    assert ran.report["error"]["kind"] == "ConfigError"
    assert "the tools differ" in ran.report["error"]["what"]
    assert "--allow-toolchain-change" in ran.report["error"]["help"]
    jsonschema.validate(ran.report, json.loads(schema()))
    file = tmp_path / "report.json"
    assert diff(PTX, other, "--format", "json", "--output-file", file).code == 2
    assert json.loads(file.read_text()) == ran.report
    assert diff(PTX, other).out == ""


def test_a_claim_that_cannot_be_read_is_a_refusal(diff: Diff, tmp_path: Path) -> None:
    ran = diff(PTX, PTX, "--format", "json", "--expect", tmp_path / "nowhere.toml")
    assert ran.code == 2
    assert "nowhere.toml" in ran.report["error"]["where"]


def test_no_json_in_the_place_of_a_draft(diff: Diff) -> None:
    ran = diff(PTX, PTX.replace(".target sm_100a", ".target sm_103a"), "--format", "json", "--write-expect")
    assert (ran.code, ran.out) == (2, "")


def test_ir_is_asked_for_where_there_is_none(diff: Diff) -> None:
    ran = diff(PTX, PTX, "--level", "ir")
    assert ran.code == 2
    assert "no IR of" in ran.err


def test_folders_are_paired_by_path_and_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for side, texts in (
        ("old", {"x/a": PTX, "x/b": PTX, "gone": PTX}),
        ("new", {"x/a": AFTER, "x/b": PTX, "fresh": PTX}),
    ):
        for name, text in texts.items():
            file = tmp_path / side / f"{name}.ptx"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    assert run(["diff", str(tmp_path / "old"), str(tmp_path / "new"), "--no-assemble", "--format", "json"]) == 1
    summary = json.loads(capfd.readouterr().out)["summary"]
    assert (summary["kernels"], summary["changed"], summary["hunks"]) == (3, 1, 4)
    (tmp_path / "new" / "x" / "c.ptx").write_text(PTX.replace("gemm_splitk_mailbox_0", "another"))
    assert run(["diff", str(tmp_path / "old"), str(tmp_path / "new"), "--no-assemble"]) == 1
    out = capfd.readouterr().out
    assert "added: another (sm_100a)" in out
    assert out.count("CLAIM") == 1
    assert out.count("gemm_splitk_mailbox_0 sm_100a: the same code, 549 PTX instructions") == 2


@pytest.mark.toolchain
def test_the_skeleton_of_the_machine_code_does_not_change(diff: Diff) -> None:
    ran = diff(PTX, AFTER, "--format", "json", assemble=True)
    (kernel,) = ran.report["kernels"]
    assert ran.report["summary"]["skeleton_identical"] is True
    metrics = kernel["metrics"]
    assert metrics["registers"]["before"] == metrics["registers"]["after"]
    assert metrics["CCTL.IVALL"]["before"] == metrics["CCTL.IVALL"]["after"]
    assert metrics["NOP"]["after"] > metrics["NOP"]["before"]


@pytest.mark.toolchain
def test_alternatives_are_told_apart_by_cost(diff: Diff) -> None:
    """What an acquire wait and a full fence cost beside the relaxed form, in loops and out of them."""
    acquire = diff(PTX, renumber(relax_waits(PTX, 4, CLUSTER_WAIT, "")), "--format", "json", assemble=True)
    (kernel,) = acquire.report["kernels"]
    invalidate = kernel["metrics"]["CCTL.IVALL"]
    assert invalidate["after"] - invalidate["before"] == 8  # each wait has an inline try and a retry
    assert invalidate["after_in_loops"] - invalidate["before_in_loops"] == 6
    full = diff(PTX, renumber(relax_waits(PTX, 4, RELAXED_WAIT, FULL_FENCE)), "--format", "json", assemble=True)
    metrics = full.report["kernels"][0]["metrics"]
    grown = {name: m["after"] - m["before"] for name, m in metrics.items() if m["after"] != m["before"]}
    assert grown["CCTL.IVALL"] == grown["ERRBAR"] == 4
    assert grown["MEMBAR.ALL.GPU"] == 4
    assert full.report["summary"]["skeleton_identical"] is False


def test_the_report_has_the_stored_schema(diff: Diff) -> None:
    assert SCHEMA.read_text() == schema()
    for ran in (diff(PTX, AFTER, "--format", "json"), diff(PTX, renumber(PTX), "--format", "json")):
        jsonschema.validate(ran.report, json.loads(schema()))
