"""Kernels chosen by the files that they are made of, as the pre-commit hook does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.registry import CASES
from tests.cli.support import Verifier, one_message
from verifier.cli import registry
from verifier.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def chosen(*names: str) -> set[str]:
    return {case.name for case in registry.choose(registry.load_registry(), names, None)}


def test_a_file_means_the_kernels_that_are_made_of_it() -> None:
    assert chosen("kernels/gemm_persistent.py") >= {"gemm_persistent"}
    both = chosen("kernels/gemm_persistent.py", "kernels/hopper_gemm_persistent.py")
    assert both >= {"gemm_persistent", "hopper_gemm_persistent"}
    assert "hopper_gemm_persistent" not in chosen("kernels/gemm_persistent.py")


def test_a_shared_file_means_many() -> None:
    shared = chosen("kernels/common.py")
    assert len(shared) > 3
    assert shared <= {case.name for case in CASES}


def test_names_and_files_go_together() -> None:
    assert chosen("gemm_persistent", "kernels/gemm_persistent.py") == chosen("kernels/gemm_persistent.py") | {
        "gemm_persistent"
    }


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        chosen("kernels/nowhere.py")


def test_a_file_of_no_kernel_is_nothing_to_do(verifier: Verifier) -> None:
    ran = verifier("verify", "verifier/__init__.py")
    assert (ran.code, ran.out, ran.err) == (0, "", "no kernel is made of these files\n")


def test_a_defect_must_fit_the_chosen_kernels(verifier: Verifier) -> None:
    assert one_message(verifier("verify", "kernels/hopper_gemm_persistent.py", "--defect", "early-weights"))
