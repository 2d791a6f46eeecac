"""Cubins that are whole, damaged or something else, and what they say of their assembler."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compile.conftest import FIXTURES
from verifier.compile.elf import Assembler, assemblers_of, check_cubin, describe_assemblers
from verifier.errors import InputError

CUBIN = (FIXTURES / "scale.sm_90a.cubin").read_bytes()


def test_a_whole_cubin_passes_and_names_its_assembler(cubin: bytes) -> None:
    check_cubin(cubin)
    (assembler,) = assemblers_of(cubin)
    assert (assembler.tool, assembler.version) == ("ptxas", "13.4.59")
    assert "-arch sm_90a" in assembler.options
    assert describe_assemblers((assembler,)) == "ptxas 13.4.59"


def test_the_assembler_stands_first_and_none_is_none() -> None:
    linker, assembler = Assembler(tool="nvJIT API", version="13.5.37"), Assembler(tool="ptxas", version="13.4.59")
    assert describe_assemblers((linker, assembler)) == "ptxas 13.4.59 + nvJIT API 13.5.37"
    assert describe_assemblers(()) is None


def test_a_cubin_without_the_note_has_no_assembler(cubin: bytes) -> None:
    assert assemblers_of(cubin.replace(b".note.nv.tkinfo\0", b".note.nv.absent\0")) == ()


@pytest.mark.parametrize("size", [*range(0, 64, 7), *range(64, len(CUBIN), 131), len(CUBIN) - 1])
def test_every_truncation_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"k\.cubin: "):
        check_cubin(CUBIN[:size], name="k.cubin")


def test_a_section_beyond_the_file_is_named(cubin: bytes) -> None:
    damaged = bytearray(cubin)
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    first = table + 64
    struct.pack_into("<Q", damaged, first + 0x20, len(cubin))  # sh_size of section 1
    with pytest.raises(InputError, match=r"truncated: section \.shstrtab ends beyond the file"):
        check_cubin(bytes(damaged))


def test_an_elf_file_for_the_host_is_refused(cubin: bytes) -> None:
    damaged = bytearray(cubin)
    struct.pack_into("<H", damaged, 0x12, 62)  # e_machine = x86-64
    with pytest.raises(InputError, match="not for CUDA"):
        check_cubin(bytes(damaged))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\0" * 5000, b".version 9.4\n.target sm_90a\n" * 100])
def test_other_files_are_refused(data: bytes) -> None:
    for read in (check_cubin, assemblers_of):
        with pytest.raises(InputError):
            read(data)


@given(st.lists(st.tuples(st.integers(0, len(CUBIN) - 1), st.integers(0, 255)), min_size=1, max_size=40))
def test_damage_never_raises_anything_but_an_input_error(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(CUBIN)
    for at, value in flips:
        damaged[at] = value
    for read in (check_cubin, assemblers_of):
        with contextlib.suppress(InputError):
            read(bytes(damaged))
