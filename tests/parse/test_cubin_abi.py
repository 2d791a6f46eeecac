"""Cubins of the older ABI, as ptxas 12.9 writes for sm_90a: other bits in the header, no `.target` in the listing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verifier.cli import run
from verifier.parse.cubin import read_cubin

CUBIN = Path(__file__).parent / "data" / "abi_7.sm_90a.cubin"  # ptxas 12.9.86


def test_the_architecture_is_in_other_bits() -> None:
    info = read_cubin(CUBIN.read_bytes(), CUBIN.name)
    assert info.arch == "sm_90a"
    assert [kernel.name for kernel in info.kernels] == ["kernel_a"]


def test_the_kernel_can_be_checked(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "json", str(CUBIN)]) == 0
    (kernel,) = json.loads(capfd.readouterr().out)["kernels"]
    assert kernel["arch"] == "sm_90a"
