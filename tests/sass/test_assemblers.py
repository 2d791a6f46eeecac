"""One PTX, two assemblers: ptxas 12.9 loses a wait across blocks, the pinned one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sass.support import artifacts_of, facts_of, judgements
from verifier.compile.artifacts import Artifacts, Meta
from verifier.findings import Hazard, Severity, Verdict

DATA = Path(__file__).parent / "data"
PTX = (DATA / "wait_in_another_block.ptx").read_text()
LISTING = (DATA / "wait_in_another_block.ptxas-12.9.sass").read_text()  # ptxas 12.9.86, nvdisasm 13.5.37


def test_ptxas_12_9_loses_the_wait() -> None:
    """Runs without any CUDA package: the listing is stored."""
    kernel = facts_of(Artifacts(meta=Meta(name="two_roles", arch="sm_100a"), ptx=PTX, sass=LISTING))
    (contract,) = judgements(kernel, "TCG101")
    assert contract.verdict is Verdict.PROVED
    (found,) = judgements(kernel, "SAS801")
    assert (found.verdict, found.severity, found.hazard) == (Verdict.VIOLATED, Severity.ERROR, Hazard.CODEGEN)
    load, sink = found.witness[:2]
    assert (load.location.sass_offset, sink.location.sass_offset) == (0x90, 0xF0)
    assert "0x90" in found.message
    assert "0xf0" in found.message
    assert "SB0" in found.message
    assert PTX.splitlines()[(found.location.ptx_line or 0) - 1].startswith("mbarrier.arrive")


@pytest.mark.toolchain
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_the_pinned_ptxas_keeps_it(arch: str) -> None:
    kernel = facts_of(artifacts_of(PTX.replace("sm_100a", arch), arch))
    assert [j.verdict for j in judgements(kernel, "TCG101")] == [Verdict.PROVED]
    assert [j.verdict for j in judgements(kernel, "SAS801")] == [Verdict.PROVED]


def test_machine_code_alone_is_never_called_wrong() -> None:
    """Without PTX nobody knows which arrive gives tensor memory away."""
    kernel = facts_of(Artifacts(meta=Meta(name="two_roles", arch="sm_100a"), sass=LISTING))
    (found,) = judgements(kernel, "SAS801")
    assert found.verdict is Verdict.UNKNOWN
    assert "without PTX" in found.reason
    assert found.location.sass_offset == 0xF0
