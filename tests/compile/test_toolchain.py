"""Where tools are looked for, in which order, and what is said when one is missing or strange."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from verifier.compile import toolchain
from verifier.compile.toolchain import current_fingerprint, find_tool, locate, package_version
from verifier.errors import ToolchainError

Script = Callable[[str, str], Path]
ANSWER = "echo 'Cuda compilation tools, release 12.9, V12.9.86'"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without wheels, variables or PATH; the folder returned is the only one on PATH."""
    for name in ("PTXAS", "NVDISASM", "CUOBJDUMP"):
        monkeypatch.delenv(f"VERIFIER_{name}", raising=False)
    monkeypatch.setattr(toolchain, "wheel_folders", list)
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_missing_tool_says_what_to_install(bare: Path) -> None:
    with pytest.raises(ToolchainError, match="nvdisasm is missing") as caught:
        find_tool("nvdisasm")
    assert "pip install ptx-sass-verifier[compile]" in caught.value.do
    assert caught.value.exit_code == 2


def test_the_variable_comes_before_the_wheel_and_the_wheel_before_path(
    bare: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = script("ptxas", ANSWER)
    wheel = given.parent.parent / "wheel"
    wheel.mkdir()
    for folder in (bare, wheel):
        given_copy = folder / "ptxas"
        given_copy.write_bytes(given.read_bytes())
        given_copy.chmod(0o755)

    assert locate("ptxas") == (bare / "ptxas", "PATH")
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: [wheel])
    assert locate("ptxas") == (wheel / "ptxas", "wheel")
    monkeypatch.setenv("VERIFIER_PTXAS", str(given))
    assert locate("ptxas") == (given, "environment")


def test_a_variable_that_names_nothing_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFIER_PTXAS", str(bare / "absent"))
    with pytest.raises(ToolchainError, match="VERIFIER_PTXAS names no program"):
        locate("ptxas")


def test_a_file_that_is_not_executable_is_no_tool(bare: Path) -> None:
    (bare / "ptxas").write_text("")
    with pytest.raises(ToolchainError, match="ptxas is missing"):
        locate("ptxas")


def test_the_version_is_asked_again_after_the_tool_was_replaced(
    bare: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script("ptxas", ANSWER)
    monkeypatch.setenv("VERIFIER_PTXAS", str(path))
    monkeypatch.setenv("PATH", os.defpath)
    assert find_tool("ptxas").version == "12.9.86"
    script("ptxas", ANSWER.replace("12.9.86", "13.0.48") + " # another size")
    assert find_tool("ptxas").version == "13.0.48"


@pytest.mark.parametrize("body", ["echo hello", "exit 1", f"{ANSWER}; exit 7"])
def test_a_tool_that_does_not_tell_its_version_is_an_error(
    bare: Path, script: Script, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setenv("VERIFIER_PTXAS", str(script("ptxas", body)))
    with pytest.raises(ToolchainError, match="ptxas --version does not answer as expected"):
        find_tool("ptxas")


def test_a_tool_that_cannot_be_run_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bare / "ptxas"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    monkeypatch.setenv("VERIFIER_PTXAS", str(path))
    with pytest.raises(ToolchainError, match="ptxas cannot be run"):
        find_tool("ptxas")


def test_the_fingerprint_of_a_bare_machine_has_no_tools(bare: Path) -> None:
    found = current_fingerprint()
    assert (found.ptxas, found.nvdisasm, found.assembler) == (None, None, None)
    assert found.python


def test_versions_of_packages() -> None:
    assert package_version("msgspec")
    assert package_version("no-such-distribution-here") is None


@pytest.mark.toolchain
def test_the_wheels_are_found() -> None:
    found = current_fingerprint()
    assert found.ptxas
    assert found.nvdisasm
    assert found.dsl
    assert "cu13" in found.dsl
    assert find_tool("ptxas").origin in ("wheel", "environment")
