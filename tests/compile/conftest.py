"""Shared pieces: where the fixtures are, a small cubin, tools made of shell scripts, cases of the sample kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from verifier.compile.artifacts import Artifacts, Meta, Scalar
from verifier.compile.toolchain import Fingerprint
from verifier.launch import LaunchFacts

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class SampleCase:
    """A kernel case as kernels.registry describes them, for a module of fixtures/sample_kernels."""

    name: str
    module: str
    config: dict[str, Scalar] = field(default_factory=dict)


@pytest.fixture
def cubin() -> bytes:
    """A cubin of sample_kernels/scale.py, assembled by ptxas 13.4.59 for sm_90a."""
    return (FIXTURES / "scale.sm_90a.cubin").read_bytes()


@pytest.fixture
def artifacts(cubin: bytes) -> Artifacts:
    """Artifacts with every field set to something that a round trip could lose."""
    launch = LaunchFacts(grid=(None, 1, 1), cluster=(2, 1, 1), block=(128, 1, 1), dynamic_smem=512)
    meta = Meta(
        name="scale",
        arch="sm_90a",
        entry="f",
        launch=launch,
        launches={"f": launch},
        source="kernels/scale.py",
        config={"cluster": 2, "fast": True, "ratio": 0.5, "label": "x", "none": None},
        defect="late",
        toolchain=Fingerprint(assembler="ptxas 13.4.59"),
    )
    return Artifacts(meta=meta, ptx=".version 9.4\n// µ\n", cubin=cubin, sass="/*0000*/ EXIT ;\n", mlir="module {}\n")


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SampleCase]]:
    """`sample("scale", cluster=2)` is a case of fixtures/sample_kernels/scale.py."""
    monkeypatch.syspath_prepend(str(FIXTURES))

    def make(name: str, **config: Scalar) -> SampleCase:
        return SampleCase(name=name, module=f"sample_kernels.{name}", config=config)

    yield make
    for module in [m for m in sys.modules if m.partition(".")[0] == "sample_kernels"]:
        del sys.modules[module]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Path]:
    """`script("ptxas", "echo hello")` is an executable shell script of that name."""

    def make(name: str, body: str) -> Path:
        folder = tmp_path / "scripts"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make
