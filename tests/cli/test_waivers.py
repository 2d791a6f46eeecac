"""Formats, waivers and baselines through the command line: what each does to the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Verifier, one_message
from tests.rules.example_kernel import complete
from verifier.rules import find_rule
from verifier.rules.docs import code_blocks

PYTHON = "def kernel():\n    prepare()\n    wait()\n    use()\n"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A kernel that violates MBR201; its line map says that all of it is line 3 of kernel.py."""
    rule = find_rule("MBR201")
    text, marks = complete(code_blocks(rule.doc.sections["Bad"])[0], "sm_100a")
    (tmp_path / "kernel.py").write_text(PYTHON)
    lines = text.splitlines()
    first = min(marks) - 1
    lines.insert(first, ".loc 1 3 0")
    lines.append(f'.file 1 "{tmp_path / "kernel.py"}"')
    file = tmp_path / "kernel.ptx"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(verifier: Verifier, bad: Path, *options: object) -> int:
    return verifier("check", "--no-assemble", "--select", "MBR201", *options, bad).code


def test_the_kernel_is_bad(verifier: Verifier, bad: Path) -> None:
    ran = verifier("check", "--no-assemble", "--select", "MBR201", "--format", "concise", bad)
    assert ran.code == 1
    assert ran.out.startswith("kernel.py:3: error[MBR201 wait-result-ignored] ")


@pytest.mark.parametrize("format", ["text", "concise", "json", "sarif", "junit", "github", "html"])
def test_every_format_names_the_finding(verifier: Verifier, bad: Path, format: str) -> None:
    ran = verifier("check", "--no-assemble", "--select", "MBR201", "--format", format, bad)
    assert ran.code == 1
    assert "wait-result-ignored" in ran.out or "WaitResultIgnored" in ran.out
    assert "kernel.py" in ran.out


def test_several_reports_at_once(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    ran = verifier(
        "check", "--no-assemble", "--report", "sarif=a.sarif", "--report", "junit=b.xml", "--report", "html=c.html", bad
    )
    assert ran.code == 1
    assert json.loads((tmp_path / "a.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "b.xml").read_text().startswith("<?xml")
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")
    assert "error[MBR201" in ran.out


@pytest.mark.parametrize("value", ["sarif", "sarif=", "word=a.txt"])
def test_a_report_that_makes_no_sense(verifier: Verifier, bad: Path, value: str) -> None:
    ran = verifier("check", "--report", value, bad)
    assert ran.code == 2
    assert "is not like sarif=findings.sarif" in ran.err


def test_a_job_gets_its_summary(verifier: Verifier, bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("# before\n")
    assert check(verifier, bad, "--format", "github") == 1
    written = (tmp_path / "summary.md").read_text()
    assert written.startswith("# before\n### ")
    assert "MBR201" in written


def test_a_comment_in_the_source_waives(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(PYTHON.replace("wait()", "wait()  # verifier: ignore[MBR201] polled outside"))
    ran = verifier("check", "--no-assemble", "--select", "MBR201", bad)
    assert ran.code == 0, ran.out
    assert "polled outside (kernel.py:3)" in ran.out
    assert "1 waived" in ran.out.splitlines()[-1]


def test_an_unused_comment_is_told(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    comment = "wait()  # verifier: ignore[MBR201] no longer true"
    (tmp_path / "kernel.py").write_text(PYTHON.replace("wait()", comment))
    good, _ = complete(code_blocks(find_rule("MBR201").doc.sections["Good"])[0], "sm_100a")
    lines = good.splitlines()
    lines.insert(next(n for n, line in enumerate(lines) if "try_wait" in line), ".loc 1 3 0")
    bad.write_text("\n".join([*lines, f'.file 1 "{tmp_path / "kernel.py"}"', ""]))
    ran = verifier("check", "--no-assemble", "--select", "MBR201", bad)
    assert ran.code == 0, ran.out
    assert "note: kernel.py:3: unused waiver of MBR201, take it out" in ran.out


def test_settings_waive(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[[tool.verifier.suppress]]\ncode = "MBR201"\nreason = "polled outside"\nkernel = "exam*"\n')
    ran = verifier("check", "--no-assemble", "--select", "MBR201", bad)
    assert ran.code == 0, ran.out
    assert "polled outside (pyproject.toml [[tool.verifier.suppress]] 1)" in ran.out
    settings.write_text('[[tool.verifier.suppress]]\ncode = "MBR201"\nkernel = "exam*"\n')
    assert one_message(verifier("check", bad))
    settings.write_text('[[tool.verifier.suppress]]\ncode = "XYZ1"\nreason = "no such rule"\n')
    ran = verifier("check", bad)
    assert ran.code == 2
    assert "pyproject.toml [[tool.verifier.suppress]] 1" in ran.err


def test_a_baseline_passes_what_it_knows(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    assert check(verifier, bad) == 1
    ran = verifier("baseline", "--no-assemble", "--select", "MBR201", bad)
    assert (ran.code, ran.out) == (0, "")
    assert "1 finding in verifier-baseline.json" in ran.err
    assert check(verifier, bad, "--baseline", "verifier-baseline.json") == 0
    (tmp_path / "pyproject.toml").write_text('[tool.verifier]\nbaseline = "verifier-baseline.json"\n')
    assert check(verifier, bad) == 0
    other = tmp_path / "other.ptx"
    other.write_text(bad.read_text().replace("entry example", "entry fresh"))
    ran = verifier("check", "--no-assemble", "--select", "MBR201", bad, other)
    assert ran.code == 1
    assert "in kernel fresh" in ran.out
    assert "in kernel example" not in ran.out


def test_a_baseline_tells_what_is_gone(verifier: Verifier, bad: Path) -> None:
    verifier("baseline", "--no-assemble", "--select", "MBR201", bad)
    good, _ = complete(code_blocks(find_rule("MBR201").doc.sections["Good"])[0], "sm_100a")
    bad.write_text(good)
    ran = verifier("check", "--no-assemble", "--select", "MBR201", "--baseline", "verifier-baseline.json", bad)
    assert ran.code == 0
    assert "note: the baseline holds a MBR201 of example that is gone" in ran.out


def test_no_baseline_of_what_cannot_be_checked(verifier: Verifier, bad: Path, tmp_path: Path) -> None:
    bad.write_text(bad.read_text().replace("ret;", "ret (;"))
    ran = verifier("baseline", "--no-assemble", bad)
    assert one_message(ran)
    assert not (tmp_path / "verifier-baseline.json").exists()


def test_a_missing_baseline_is_one_message(verifier: Verifier, bad: Path) -> None:
    assert one_message(verifier("check", "--baseline", "nowhere.json", bad))
