"""Listings: both kinds of line comments in one text, no half results, no endless padding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verifier.compile.disassemble import cached_listing, disassemble, squeeze_padding
from verifier.compile.process import Limits
from verifier.compile.store import Store
from verifier.compile.toolchain import Tool
from verifier.errors import InputError, ToolchainError


def fake(path: Path) -> Tool:
    return Tool(name="nvdisasm", path=str(path), version="1.2.3", origin="environment")


@pytest.mark.toolchain
def test_a_listing_has_code_encodings_ptx_lines_and_python_lines(cubin: bytes) -> None:
    listing = disassemble(cubin)
    assert "S2R" in listing.text
    assert "/* 0x" in listing.text
    assert '//## File ".nv_debug_ptx_txt", line ' in listing.text
    assert 'scale.py", line ' in listing.text
    assert listing.nvdisasm.count(".") == 2


@pytest.mark.toolchain
def test_damaged_code_is_refused_by_name(cubin: bytes) -> None:
    damaged = cubin.replace(b".text.kernel", b".test.kernel")
    with pytest.raises(InputError, match=r"k\.cubin: nvdisasm (cannot list it|found no code)"):
        disassemble(damaged, name="k.cubin")


def test_a_truncated_cubin_never_reaches_the_tool(cubin: bytes, script: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match="truncated"):
        disassemble(cubin[:-100], tool=fake(script("nvdisasm", "echo code")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo half of it; echo 'nvdisasm fatal   : Invalid instruction' >&2; exit 1", "Invalid instruction"),
        ('echo "nvdisasm fatal   : A"; echo "nvdisasm fatal   : B $4 $5" >&2; exit 1', r"fatal   : B -gp k\.cubin"),
        ("exit 2", "exit code 2"),
        ("kill -11 $$", "SIGSEGV"),
        ("exit 0", "found no code"),
        ("sleep 60", "limit of time"),
        ("while :; do echo 0123456789012345678901234567890123456789; done", "limit of output"),
    ],
)
def test_no_half_result(cubin: bytes, script: Callable[[str, str], Path], body: str, message: str) -> None:
    limits = Limits(seconds=1.0, output=100_000)
    with pytest.raises(InputError, match=message):
        disassemble(cubin, name="k.cubin", tool=fake(script("nvdisasm", body)), limits=limits)


def test_a_missing_nvdisasm(cubin: bytes, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="nvdisasm cannot be run"):
        disassemble(cubin, tool=fake(tmp_path / "absent"))


def test_a_listing_is_made_once(
    cubin: bytes, script: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    version = "case $1 in --version) echo 'release 1.2, V1.2.3'; exit 0;; esac"
    monkeypatch.setenv("VERIFIER_NVDISASM", str(script("nvdisasm", f"{version}; echo x >> {count}; echo code")))
    store = Store(tmp_path / "store")
    first = cached_listing(cubin, store=store)
    assert cached_listing(cubin, store=store) == first
    assert (first.text, first.nvdisasm) == ("code\n", "1.2.3")
    assert count.read_text() == "x\n"
    # Another nvdisasm may print another text.
    newer = version.replace("1.2.3", "1.2.4")
    monkeypatch.setenv("VERIFIER_NVDISASM", str(script("nvdisasm", f"{newer}; echo x >> {count}; echo new code")))
    assert cached_listing(cubin, store=store).text == "new code\n"


def test_padding_is_squeezed_only_where_it_is_wide() -> None:
    usual = (
        "        /*0000*/                   EXIT ;                 /* 0x000000000000794d */\n"
        + " " * 66
        + "/* 0x01 */\n"
    )
    assert squeeze_padding(usual) == usual
    label = 'BRX R2 -10 (*"BRANCH_TARGETS ' + "x" * 300 + '"*)'
    first = f"        /*0000*/                   {label} ;"
    second = f"        /*0010*/                   EXIT ;{' ' * 300}/* 0x3 */"
    wide = f"{first} /* 0x1 */\n{' ' * len(first)} /* 0x2 */\n{second}\n"
    squeezed = squeeze_padding(wide)
    assert [line.split() for line in squeezed.split("\n")] == [line.split() for line in wide.split("\n")]
    assert max(len(line) for line in squeezed.split("\n")[1:]) < 100
