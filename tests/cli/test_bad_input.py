"""Whatever cannot be checked: exit 2, one clear message on stderr, no traceback, nothing on stdout."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests.cli.support import PTX, Verifier, one_message
from verifier.compile.assemble import assemble
from verifier.report import schema

MakePtx = Callable[..., Path]

CONTENTS = {
    "empty.ptx": b"",
    "blank.ptx": b" \n\t\n",
    "zeros.ptx": bytes(5000),
    "elf.ptx": b"\x7fELF\x02\x01\x01" + bytes(200),
    "noise.ptx": random.Random(7).randbytes(20_000),
    "prose.ptx": b"It was a dark and stormy night.\n",
    "half.ptx": PTX.format(name="k", arch="sm_100a")[:200].encode(),
    "no_target.ptx": PTX.format(name="k", arch="sm_100a").replace(".target sm_100a\n", "").encode(),
    "no_kernel.ptx": b".version 8.8\n.target sm_100a\n.address_size 64\n",
    "future.ptx": PTX.format(name="k", arch="sm_999").encode(),
    "empty.cubin": b"",
    "text.cubin": b"not an ELF file at all\n",
    "header.cubin": b"\x7fELF\x02\x01\x01" + bytes(57),
    "empty.sass": b"",
    "prose.sass": b"It was a dark and stormy night.\n",
    "empty.cu": b"",
    "unknown.xyz": b"It was a dark and stormy night.\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_file(verifier: Verifier, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(CONTENTS[name])
    ran = verifier("check", path, "--arch", "sm_100a")
    assert one_message(ran), ran
    assert name in ran.err


@pytest.mark.parametrize("form", ["text", "concise"])
def test_people_have_the_message(verifier: Verifier, tmp_path: Path, form: str) -> None:
    (tmp_path / "a.ptx").write_text("")
    assert one_message(verifier("check", tmp_path / "a.ptx", "--format", form))


@pytest.mark.parametrize("form", ["json", "sarif", "junit", "github", "html"])
def test_programs_have_a_report_of_nothing(verifier: Verifier, tmp_path: Path, form: str) -> None:
    """One that reads the report need not know whether there was anything to check."""
    (tmp_path / "a.ptx").write_text("")
    file = tmp_path / "report"
    ran = verifier("check", tmp_path / "a.ptx", "--format", form, "--report", f"{form}={file}")
    assert ran.code == 2
    assert ran.err.count("error: ") == 1
    assert "the file is empty" in ran.out
    assert file.read_text() == ran.out


def test_json_of_nothing_follows_the_schema(verifier: Verifier, tmp_path: Path) -> None:
    ran = verifier("check", tmp_path / "nowhere.ptx", "--format", "json", "--exit-zero")
    assert ran.code == 2
    jsonschema.Draft202012Validator(json.loads(schema.STORED.read_text())).validate(ran.report)
    assert (ran.report["complete"], ran.report["kernels"], ran.report["findings"]) == (False, [], [])
    (error,) = ran.report["errors"]
    assert (error["kind"], error["where"]) == ("InputError", str(tmp_path / "nowhere.ptx"))


def test_a_file_gets_the_report_of_nothing_in_every_format(verifier: Verifier, tmp_path: Path) -> None:
    """Else yesterday's report would be taken for today's."""
    file = tmp_path / "report.txt"
    file.write_text("yesterday: 1 kernel proved")
    assert verifier("check", tmp_path / "nowhere.ptx", "--output-file", file).code == 2
    assert file.read_text().startswith("INCOMPLETE, 1 input could not be checked")


def test_the_message_says_what_where_and_what_to_do(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx(arch="sm_999")
    what, where, help_ = verifier("check", path).err.splitlines()
    assert what == "error: unknown architecture 'sm_999'"
    assert where == f"  where: {path}"
    assert help_.startswith("  help: known: sm_50,")


def test_an_unparsed_line_has_file_line_and_column(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx()
    path.write_text(path.read_text().replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1 ?? %tid.x;"))
    ran = verifier("check", path)
    assert one_message(ran), ran
    assert f"where: {path}:11:" in ran.err


NO_KERNEL = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .func f()\n{\n    ret;\n}\n"


@pytest.mark.parametrize("how", ["assembled", "alone", "cubin"])
def test_device_functions_alone_are_no_kernel(verifier: Verifier, tmp_path: Path, how: str) -> None:
    path = tmp_path / ("f.cubin" if how == "cubin" else "f.ptx")
    path.write_bytes(assemble(NO_KERNEL, "sm_100a").cubin if how == "cubin" else NO_KERNEL.encode())
    ran = verifier("check", path, *(["--no-assemble"] if how == "alone" else []))
    assert one_message(ran), ran
    assert ran.err.startswith(f"error: defines no kernel\n  where: {path}\n  help: only .entry functions")


@pytest.mark.parametrize("keep", [100, 700, 2000])
def test_a_truncated_cubin(verifier: Verifier, cubin: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes(cubin.read_bytes()[:keep])
    assert one_message(verifier("check", path))


def test_a_path_that_is_not_there(verifier: Verifier, tmp_path: Path) -> None:
    assert one_message(verifier("check", tmp_path / "nowhere.ptx"))


def test_a_path_through_a_file(verifier: Verifier, ptx: MakePtx) -> None:
    assert one_message(verifier("check", ptx() / "below.ptx"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx()
    path.chmod(0)
    assert one_message(verifier("check", path))


def test_a_device(verifier: Verifier) -> None:
    assert one_message(verifier("check", "/dev/zero"))


def test_a_folder_with_nothing_in_it(verifier: Verifier, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    ran = verifier("check", tmp_path)
    assert one_message(ran)
    assert "nothing to check" in ran.err


def test_a_meta_json_that_is_none(verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
    ptx("made/kernel.ptx")
    (tmp_path / "made/meta.json").write_text("{")
    assert one_message(verifier("check", tmp_path / "made"))


@pytest.mark.parametrize("variable", ["VERIFIER_NVDISASM"])
def test_a_missing_disassembler(
    verifier: Verifier, cubin: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/nowhere/nvdisasm")
    ran = verifier("check", cubin)
    assert one_message(ran), ran
    assert variable in ran.err


def test_ptx_is_checked_without_an_assembler_and_says_so(
    verifier: Verifier, ptx: MakePtx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIFIER_PTXAS", "/nowhere/ptxas")
    ran = verifier("check", ptx())
    assert ran.code == 0, ran
    assert "is checked without SASS" in ran.err
    assert "error:" not in ran.err


def test_ptx_that_ptxas_refuses(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx()
    path.write_text(path.read_text().replace("st.global.u32 [%rd1], %r1", "st.global.u32 [%rd1], %nowhere"))
    assert one_message(verifier("check", path))


def test_nonsense_of_many_megabytes_ends_at_its_first_line(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "big.ptx"
    path.write_bytes(b"lorem ipsum dolor sit amet\n" * 4_000_000)
    ran = verifier("check", path)
    assert one_message(ran)
    assert "big.ptx:1:" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "x.ptx", "--arch", "sm_1"),
        ("check", "x.ptx", "--profile", "lenient"),
        ("check", "x.ptx", "--select", "NOPE"),
        ("check", "x.ptx", "--block", "0"),
        ("check", "x.ptx", "--cluster", "a,b"),
        ("check", "x.ptx", "--fail-on", "never"),
        ("check", "x.ptx", "--format", "xml"),
        ("--config", "nowhere.toml", "rules"),
        ("explain", "NOPE"),
        ("show", "pictures", "x.ptx"),
        ("show", "streams", "nowhere.ptx"),
        ("verify", "no_such_kernel"),
        ("verify", "--defect", "no-such-defect"),
        ("verify", "--arch", "sm_80"),
        ("dance",),
        ("--no-such-option",),
    ],
)
def test_a_command_line_that_makes_no_sense(verifier: Verifier, arguments: tuple[str, ...]) -> None:
    ran = verifier(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "rror" in ran.err
    assert "Traceback" not in ran.err


def test_a_report_that_cannot_be_written(verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
    ran = verifier("check", ptx(), "--output-file", tmp_path / "nowhere" / "report.json")
    assert one_message(ran), ran


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--report", "json={0}", "--output-file", "{0}"), "--output-file and --report json name the same file"),
        (("--report", "json={0}", "--report", "sarif={1}"), "--report json and --report sarif name the same file"),
        (("--baseline", "{0}", "--output-file", "{1}"), "--output-file and --baseline name the same file"),
    ],
)
def test_two_writers_on_one_file(
    verifier: Verifier, ptx: MakePtx, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    names = (tmp_path / "report", tmp_path / "link")
    names[1].symlink_to(names[0])
    ran = verifier("check", ptx(), *(option.format(*names) for option in options))
    assert one_message(ran), ran
    assert message in ran.err
    assert not names[0].exists()


def test_a_report_does_not_replace_its_input(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx()
    before = path.read_bytes()
    ran = verifier("check", path, path, "--output-file", path)
    assert one_message(ran), ran
    assert "the input and --output-file name the same file" in ran.err
    assert path.read_bytes() == before


def test_a_device_takes_any_number_of_reports(verifier: Verifier, ptx: MakePtx) -> None:
    options = ("--report", "json=/dev/null", "--output-file", "/dev/null")
    assert verifier("check", ptx(), "--no-assemble", *options).code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(process: Verifier, ptx: MakePtx) -> None:
    import subprocess
    import sys

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "verifier", "check", ptx()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the report cannot be written: No space left")
    assert "Traceback" not in done.stderr


def test_a_bug_of_the_verifier_is_one_line(verifier: Verifier, ptx: MakePtx, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("verifier.parse.ptx.parse_ptx", broken)
    ran = verifier("check", ptx())
    assert one_message(ran), ran
    assert "internal error: KeyError: 'a bug'" in ran.err
    monkeypatch.setenv("VERIFIER_DEBUG", "1")
    assert "Traceback" in verifier("check", ptx()).err


class TestSeveralInputs:
    """Some can be checked and some cannot: what was checked is shown, and that it is not everything."""

    def test_text(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        (tmp_path / "bad.ptx").write_text("")
        ran = verifier("check", ptx(), tmp_path / "bad.ptx")
        assert ran.code == 2
        lines = ran.out.splitlines()
        assert lines[0].startswith("INCOMPLETE, 1 input could not be checked")
        assert lines[-1].startswith("INCOMPLETE, 1 input could not be checked: 1 kernel ")
        assert "error: the file is empty" in ran.err

    def test_json(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        (tmp_path / "bad.ptx").write_text("nonsense")
        ran = verifier("check", "--format", "json", ptx(), tmp_path / "bad.ptx", "--exit-zero")
        assert ran.code == 2
        assert ran.report["complete"] is False
        (error,) = ran.report["errors"]
        assert error["kind"] == "ParseError"
        assert error["where"].startswith(f"{tmp_path / 'bad.ptx'}:1:")
        assert ran.report["summary"]["unparsed"] == 1
        assert [kernel["name"] for kernel in ran.report["kernels"]] == ["kernel_a"]
