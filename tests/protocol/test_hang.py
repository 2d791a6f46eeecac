"""What is to blame when a run gets stuck."""

from __future__ import annotations

from tests.protocol.support import facts, fragment, stored, without
from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.hang import Blame, stuck_warps


def blames(kernel: KernelFacts) -> dict[str, Blame]:
    assert kernel.protocol is not None
    assert kernel.protocol.hang is not None
    return {stuck.label: stuck.blame for stuck in stuck_warps(kernel.protocol.hang)}


def test_all_who_can_arrive_have_arrived() -> None:
    kernel = fragment(
        """
        warp 0:
        mov.u32 r4, %tid.x; setp.ne.u32 q2, r4, 0;
        @q2 bra READY;
        mbarrier.init.shared::cta.b64 [bar], 3;
        READY: bar.sync 1, 64;
        mov.u32 r4, %laneid; setp.lt.u32 q2, r4, 2;
        @q2 mbarrier.arrive.shared::cta.b64 _, [bar];
        warp 1:
        bar.sync 1, 64;
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W1;
        """,
        init=False,
    )
    assert blames(kernel) == {"bar": Blame.ARRIVALS}


def test_nobody_signals() -> None:
    kernel = fragment(
        "warp 0:\nW0: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W0;\nwarp 1:\nmov.b32 r4, 0;"
    )
    assert blames(kernel) == {"bar": Blame.NOBODY}


def test_a_circle_of_waits_blames_no_number() -> None:
    kernel = fragment(
        """
        warp 0:
        W0: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0; @!p bra W0;
        elect.sync _|q, -1; @q mbarrier.arrive.shared::cta.b64 _, [bar2];
        warp 1:
        W1: mbarrier.try_wait.parity.shared::cta.b64 p, [bar2], 0; @!p bra W1;
        elect.sync _|q, -1; @q mbarrier.arrive.shared::cta.b64 _, [bar];
        """
    )
    assert set(blames(kernel).values()) == {Blame.OTHERS}


def test_the_culprit_comes_first() -> None:
    """Without the commit that gives operand stages back everybody is stuck; the load warp's barrier is why."""
    kernel = facts(without(stored("gemm_persistent"), r"tcgen05\.commit"))
    assert kernel.protocol is not None
    assert kernel.protocol.hang is not None
    first, *rest = stuck_warps(kernel.protocol.hang)
    assert first.blame is Blame.NOBODY
    assert first.label == "__dynamic_shmem__0+32"
    assert len(rest) == 2
