"""The parts of the corpus scripts that need neither the network nor the packages."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.corpus import build, check, flashinfer_cubin, flashinfer_cuda, recorder, shim


def test_every_entry_names_a_script_and_a_flavour_that_exist() -> None:
    for name, entry in build.ENTRIES.items():
        assert Path(build.__file__).with_name(f"{entry.script}.py").is_file(), name
        assert entry.flavour is None or entry.flavour in build.FLAVOURS, name


def test_every_script_is_built_by_some_entry() -> None:
    helpers = {"build", "cache", "check", "recorder", "shim", "test_corpus"}
    scripts = {path.stem for path in Path(build.__file__).parent.glob("*.py")} - helpers
    assert scripts == {entry.script for entry in build.ENTRIES.values()}


@pytest.mark.parametrize(("arch", "wanted"), [("sm_90a", (9, 0)), ("sm_100a", (10, 0)), ("sm_103f", (10, 3))])
def test_capability_of_an_architecture(arch: str, wanted: tuple[int, int]) -> None:
    assert shim.capability(arch) == wanted


def test_capability_refuses_what_is_no_architecture() -> None:
    with pytest.raises(ValueError, match="compute_100"):
        shim.capability("compute_100")


def test_configuration_values_become_scalars() -> None:
    assert [recorder._scalar(value) for value in ((256, 128), True, None, "k", Path("a"))] == [
        "256x128", True, None, "k", "a",
    ]  # fmt: skip


def test_kernels_are_found_once_and_by_name(tmp_path: Path) -> None:
    for name in ("a/x/kernel.ptx", "a/x/kernel.cubin", "a/y/kernel.cubin", "b/plain.cubin", "b/plain.ptx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in check.kernels_in(tmp_path, [])]
    assert found == ["a/x", "a/y", "b/plain.cubin", "b/plain.ptx"]
    assert [path.name for path in check.kernels_in(tmp_path, ["a/y"])] == ["y"]


_REPORT = {
    "kernels": [
        {
            "roles": [{"name": "mma"}, {"name": "epilogue"}],
            "obligations": [
                {"rule": "TCG101", "verdict": "proved", "reason": ""},
                {"rule": "MBR201", "verdict": "unknown", "reason": "no address"},
            ],
        }
    ],
    "findings": [{"rule": "TCG101", "severity": "error", "verdict": "violated"}],
    "summary": {"proved": 1, "violated": 1, "unknown": 1, "errors": 1, "warnings": 0, "notes": 0, "unparsed": 0},
}


def _answer(monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str = "") -> check.Row:
    def run(*_args: object, **_options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], code, out, err)

    monkeypatch.setattr(subprocess, "run", run)
    return check.check(Path("k"), "k", [])


def test_a_report_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = _answer(monkeypatch, 1, json.dumps(_REPORT))
    assert (row.roles, row.errors, row.unknown) == (("mma", "epilogue"), 1, 1)
    assert row.rules == {"TCG101:error": 1}
    assert row.reasons == {"MBR201: no address": 1}
    assert not row.broken


@pytest.mark.parametrize(
    ("code", "out", "err", "problem"),
    [
        (2, json.dumps(_REPORT), "error: internal error\n  where: k", "error: internal error where: k"),
        (1, "", "Traceback (most recent call last):\n  ...\nKeyError: 'x'", "KeyError: 'x'"),
        (-11, "", "", "no report"),
    ],
)
def test_a_run_that_failed_is_broken_and_says_why(
    monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str, problem: str
) -> None:
    row = _answer(monkeypatch, code, out, err)
    assert row.broken
    assert row.problem == problem


def test_an_unparsed_line_breaks_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {**_REPORT, "summary": {**_REPORT["summary"], "unparsed": 1}}  # type: ignore[dict-item]
    assert _answer(monkeypatch, 0, json.dumps(report)).broken


def test_cubins_are_shared_out_between_families_and_all_differ(tmp_path: Path) -> None:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/few/a.cubin", b"1")
        for number in range(6):
            archive.writestr(f"p/many/{number}.cubin", b"x" * (10 + number))
        archive.writestr("p/many/copy.cubin", b"x" * 10)
        archive.writestr("p/many/readme.txt", b"")
    with zipfile.ZipFile(path) as archive:
        chosen = [info.filename for info in flashinfer_cubin.smallest(archive, 4)]
    assert chosen == ["p/few/a.cubin", "p/many/0.cubin", "p/many/1.cubin", "p/many/2.cubin"]


def test_sources_are_the_smallest_of_each_folder_that_compile_alone(tmp_path: Path) -> None:
    kernel = '__global__ void f() { asm("mbarrier.inval"); }'
    sources = {
        "one/k_0123456789ab_kernel.cu": "#include <cuda_bf16.h>\n" + kernel,
        "one/longer.cu": "#include <cuda.h>\n" + kernel + "\n" * 99,
        "two/host.cu": "#include <vector>\n" + kernel,
        "three/plain.cu": "__global__ void f() {}",
        "four/sm120/k.cu": kernel,
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [name for name, _ in flashinfer_cuda.kernels_in(tmp_path, 9)] == ["one-k"]
