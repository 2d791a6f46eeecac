"""A ring of stages between two warps in variants: how many stages, where the number of rounds comes from, the fault."""

from __future__ import annotations

_COUNTS = {
    "parameter": "ld.param.u32 n, [rounds]; mov.b32 m, n;",
    "two parameters": "ld.param.u32 n, [rounds]; ld.param.u32 m, [others];",
    "global memory": "ld.param.u64 g, [counts]; ld.global.u32 n, [g+4]; mov.b32 m, n;",
    "shared memory": """
ld.param.u32 n, [rounds]; mov.b32 r9, count;
@p bra READ;
st.shared.b32 [r9], n;
READ: bar.sync 0;
ld.shared.u32 n, [r9]; mov.b32 m, n;
""",
    "constant": "mov.b32 n, 8; mov.b32 m, n;",
}
ALWAYS = ""
NEVER = "mov.pred q, 0;"

_TEXT = """.version 9.4
.target sm_100a
.address_size 64
.shared .align 1024 .b8 buf[8192];
.shared .align 8 .b64 full[{stages}];
.shared .align 8 .b64 empty[{stages}];
.shared .align 8 .b32 count;
.visible .entry ring(.param .u32 rounds, .param .u32 others, .param .u64 counts)
.reqntid 64, 1, 1
{{
.reg .pred p, q, t; .reg .b32 r<32>; .reg .b32 n, m, i, warp, stage, parity, at; .reg .b64 g;
mov.u32 r0, %tid.x; shr.u32 warp, r0, 5; shfl.sync.idx.b32 warp, warp, 0, 31, -1;
setp.ne.u32 p, r0, 0;
@p bra READY;
{init}
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
{count}
mov.b32 i, 0; mov.b32 stage, 0; mov.b32 parity, 1;
setp.ne.u32 p, warp, 0;
@p bra TAKE;
GIVE:
setp.ge.u32 p, i, n;
@p bra END;
shl.b32 r5, stage, 3;
mov.b32 r1, empty; add.u32 r1, r1, r5;
W0: mbarrier.try_wait.parity.shared::cta.b64 p, [r1], parity; @!p bra W0;
mov.b32 at, buf; shl.b32 r3, stage, 4; add.u32 at, at, r3;
st.shared.b32 [at], i;
mov.b32 r1, full; add.u32 r1, r1, r5;
bar.warp.sync -1;
elect.sync _|q, -1;
@q mbarrier.arrive.shared::cta.b64 _, [r1];
add.u32 i, i, 1;
add.u32 stage, stage, 1; setp.eq.u32 q, stage, {stages}; @q mov.b32 stage, 0; @q xor.b32 parity, parity, 1;
bra GIVE;
TAKE:
mov.b32 parity, 0;
NEXT:
setp.ge.u32 p, i, m;
@p bra END;
shl.b32 r5, stage, 3;
mov.b32 r1, full; add.u32 r1, r1, r5;
W1: mbarrier.try_wait.parity.shared::cta.b64 p, [r1], parity; @!p bra W1;
mov.b32 at, buf; shl.b32 r3, stage, 4; add.u32 at, at, r3;
ld.shared.b32 r2, [at];
mov.b32 r1, empty; add.u32 r1, r1, r5;
bar.warp.sync -1;
elect.sync _|q, -1;
{release}
@q mbarrier.arrive.shared::cta.b64 _, [r1];
add.u32 i, i, 1;
add.u32 stage, stage, 1; setp.eq.u32 q, stage, {stages}; @q mov.b32 stage, 0; @q xor.b32 parity, parity, 1;
bra NEXT;
END:
ret;
}}
"""


def ring(stages: int = 2, count: str = "parameter", release: str = ALWAYS, uninitialized: str = "") -> str:
    """`release` may change the predicate `q` of the arrive that gives a stage back; `uninitialized` names a barrier
    whose last stage nobody initializes."""
    init = [
        f"mov.b32 r1, {name}; mbarrier.init.shared::cta.b64 [r1+{8 * stage}], 1;"
        for name in ("full", "empty")
        for stage in range(stages - (name == uninitialized))
    ]
    return _TEXT.format(stages=stages, init="\n".join(init), count=_COUNTS[count], release=release)


def released_while(condition: str) -> str:
    """A `release` that gives stages back only while a `setp` holds, as in `lt.u32 i, 6`."""
    comparison, _, operands = condition.partition(" ")
    return f"setp.{comparison} t, {operands}; and.pred q, q, t;"
