"""`verifier check`: discovery, joining, reports, settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests.cli.support import Verifier
from verifier.compile.disassemble import disassemble
from verifier.report import schema

MakePtx = Callable[..., Path]


def kernels(report: dict[str, object]) -> list[tuple[str, str]]:
    found = report["kernels"]
    assert isinstance(found, list)
    return [(kernel["name"], kernel["arch"]) for kernel in found]


def test_the_last_line_names_everything(verifier: Verifier, ptx: MakePtx) -> None:
    ran = verifier("check", ptx())
    assert ran.code == 0
    last = ran.out.splitlines()[-1]
    for part in (
        "1 kernel (sm_100a)",
        "proved",
        "violated",
        "unknown",
        "0 unparsed lines",
        "ptxas 13.",
        "nvdisasm 13.",
    ):
        assert part in last


def test_json_follows_the_schema(verifier: Verifier, ptx: MakePtx) -> None:
    ran = verifier("check", "--format", "json", ptx())
    jsonschema.Draft202012Validator(json.loads(schema.STORED.read_text())).validate(ran.report)
    assert ran.report["kernels"][0]["toolchain"]["assembler"].startswith("ptxas 13.5")
    assert ran.report["kernels"][0]["metrics"]["registers"] > 0
    assert ran.err == ""


def test_json_needs_no_terminal_library(ptx: MakePtx) -> None:
    code = (
        "import sys; from verifier.cli import run; "
        f"run(['check', '--no-assemble', '--format', 'json', {str(ptx())!r}]); sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_without_assembling_there_is_no_sass(verifier: Verifier, ptx: MakePtx) -> None:
    (kernel,) = verifier("check", "--format", "json", "--no-assemble", ptx()).report["kernels"]
    assert kernel["toolchain"] == {}
    assert kernel["metrics"] == {}


def test_an_instruction_that_no_table_knows_fails_strict(verifier: Verifier, ptx: MakePtx) -> None:
    path = ptx()
    path.write_text(path.read_text().replace("mov.u32 %r1, %tid.x;", "frobnicate.b32 %r1, %r2;"))
    ran = verifier("check", "--no-assemble", "--select", "MBR", path)
    assert ran.code == 0
    assert "unknown to the tables: 1 instruction, frobnicate.b32 x1" in ran.out
    assert verifier("check", "--no-assemble", "--select", "MBR", "--strict", path).code == 1


def test_a_cubin_alone(verifier: Verifier, cubin: Path) -> None:
    ran = verifier("check", "--format", "json", cubin)
    assert ran.code == 0
    assert kernels(ran.report) == [("kernel_a", "sm_100a")]


def test_rules_that_were_not_run_fail_strict(verifier: Verifier, cubin: Path, ptx: MakePtx) -> None:
    """Half of a build is not a clean build: what reads the other half says nothing."""
    for half, missing, other in ((cubin, "PTX", "PRF601"), (ptx(), "SASS", "MBR201")):
        options = ("check", "--no-assemble", half)
        ran = verifier(*options)
        assert ran.code == 0
        assert f"(needs {missing})" in ran.out
        (summary,) = (line for line in ran.out.splitlines() if "rules not run; " in line)
        assert " 0 rules" not in summary
        assert verifier(*options, "--strict").code == 1
        assert verifier(*options, "--strict", "--select", other).code == 0


def test_a_listing(verifier: Verifier, cubin: Path, tmp_path: Path) -> None:
    (tmp_path / "a.sass").write_text(disassemble(cubin.read_bytes()).text)
    (tmp_path / "b").write_text(disassemble(cubin.read_bytes()).text)
    for name in ("a.sass", "b"):
        assert kernels(verifier("check", "--format", "json", tmp_path / name).report) == [("kernel_a", "sm_100a")]


def test_cuda_source(verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "axpy.cu"
    path.write_text('extern "C" __global__ void axpy(float a, float *x) { x[threadIdx.x] *= a; }\n')
    assert verifier("check", path).code == 2
    ran = verifier("check", "--format", "json", path, "--arch", "sm_100a", "--arch", "sm_90a")
    assert ran.code == 0, ran
    assert kernels(ran.report) == [("axpy", "sm_100a"), ("axpy", "sm_90a")]


class TestJoining:
    def test_by_stem(self, verifier: Verifier, ptx: MakePtx, cubin: Path, tmp_path: Path) -> None:
        ptx("pair.ptx")
        (tmp_path / "pair.cubin").write_bytes(cubin.read_bytes())
        ran = verifier("check", "--format", "json", tmp_path)
        assert kernels(ran.report) == [("kernel_a", "sm_100a")]
        assert "for this check" not in ran.report["kernels"][0]["toolchain"]["assembler"]

    def test_by_kernel_name(self, verifier: Verifier, ptx: MakePtx, cubin: Path, tmp_path: Path) -> None:
        (tmp_path / "built.cubin").write_bytes(cubin.read_bytes())
        ran = verifier("check", "--format", "json", ptx("source.ptx"), tmp_path / "built.cubin")
        assert kernels(ran.report) == [("kernel_a", "sm_100a")]
        assert "source.ptx + " in ran.report["kernels"][0]["source"]
        assert "for this check" not in ran.report["kernels"][0]["toolchain"]["assembler"]

    def test_not_across_architectures(self, verifier: Verifier, ptx: MakePtx, cubin: Path, tmp_path: Path) -> None:
        (tmp_path / "built.cubin").write_bytes(cubin.read_bytes())
        ran = verifier("check", "--format", "json", ptx("source.ptx", arch="sm_103a"), tmp_path / "built.cubin")
        assert sorted(kernels(ran.report)) == [("kernel_a", "sm_100a"), ("kernel_a", "sm_103a")]

    def test_not_when_it_is_unclear(self, verifier: Verifier, ptx: MakePtx, cubin: Path, tmp_path: Path) -> None:
        (tmp_path / "built.cubin").write_bytes(cubin.read_bytes())
        ran = verifier("check", ptx("bad.ptx"), ptx("good.ptx"), tmp_path / "built.cubin")
        assert ran.code == 2
        assert "which files belong together is not clear" in ran.err

    def test_two_of_a_name_are_two_kernels(self, verifier: Verifier, ptx: MakePtx) -> None:
        ran = verifier("check", "--format", "json", ptx("bad.ptx"), ptx("good.ptx"))
        assert [Path(kernel["source"]).name for kernel in ran.report["kernels"]] == ["bad.ptx", "good.ptx"]


class TestFolders:
    def test_nested(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        ptx("one/kernel.ptx", name="one")
        ptx("deep/two/kernel.ptx", name="two")
        ptx("deep/three.ptx", name="three")
        (tmp_path / "deep/README").write_text("not a kernel")
        ran = verifier("check", "--format", "json", tmp_path)
        assert {name for name, _ in kernels(ran.report)} == {"one", "two", "three"}

    def test_only_one_architecture(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        ptx("a.ptx")
        ptx("b.ptx", arch="sm_103a")
        ran = verifier("check", "--format", "json", "--arch", "sm_103a", tmp_path)
        assert kernels(ran.report) == [("kernel_a", "sm_103a")]
        assert verifier("check", "--arch", "sm_90a", tmp_path).code == 2

    def test_a_link_in_a_circle_ends(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        ptx("sub/a.ptx")
        (tmp_path / "sub" / "again").symlink_to(tmp_path, target_is_directory=True)
        assert kernels(verifier("check", "--format", "json", tmp_path).report) == [("kernel_a", "sm_100a")]

    def test_the_same_path_twice_counts_once(self, verifier: Verifier, ptx: MakePtx) -> None:
        path = ptx()
        assert len(verifier("check", "--format", "json", path, path).report["kernels"]) == 1


class TestOutput:
    def test_to_a_file(self, verifier: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        target = tmp_path / "report.json"
        ran = verifier("check", ptx(), "--format", "json", "--output-file", target)
        assert (ran.code, ran.out) == (0, "")
        assert json.loads(target.read_text())["summary"]["kernels"] == 1
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    def test_a_device_is_not_replaced(self, verifier: Verifier, ptx: MakePtx) -> None:
        assert verifier("check", ptx(), "--output-file", "/dev/null").code == 0
        assert Path("/dev/null").is_char_device()

    def test_no_colour_in_a_pipe(self, process: Verifier, ptx: MakePtx) -> None:
        assert "\x1b" not in process("check", ptx()).out

    def test_a_reader_that_leaves(self, ptx: MakePtx) -> None:
        command = f"{sys.executable} -m verifier check {ptx()} --format json | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_name_that_is_no_text(self, process: Verifier, ptx: MakePtx, tmp_path: Path) -> None:
        odd = tmp_path / "odd\udcff\x1b[31m.ptx"
        odd.write_bytes(ptx().read_bytes())
        assert process("check", odd, "--format", "json").report["summary"]["kernels"] == 1
        assert "\x1b" not in process("check", odd).out


class TestSettings:
    """Command line over environment over file."""

    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return tmp_path / "pyproject.toml"

    def test_of_a_file(self, verifier: Verifier, ptx: MakePtx, here: Path) -> None:
        path = ptx()
        here.write_text('[tool.verifier]\narch = ["sm_90a"]\n')
        assert verifier("check", path).code == 2
        assert verifier("check", path, "--arch", "sm_100a").code == 0

    def test_of_another_file(self, verifier: Verifier, ptx: MakePtx, here: Path, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text('[tool.verifier]\narch = ["sm_90a"]\n')
        assert verifier("--config", tmp_path / "other.toml", "check", ptx()).code == 2

    @pytest.mark.parametrize(
        "text",
        ["colour = 1", "strict = 3", 'select = "TCG101"', 'profile = "lenient"', "arch = ['sm_1']", "x ="],
    )
    def test_that_make_no_sense(self, verifier: Verifier, ptx: MakePtx, here: Path, text: str) -> None:
        here.write_text(f"[tool.verifier]\n{text}\n")
        ran = verifier("check", ptx())
        assert (ran.code, ran.out) == (2, "")

    def test_of_the_environment(
        self, verifier: Verifier, ptx: MakePtx, monkeypatch: pytest.MonkeyPatch, here: Path
    ) -> None:
        here.write_text('[tool.verifier]\nprofile = "isa"\n')
        monkeypatch.setenv("VERIFIER_PROFILE", "lenient")
        assert verifier("check", ptx()).code == 2
        assert verifier("check", ptx(), "--profile", "default").code == 0

    def test_doctor_prints_them(self, verifier: Verifier, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here.write_text('[tool.verifier]\nprofile = "isa"\n')
        monkeypatch.setenv("VERIFIER_FAIL_ON", "note")
        ran = verifier("doctor")
        assert str(here) in ran.out
        assert "profile = 'isa'" in ran.out
        assert "VERIFIER_FAIL_ON = 'note' (environment)" in ran.out
