"""How a wait must acquire what a peer CTA wrote."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Severity, Verdict

HEAD = """cluster 2
warp 0:
mapa.shared::cluster.u32 r5, buf, 1;
mapa.shared::cluster.u32 r6, bar, 1;
"""
ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r6];"
FAR = "st.global.u32 [gp], r1;"
NEAR = "st.shared::cluster.u32 [r5], r1;"
SOMEWHERE = "mov.u32 r9, %ctaid.x; mul.wide.u32 rd1, r9, 4; add.u64 rd1, gp, rd1; st.global.u32 [rd1], r1;"
RESTRICTED = "fence.acquire.sync_restrict::shared::cluster.cluster;"
LOAD = "ld.global.b32 r2, [gp];"


def wait(how: str) -> str:
    return f"L1: mbarrier.try_wait.parity{how}.shared::cta.b64 q, [bar], 0; @!q bra L1;"


@pytest.mark.parametrize(
    ("write", "how", "fence", "read", "expected"),
    [
        (NEAR, ".relaxed.cluster", RESTRICTED, "ld.shared.b32 r2, [buf];", Verdict.PROVED),
        (FAR, ".acquire.cluster", "", LOAD, Verdict.PROVED),
        (FAR, "", "", LOAD, Verdict.VIOLATED),
        (FAR, ".relaxed.cluster", "fence.acq_rel.cluster;", LOAD, Verdict.PROVED),
        (FAR, ".relaxed.cluster", "", LOAD, Verdict.VIOLATED),
        (FAR, ".relaxed.cluster", RESTRICTED, LOAD, Verdict.VIOLATED),  # shared memory only
        (FAR, ".relaxed.cluster", RESTRICTED, "ld.b32 r2, [gp];", Verdict.VIOLATED),
        (FAR, ".relaxed.cluster", RESTRICTED, "ld.global.b32 r2, [gp+4];", Verdict.PROVED),
        (FAR, ".relaxed.cluster", RESTRICTED, "ld.global.b32 r2, [data];", Verdict.PROVED),  # another pointer
        (SOMEWHERE, ".relaxed.cluster", RESTRICTED, LOAD, Verdict.UNKNOWN),
        (SOMEWHERE, ".acquire.cluster", "", LOAD, Verdict.PROVED),
    ],
)
def test_forms_of_acquire(write: str, how: str, fence: str, read: str, expected: Verdict) -> None:
    assert judge("SCP301", HEAD + "\n".join((write, ARRIVE, wait(how), fence, read)))[0] == [expected]


def test_a_restricted_fence_is_named_as_the_cause() -> None:
    _, (finding,) = judge("SCP301", HEAD + "\n".join((FAR, ARRIVE, wait(".relaxed.cluster"), RESTRICTED, LOAD)))
    assert finding.severity is Severity.ERROR
    assert any("restricted to shared memory" in step.fact for step in finding.witness)


def test_a_wait_that_hands_over_no_data_is_a_note() -> None:
    _, (finding,) = judge("SCP301", HEAD + "\n".join((ARRIVE, wait(""), FAR, LOAD)))
    assert finding.severity is Severity.NOTE
