"""The project's GEMMs as PTX and as artifacts, compiled once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels import registry
from verifier.compile.artifacts import Artifacts
from verifier.compile.build import compile_case
from verifier.compile.store import default_store


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Artifacts]:
    """`compiled("gemm_persistent", "sm_100a", "no-wait-ld")`: a registered kernel, from the store if it is there."""
    known: dict[tuple[str, ...], Artifacts] = {}

    def get(name: str, arch: str = "sm_100a", defect: str | None = None) -> Artifacts:
        key = (name, arch, defect or "")
        if key not in known:
            known[key] = compile_case(registry.case(name), arch, defect, store=default_store())
        return known[key]

    return get


@pytest.fixture(scope="session")
def gemm_ptx(compiled: Callable[..., Artifacts]) -> str:
    """PTX of the persistent GEMM; its epilogue is what tests/sass/test_variants.py rewrites."""
    ptx = compiled("gemm_persistent").ptx
    assert ptx is not None
    return ptx
