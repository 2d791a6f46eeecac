"""Whatever cannot be checked: exit 2, one clear message on stderr, no traceback, nothing on stdout."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import PTX, Verifier, one_message

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


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_format_makes_no_difference(verifier: Verifier, tmp_path: Path, form: str) -> None:
    (tmp_path / "a.ptx").write_text("")
    assert one_message(verifier("check", tmp_path / "a.ptx", "--format", form))


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
