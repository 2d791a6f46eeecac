"""`verifier nightly`: outputs, exit codes, alert, show and trend, and damaged or busy folders."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from tests.cli.support import one_message
from tests.nightly.conftest import Project
from tests.nightly.support import dump
from tests.report.test_sarif import VALIDATOR
from tests.rules.example_kernel import complete
from verifier.nightly.lock import exclusive
from verifier.rules import find_rule
from verifier.rules.docs import code_blocks

SETTINGS = 'artifacts = ["build"]\n'


@pytest.fixture
def compiled(project: Project) -> Project:
    """Two kernels that came compiled."""
    project.settings(SETTINGS)
    project.ptx("build/a.ptx", "kernel_a")
    project.ptx("build/b.ptx", "kernel_b")
    return project


def example(section: str, code: str = "MBR201") -> str:
    """A whole kernel made of the example in the documentation of a rule."""
    text, _ = complete(code_blocks(find_rule(code).doc.sections[section])[0], "sm_100a")
    return text


def test_a_run_leaves_everything(compiled: Project) -> None:
    ran = compiled.run("--out", "out")
    assert ran.code == 0, ran.err
    out = compiled.root / "out"
    files = {file.name for file in out.iterdir() if file.is_file()}
    assert files == {
        "history.sqlite", "index.html", "run-1.html", "findings.sarif", "junit.xml", "report.txt", "summary.md",
        "summary.json", "lock",
    }  # fmt: skip
    VALIDATOR.validate(json.loads((out / "findings.sarif").read_text()))
    assert len(JUnitXml.fromstring((out / "junit.xml").read_bytes())) == 2
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["run"], summary["exit_code"], summary["totals"]["checked"]) == (1, 0, 2)
    assert ran.out.splitlines()[0] == "run 1: no regression"
    assert "2 cells, 2 checked, 2 kernel builds; " in ran.out
    assert "out/index.html" in ran.out


def test_progress_tells_how_far_it_is(compiled: Project) -> None:
    first, second = (
        line for line in compiled.run("--out", "out", "--jobs", 1).err.splitlines() if line.startswith("[")
    )
    assert first.startswith("[1/2] build/a.ptx - as built: checked (")
    assert "; 1 running, 0 waiting, about " in first
    assert second.startswith("[2/2] build/b.ptx - as built: checked (")
    assert second.endswith("; all done")


def test_nothing_is_done_twice(compiled: Project) -> None:
    compiled.run("--out", "out")
    before = dump(compiled.root / "out" / "history.sqlite")
    ran = compiled.run("--out", "out")
    assert ran.code == 0
    assert ran.err.count(": as before (") == 2
    after = dump(compiled.root / "out" / "history.sqlite")
    twice = sorted([row[1:] for row in before["cells"]] * 2, key=repr)
    assert sorted([row[1:] for row in after["cells"]], key=repr) == twice
    compiled.ptx("build/b.ptx", "kernel_c")
    ran = compiled.run("--out", "out")
    assert (ran.err.count(": as before ("), ran.err.count(": checked (")) == (1, 1)


def test_a_regression_is_exit_1_and_the_alert_gets_it(compiled: Project) -> None:
    compiled.settings(SETTINGS + 'select = ["MBR201"]\n')
    file = compiled.root / "build" / "a.ptx"
    file.write_text(example("Good"))
    alarm = ("--alert-command", "cat > alert.json", "--out", "out")
    assert compiled.run(*alarm).code == 0
    assert not (compiled.root / "alert.json").exists()
    (compiled.root / "kernel.py").write_text("def kernel():\n    prepare()\n    wait()\n")
    lines = example("Bad").splitlines()
    lines.insert(next(n for n, line in enumerate(lines) if "MBR201" in line), ".loc 1 3 0")
    file.write_text("\n".join([*lines, f'.file 1 "{compiled.root / "kernel.py"}"', ""]))
    ran = compiled.run(*alarm)
    assert ran.code == 1, ran.err
    alert = json.loads((compiled.root / "alert.json").read_text())
    (change,) = [change for change in alert["comparison"]["new"] if change["rule"] == "MBR201"]
    assert change["builds"] == [{"kernel": "build/a.ptx/example", "arch": "sm_100a", "toolchain": "as built"}]
    assert (change["file"], change["line"], change["failing"]) == ("kernel.py", 3, True)
    assert "new   error MBR201 wait-result-ignored: kernel.py:3: " in ran.out
    assert compiled.run(*alarm).code == 1  # still compared with the last good run
    file.write_text(example("Good"))
    ran = compiled.run(*alarm)
    assert ran.code == 0
    page = (compiled.root / "out" / "index.html").read_text()
    assert 'href="run-2.html"' in page


def test_an_accepted_run_is_compared_with(compiled: Project) -> None:
    (compiled.root / "build" / "a.ptx").write_text(example("Bad"))
    assert compiled.run("--out", "out").code == 1
    assert compiled.run("accept", 1, "they are old", "--out", "out").code == 0
    assert compiled.run("--out", "out").code == 0
    assert "regression, accepted: they are old" in compiled.run("show", "--out", "out").out


def test_a_failing_alert_changes_no_exit_code(compiled: Project) -> None:
    (compiled.root / "build" / "a.ptx").write_text(example("Bad"))
    ran = compiled.run("--out", "out", "--alert-command", "echo no route >&2; exit 7")
    assert ran.code == 1
    assert "note: the alert command ended with 7: no route" in ran.err


def test_what_cannot_be_read_is_exit_2_and_the_rest_is_checked(compiled: Project) -> None:
    compiled.ptx("build/b.ptx", "kernel_b").write_text(".version 8.8\n.target sm_100a\n.address_size 64\nnonsense (;\n")
    ran = compiled.run("--out", "out")
    assert ran.code == 2
    assert ran.out.startswith("run 1: incomplete: 1 cell could not be checked")
    assert "NOT CHECKED (failed) build/b.ptx - as built: " in ran.out
    assert "2 cells, 1 checked" in ran.out
    assert "Traceback" not in ran.err


def test_show_and_trend(compiled: Project) -> None:
    compiled.run("--out", "out")
    compiled.ptx("build/a.ptx", "kernel_a").write_text(
        (compiled.root / "build" / "a.ptx")
        .read_text()
        .replace("st.global.u32 [%rd1], %r1;", "st.global.u32 [%rd1+4], %r1;")
    )
    compiled.run("--out", "out")
    runs = compiled.run("show", "--out", "out").out.splitlines()
    assert [line.split()[0] for line in runs] == ["2", "1"]
    assert all("good" in line and "2/2 cells checked" in line for line in runs)
    shown = compiled.run("show", 2, "--out", "out").out
    assert "compared with run 1" in shown
    assert "code  PTX and SASS changed: build/a.ptx/kernel_a sm_100a as built" in shown
    trend = compiled.run("trend", "build/a.ptx/kernel_a", "--out", "out").out.splitlines()
    assert trend[0] == "build/a.ptx/kernel_a sm_100a as built"
    assert [line.split()[:2] for line in trend[1:3]] == [["run", "1"], ["run", "2"]]
    assert "registers" in trend[1]
    same = compiled.run("trend", "build/b.ptx/kernel_b", "--out", "out").out.splitlines()
    assert same[2].strip() == "1 more run with no change"
    for name in ("build/a.ptx", "kernel_a"):
        assert compiled.run("trend", name, "--out", "out").out.splitlines() == trend
    assert one_message(compiled.run("trend", "nothing", "--out", "out"))
    assert compiled.run("show", 2, "--kernel", "build/a.ptx", "--out", "out").code == 0
    assert one_message(compiled.run("show", 2, "--kernel", "nothing", "--out", "out"))
    assert one_message(compiled.run("show", 9, "--out", "out"))


def test_reading_without_a_history_is_one_message(project: Project) -> None:
    assert one_message(project.run("show", "--out", "out"))
    assert one_message(project.run("trend", "x", "--out", "out"))
    assert not (project.root / "out").exists()


@pytest.mark.parametrize("data", [b"no database", b""])
def test_a_damaged_history_is_one_message_and_left_alone(compiled: Project, data: bytes) -> None:
    out = compiled.root / "out"
    out.mkdir()
    history = out / "history.sqlite"
    history.write_bytes(data * 500)
    ran = compiled.run("--out", "out")
    if data:
        assert one_message(ran), ran
        assert history.read_bytes() == data * 500
    else:
        assert ran.code == 0  # an empty file is what SQLite starts from


def test_a_newer_history_is_one_message_and_left_alone(compiled: Project) -> None:
    compiled.run("--out", "out")
    history = compiled.root / "out" / "history.sqlite"
    db = sqlite3.connect(history)
    db.execute("PRAGMA user_version = 1000")
    db.commit()
    db.close()
    before = history.read_bytes()
    for ran in (compiled.run("--out", "out"), compiled.run("show", "--out", "out")):
        assert one_message(ran), ran
        assert "the history is of version 1000" in ran.err
    assert history.read_bytes() == before


def test_a_busy_folder_is_one_message(compiled: Project) -> None:
    with exclusive(compiled.root / "out"):
        ran = compiled.run("--out", "out")
    assert one_message(ran), ran
    assert "another nightly run works in this folder" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kernel", "nothing"),
        ("--arch", "sm_1"),
        ("--toolchain", "nothing"),
        ("--config", "nowhere.toml"),
        ("--defect", "x"),
    ],
)
def test_bad_arguments_are_one_message(compiled: Project, arguments: tuple[str, ...]) -> None:
    ran = compiled.run("--out", "out", *arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_waivers_of_settings_work(compiled: Project) -> None:
    (compiled.root / "build" / "a.ptx").write_text(example("Bad"))
    compiled.settings(
        SETTINGS
        + "".join(
            f'[[suppress]]\nkernel = "exam*"\ncode = "{code}"\nreason = "an example"\n'
            for code in ("MBR", "CTL", "MEM", "TCG")
        )
    )
    ran = compiled.run("--out", "out")
    assert ran.code == 0, ran.out
    assert "waived" in ran.out
    report = (compiled.root / "out" / "report.txt").read_text()
    assert "an example (nightly.toml [[suppress]] 1)" in report
    assert "unused waiver of TCG" in report


@pytest.mark.toolchain
def test_cells_that_hang_grow_or_crash_are_results(project: Project) -> None:
    """The rest of the matrix completes; each bad cell says how it ended."""
    project.kernel("hangs", "def build(config, defect):\n    while True:\n        pass\n")
    project.kernel(
        "grows", "def build(config, defect):\n    kept = []\n    while True:\n        kept.append(bytearray(1 << 24))\n"
    )
    project.kernel("dies", "import ctypes\ndef build(config, defect):\n    ctypes.string_at(0)\n")
    project.kernel("wrong", "def build(config, defect):\n    raise ValueError('no such tile')\n")
    project.register([f'Case("{name}")' for name in ("hangs", "grows", "dies", "wrong")])
    project.settings(SETTINGS + 'seconds = 20\nmemory = "3 GiB"\n')
    project.ptx("build/a.ptx", "kernel_a")
    ran = project.run("--out", "out")
    assert ran.code == 2
    summary = json.loads((project.root / "out" / "summary.json").read_text())
    states = {item["build"]["kernel"]: item["state"] for item in summary["comparison"]["unchecked"]}
    assert states == {"hangs": "time", "grows": "memory", "dies": "crash", "wrong": "failed"}
    assert (summary["totals"]["cells"], summary["totals"]["checked"]) == (5, 1)
    assert "NOT CHECKED (failed) wrong sm_100a installed: " in ran.out
    assert "no such tile" in ran.out


def test_the_summary_has_a_schema() -> None:
    """What the alert command reads is described by the struct that writes it."""
    import msgspec

    from verifier.nightly.outputs import Summary

    jsonschema.Draft202012Validator.check_schema(msgspec.json.schema(Summary))


def test_history_stays_where_it_is_told(compiled: Project, tmp_path: Path) -> None:
    compiled.run()
    assert (compiled.root / "nightly" / "history.sqlite").exists()
