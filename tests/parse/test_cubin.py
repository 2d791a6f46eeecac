"""What is read from cubins, and that a damaged one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verifier.errors import InputError
from verifier.parse.cubin import read_cubin

DATA = Path(__file__).parent / "data"
MBARRIER = (DATA / "mbarrier.cubin").read_bytes()


def test_kernel_facts() -> None:
    info = read_cubin(MBARRIER, "mbarrier.cubin")
    (kernel,) = info.kernels
    assert (info.arch, info.assembler) == ("sm_100a", "ptxas 13.5.37")
    assert info.options == "-lineinfo -arch sm_100a"
    assert (kernel.name, kernel.block, kernel.max_block, kernel.cluster) == ("mb", (128, 1, 1), None, (2, 1, 1))
    assert kernel.shared == 1024 + 32  # what the system keeps, and `bar[4]`
    assert (kernel.mbarriers, kernel.frame) == (1, 0)
    assert kernel.registers == 17
    assert [(p.ordinal, p.offset, p.size) for p in kernel.params] == [(0, 0x380, 4)]


def test_barrier_sites_name_their_kind() -> None:
    (kernel,) = read_cubin(MBARRIER, "x").kernels
    kinds = [site.kind for site in kernel.barrier_sites]
    assert kinds[:4] == ["init", "arrive", "arrive_drop", "arrive_nocomplete"]
    assert {"test_wait", "test_wait_parity", "try_wait", "try_wait_parity", "inval", "cp_async_arrive"} <= set(kinds)
    assert kernel.barrier_sites[0].offset == 0xE0


def test_the_ptx_inside_keeps_its_lines() -> None:
    text = read_cubin(MBARRIER, "x").ptx
    assert text is not None
    assert text.strip() == (DATA / "mbarrier.ptx").read_text().strip()


def test_switch_tables() -> None:
    (kernel,) = read_cubin((DATA / "roles.cubin").read_bytes(), "roles").kernels
    assert len(kernel.constants[2]) == 6
    assert all(word % 16 == 0 and word < kernel.code_size for word in kernel.constants[2])


@pytest.mark.parametrize("size", [0, 3, 4, 20, 63, 64, 100, 5000, len(MBARRIER) // 2, len(MBARRIER) - 1])
def test_a_truncated_cubin_is_refused(size: int) -> None:
    with pytest.raises(InputError) as caught:
        read_cubin(MBARRIER[:size], "short.cubin")
    assert caught.value.where == "short.cubin"


@pytest.mark.parametrize("data", [b"hello world" * 100, b"\x7fELF" + b"\0" * 500, b"\x7fELF" + b"\xff" * 500])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_cubin(data, "garbage")


def test_a_program_of_the_host_is_refused() -> None:
    with pytest.raises(InputError, match="not for CUDA"):
        read_cubin(Path(sys.executable).read_bytes(), "python")


@pytest.mark.parametrize("step", range(1, 9))
def test_damaged_bytes_never_escape_as_another_error(step: int) -> None:
    for at in range(step, len(MBARRIER), 97 * step):
        damaged = bytearray(MBARRIER)
        damaged[at] ^= 0xFF
        try:
            read_cubin(bytes(damaged), "damaged")
        except InputError:
            continue
