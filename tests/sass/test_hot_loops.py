"""Costly instructions in loops: which loops count, how often they run, what caused them, what is advised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules.example_kernel import complete
from tests.sass.support import build, facts_of, judgements
from verifier.compile.artifacts import Artifacts
from verifier.findings import Hazard, Judgement, Severity, Verdict

pytestmark = pytest.mark.toolchain

COUNT = "ld.global.b32 r8, [gp]; mov.b32 r4, 0;"
AGAIN = "add.u32 r4, r4, 1; setp.lt.u32 q2, r4, r8; @q2 bra L0;"


def violated(fragment: str, code: str, arch: str = "sm_100a") -> list[Judgement]:
    kernel = build(complete(fragment, arch)[0], arch)
    return [j for j in judgements(kernel, code) if j.verdict is Verdict.VIOLATED]


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_acquire_cluster_in_the_wait_of_the_mailbox(compiled: Callable[..., Artifacts], arch: str) -> None:
    artifacts = compiled("gemm_splitk_mailbox", arch, "acquire-cluster-wait")
    (found,) = [j for j in judgements(facts_of(artifacts), "PRF601") if j.verdict is Verdict.VIOLATED]
    assert found.hazard is Hazard.PERFORMANCE
    assert "two sites, one executed per successful wait" in found.message
    assert "mbarrier.try_wait.parity.acquire.cluster" in found.message
    assert "try_wait.relaxed.cluster" in found.fix
    assert "fence.acquire.sync_restrict" in found.fix
    assert len({step.location.sass_offset for step in found.witness} - {None}) == 2
    assert found.location.file is not None
    assert found.location.line is not None
    line = Path(found.location.file).read_text().splitlines()[found.location.line - 1]
    assert line.endswith("# defect: acquire-cluster-wait")


@pytest.mark.parametrize("name", ["gemm_persistent", "gemm_splitk_mailbox"])
@pytest.mark.parametrize("code", ["PRF601", "PRF602", "PRF603"])
def test_the_shipped_kernels_have_none(compiled: Callable[..., Artifacts], name: str, code: str) -> None:
    found = judgements(facts_of(compiled(name)), code)
    assert found
    assert {j.verdict for j in found} == {Verdict.PROVED}


def test_a_wait_outside_of_loops_is_no_loop() -> None:
    fragment = """cluster 2
    warp 0:
    mapa.shared::cluster.u32 r6, buf, 0; mapa.shared::cluster.u32 r7, bar, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r6], r1, [r7];
    L1: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], 0;
    @!q bra L1;
    ld.shared.b32 r2, [buf]; st.global.b32 [gp], r2;
    """
    assert not violated(fragment, "PRF601")


def test_polls_cost_one_invalidate_each() -> None:
    fragment = "L1: ld.acquire.gpu.global.b32 r2, [flag]; setp.eq.u32 q, r2, 0; @q bra L1;\nst.global.b32 [gp], r2;"
    (found,) = violated(fragment, "PRF601")
    assert found.severity is Severity.NOTE
    assert "once per poll, caused by ld.acquire.gpu.global.b32" in found.message
    assert "poll with ld.relaxed" in found.fix


def test_a_relaxed_poll_with_one_fence_behind_it_is_fine() -> None:
    fragment = """L1: ld.relaxed.gpu.global.b32 r2, [flag]; setp.eq.u32 q, r2, 0; @q bra L1;
    fence.acquire.gpu; st.global.b32 [gp], r2;"""
    assert not violated(fragment, "PRF601")


def test_global_data_behind_the_wait_forbids_the_cheaper_form() -> None:
    """A peer that also writes global memory: sync_restrict would not order it, so it is not advised."""
    fragment = f"""cluster 2
    warp 0:
    {COUNT} mov.b32 r5, 0;
    L0: mapa.shared::cluster.u32 r6, buf, 0; mapa.shared::cluster.u32 r7, bar, 0;
    st.global.b32 [data], r4;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r6], r1, [r7];
    L1:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], r5;
    @!q bra L1;
    ld.shared.b32 r2, [buf]; ld.global.b32 r3, [data]; add.u32 r9, r9, r2; add.u32 r9, r9, r3; xor.b32 r5, r5, 1;
    {AGAIN} st.global.b32 [gp], r9;
    """
    (found,) = violated(fragment, "PRF601")
    assert found.severity is Severity.NOTE
    assert "no form without the invalidate is known" in found.fix


def test_own_data_needs_no_cluster_scope() -> None:
    fragment = f"""warp 0:
    {COUNT} mov.b32 r5, 0;
    L0: mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buf], [data], 16, [bar];
    L1:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [bar], r5;
    @!q bra L1;
    ld.shared.b32 r2, [buf]; add.u32 r9, r9, r2; xor.b32 r5, r5, 1;
    {AGAIN} st.global.b32 [gp], r9;
    """
    (found,) = violated(fragment, "PRF601")
    assert found.severity is Severity.WARNING
    assert found.fix.startswith("wait with the default acquire.cta")


def test_a_release_that_publishes_stores_may_be_needed() -> None:
    fragment = f"""cluster 2
    warp 0:
    {COUNT} mapa.shared::cluster.u32 r7, bar, 0;
    L0: st.global.b32 [data], r4;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r7];
    {AGAIN}
    """
    (found,) = violated(fragment, "PRF602")
    assert found.severity is Severity.NOTE
    assert found.fix.startswith("keep it where")


def test_a_release_that_publishes_nothing_is_too_wide() -> None:
    fragment = f"""cluster 2
    warp 0:
    {COUNT} mapa.shared::cluster.u32 r7, bar, 0;
    L0: tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r2}}, [t];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r7];
    add.u32 r3, r3, r2;
    {AGAIN} st.global.b32 [gp], r3;
    """
    (found,) = violated(fragment, "PRF602")
    assert found.severity is Severity.WARNING
    assert "mbarrier.arrive.release.cluster" in found.message
    assert ".relaxed.cluster" in found.fix
