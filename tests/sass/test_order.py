"""SAS802: loads that ptxas moves across relaxed arrives, and arrivals that are counted differently."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.rules.example_kernel import complete
from tests.sass.support import artifacts_of, build, facts_of, judgements
from verifier.findings import Severity, Verdict
from verifier.model.events import Kind

pytestmark = pytest.mark.toolchain

MMA = """
warp 1:
L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;
tcgen05.fence::after_thread_sync;
tcgen05.mma.cta_group::1.kind::f16 [t], ad, bd, id, p;
"""
LATE = "ld.global.b32 r9, [data]; add.u32 r9, r9, t;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {r2}, [r9];\n"
ARRIVE = "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];\n"
USE = "st.global.b32 [gp], r2;\n"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [bar];\n"


@pytest.mark.parametrize(
    ("epilogue", "order", "completion"),
    [
        (LATE + ARRIVE + USE, Verdict.VIOLATED, Verdict.VIOLATED),  # sinks
        (LATE + "tcgen05.wait::ld.sync.aligned;\n" + ARRIVE + USE, Verdict.PROVED, Verdict.PROVED),
        (LATE + "tcgen05.fence::before_thread_sync;\n" + ARRIVE + USE, Verdict.PROVED, Verdict.VIOLATED),
        (LATE + ARRIVE.replace(".relaxed", ".release") + USE, Verdict.PROVED, Verdict.VIOLATED),
    ],
    ids=["none", "wait", "fence only", "release"],
)
def test_a_load_before_the_arrive(epilogue: str, order: Verdict, completion: Verdict) -> None:
    kernel = build(complete("warp 0:\n" + epilogue + MMA, "sm_100a")[0])
    arrives = [j for j in judgements(kernel, "SAS802") if "tcgen05.ld" in j.shape or "mbarrier.arrive" in j.shape]
    assert {j.verdict for j in arrives if "arrive" in j.shape} == {order}
    assert [j.verdict for j in judgements(kernel, "SAS801")] == [completion]
    for found in arrives:
        if found.verdict is Verdict.VIOLATED:
            assert found.severity is Severity.ERROR
            first, second = (step.location.sass_offset for step in found.witness[2:])
            assert first is not None
            assert second is not None
            assert first < second


def test_a_load_behind_a_relaxed_arrive_may_be_hoisted() -> None:
    epilogue = f"warp 0:\n{ARRIVE}tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r2}}, [t];\n{USE}"
    kernel = build(complete(epilogue + MMA, "sm_100a")[0])
    (found,) = [j for j in judgements(kernel, "SAS802") if j.verdict is Verdict.VIOLATED]
    assert found.severity is Severity.NOTE
    assert "LDTM" in found.message
    assert not judgements(kernel, "SAS801"), "nothing is in flight that the release gives away"


@pytest.mark.parametrize(
    ("arrive", "old", "new", "told"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [bar], 3;", "ART0", "A1T0", "the PTX counts 3, the SASS 1"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;", "TRANS64 RZ", "TRANS64.A1T0 RZ", "expects"),
        ("elect.sync r6|q, -1; @q mbarrier.arrive.shared::cta.b64 _, [bar];", "A1T0", "ACT0", "every active lane"),
        ("elect.sync r6|q, -1; @q mbarrier.arrive.shared::cta.b64 _, [bar];", "@P0 SYNCS", "    SYNCS", "in all 32"),
    ],
    ids=["count", "bytes", "mode", "lanes"],
)
def test_arrivals_that_are_counted_differently(arrive: str, old: str, new: str, told: str) -> None:
    """The listing is edited: no assembler at hand does this."""
    ptx = complete(f"warp 0:\nmov.b32 r3, 1;\n{arrive}\nst.global.b32 [gp], r3;", "sm_100a")[0]
    artifacts = artifacts_of(ptx)
    assert {j.verdict for j in judgements(facts_of(artifacts), "SAS802")} == {Verdict.PROVED}
    assert artifacts.sass is not None
    (line,) = [line for line in artifacts.sass.splitlines() if "SYNCS.ARRIVE" in line]
    assert old in line
    edited = artifacts.sass.replace(line, line.replace(old, new))
    kernel = facts_of(structs.replace(artifacts, sass=edited))
    (found,) = [j for j in judgements(kernel, "SAS802") if j.verdict is Verdict.VIOLATED]
    assert told in found.message
    assert found.severity is Severity.ERROR


def test_every_wait_joins_its_ptx() -> None:
    """The first try of a wait carries the line above; it is joined through its retry."""
    kernel = build(complete("warp 0:\n" + LATE + "tcgen05.wait::ld.sync.aligned;\n" + ARRIVE + USE + MMA, "sm_100a")[0])
    assert kernel.machine is not None
    waits = [e for e in kernel.machine.model.events if e.kind is Kind.BARRIER_WAIT]
    assert len(waits) == 2
    assert {s.opcode.split(".")[1] for e in waits for s in kernel.machine.join.sources(e)} == {"try_wait"}


def test_a_build_without_lines_is_proved_or_unknown() -> None:
    """Nothing says which arrive is which: it is enough that no load is in flight at any, and not enough otherwise."""
    for wait, expected in (("tcgen05.wait::ld.sync.aligned;\n", Verdict.PROVED), ("", Verdict.UNKNOWN)):
        artifacts = artifacts_of(complete(f"warp 0:\n{LATE}{wait}{RELEASE}{USE}{MMA}", "sm_100a")[0])
        assert artifacts.sass is not None
        bare = "\n".join(line for line in artifacts.sass.splitlines() if "//## File" not in line)
        kernel = facts_of(structs.replace(artifacts, cubin=None, sass=bare))
        assert {j.verdict for j in judgements(kernel, "SAS801")} == {expected}
        assert [j.verdict for j in judgements(kernel, "SAS802")] == [Verdict.UNKNOWN]


def test_lines_of_another_ptx_join_nothing() -> None:
    artifacts = artifacts_of(complete(f"warp 0:\n{LATE}{RELEASE}{USE}{MMA}", "sm_100a")[0])
    kernel = facts_of(structs.replace(artifacts, ptx="// one line more\n// and another\n" + (artifacts.ptx or "")))
    assert kernel.machine is not None
    assert not kernel.machine.join.has_lines
    assert {j.verdict for j in judgements(kernel, "SAS801")} == {Verdict.UNKNOWN}
    assert [j.verdict for j in judgements(kernel, "SAS802")] == [Verdict.UNKNOWN]


OTHER = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry example(.param .u64 data)
.reqntid 64
{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [data];
    st.global.u32 [%d1], %r1;
    ret;
}
"""


def test_machine_code_of_another_program() -> None:
    """It has lines and the same entry, but nothing of the synchronization."""
    artifacts = artifacts_of(complete(f"warp 0:\n{LATE}{RELEASE}{USE}{MMA}", "sm_100a")[0])
    other = artifacts_of(OTHER)
    kernel = facts_of(structs.replace(artifacts, sass=other.sass, cubin=other.cubin))
    assert [j.verdict for j in judgements(kernel, "SAS802")] == [Verdict.UNKNOWN]
