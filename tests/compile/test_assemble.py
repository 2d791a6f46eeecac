"""PTX through ptxas and through nvJitLink: machine code, usage, and one clear error where they refuse it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verifier.compile.assemble import assemble, link
from verifier.compile.elf import check_cubin
from verifier.compile.process import Limits
from verifier.compile.toolchain import Tool, find_tool
from verifier.errors import CompileError

GOOD = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 a)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [a];
    ld.global.u32 %r1, [%rd1];
    st.global.u32 [%rd1+4], %r1;
    ret;
}
"""
BAD = GOOD.replace("    ret;", "    foo.bar %r1;")
BAD_LINE = 1 + BAD.split("\n").index("    foo.bar %r1;")

both = pytest.mark.parametrize("how", [assemble, link])


@pytest.mark.toolchain
@both
def test_a_cubin_with_usage_and_the_assembler_in_its_note(how: Callable[..., object]) -> None:
    made = how(GOOD, "sm_90a")
    check_cubin(made.cubin)
    (usage,) = made.usage
    assert usage.entry == "copy"
    assert usage.registers
    assert usage.spill_stores == 0
    assert made.assembler.startswith(f"ptxas {find_tool('ptxas').version}")
    assert ("nvJIT API" in made.assembler) == (how is link)


@pytest.mark.toolchain
@both
def test_the_first_complaint_and_its_line(how: Callable[..., object]) -> None:
    with pytest.raises(CompileError, match=r"does not assemble it for sm_90a: Unknown modifier '\.bar'") as caught:
        how(BAD, "sm_90a", name="bad.ptx")
    assert caught.value.where == f"bad.ptx:{BAD_LINE}"


@pytest.mark.toolchain
@both
@pytest.mark.parametrize(
    ("ptx", "arch"), [("", "sm_90a"), ("\0" * 100, "sm_90a"), ("lorem ipsum;\n" * 1000, "sm_90a"), (GOOD, "sm_12")]
)
def test_nonsense_is_one_error_without_temporary_paths(how: Callable[..., object], ptx: str, arch: str) -> None:
    with pytest.raises(CompileError, match="does not assemble it") as caught:
        how(ptx, arch, name="x.ptx")
    assert str(caught.value).startswith("x.ptx")
    assert "/tmp" not in str(caught.value)


@pytest.mark.toolchain
def test_a_crash_of_the_library_is_an_error() -> None:
    # nvJitLink 13.5 damages its heap with an identifier this long; a later one may refuse it in words.
    with pytest.raises(CompileError):
        link(GOOD.replace("copy", "c" * 1_000_000), "sm_90a")


def fake(path: Path) -> Tool:
    return Tool(name="ptxas", path=str(path), version="1.2.3", origin="environment")


def test_an_assembler_that_hangs_or_fails_without_words(script: Callable[[str, str], Path]) -> None:
    with pytest.raises(CompileError, match="ptxas was stopped: it went over its limit of time"):
        assemble(GOOD, "sm_90a", tool=fake(script("slow", "sleep 60")), limits=Limits(seconds=0.3))
    with pytest.raises(CompileError, match=r"ptxas 1\.2\.3 does not assemble it for sm_90a: ended with no message"):
        assemble(GOOD, "sm_90a", tool=fake(script("silent", "exit 1")))
    with pytest.raises(CompileError, match="ended with SIGKILL"):
        assemble(GOOD, "sm_90a", tool=fake(script("killed", "kill -9 $$")))
