"""Values that warps of one stream see differently, and predicates that C++ carries through integers."""

from __future__ import annotations

from verifier.launch import LaunchFacts
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 8 .b64 bars[4];
.visible .entry k() .reqntid 64, 1, 1
{
.reg .b32 %r<16>; .reg .pred %p<8>;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;
"""


def model(body: str) -> KernelModel:
    function = lower_ptx(parse_ptx(Source("k.ptx", f"{HEAD}{body}\nret;\n}}\n")))[0]
    return KernelModel(function, lift_ptx, LaunchFacts())


def test_warps_of_one_stream_may_use_barriers_of_their_own() -> None:
    kernel = model("mov.u32 %r3, bars; shl.b32 %r4, %r2, 3; add.u32 %r5, %r3, %r4; mbarrier.init.shared.b64 [%r5], 1;")
    assert len(kernel.streams) == 1
    uses = [use for use in kernel.barriers.uses if use.event.kind is Kind.BARRIER_INIT]
    assert sorted(use.barrier.offset for use in uses) == [0, 8]


def test_an_election_carried_through_an_integer_is_still_an_election() -> None:
    kernel = model(
        "mov.b32 %r3, 0; elect.sync _|%p0, -1; @%p0 mov.b32 %r3, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra PAST;\n"
        "mbarrier.init.shared.b64 [bars], 1;\nPAST:"
    )
    stream = kernel.streams[0]
    branch = next(i for i in kernel.function.instrs if i.flow.targets)
    value = stream.evaluator.value(kernel.ssa.reads[branch.index]["%p1"])
    assert value.base is not None
    assert value.base.kind == "not"
    assert value.base.key[2].base.kind == "elect"  # type: ignore[attr-defined]
