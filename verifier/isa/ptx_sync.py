"""What PTX synchronization means when a qualifier is left out, and which opcodes have no such meaning.

Section numbers are PTX ISA 9.4. Each row was also confirmed to assemble with ptxas 13.5.37.
"""

from __future__ import annotations

import msgspec

from verifier.isa.ptx_ops import SCOPES, PtxOp


class Ordering(msgspec.Struct, frozen=True):
    """Semantics and scope of one operation; scope None means that scopes do not apply (weak)."""

    sem: str
    scope: str | None


class DefaultOrdering(msgspec.Struct, frozen=True):
    sem: str
    scope: str | None
    section: str


# Family -> what holds when `.sem` or `.scope` is not written.
DEFAULTS: dict[str, DefaultOrdering] = {
    "ld": DefaultOrdering("weak", None, "9.7.9.8 ld"),
    "st": DefaultOrdering("weak", None, "9.7.9.11 st"),
    "atom": DefaultOrdering("relaxed", "gpu", "9.7.15.5 atom"),
    "red": DefaultOrdering("relaxed", "gpu", "9.7.15.6 red"),
    "fence": DefaultOrdering("acq_rel", None, "9.7.15.4 fence: a scope is mandatory"),
    "membar": DefaultOrdering("sc", None, "9.7.15.4 membar.{cta,gl,sys} is fence.sc.{cta,gpu,sys}"),
    "mbarrier.arrive": DefaultOrdering("release", "cta", "9.7.15.16.16, also with .shared::cluster"),
    "mbarrier.arrive_drop": DefaultOrdering("release", "cta", "9.7.15.16.17"),
    "mbarrier.test_wait": DefaultOrdering("acquire", "cta", "9.7.15.16.19"),
    "mbarrier.try_wait": DefaultOrdering("acquire", "cta", "9.7.15.16.19"),
    "mbarrier.expect_tx": DefaultOrdering("relaxed", "cta", "9.7.15.16.14: no ordering"),
    "mbarrier.complete_tx": DefaultOrdering("relaxed", "cta", "9.7.15.16.15: no ordering"),
    "tcgen05.commit": DefaultOrdering("release", "cluster", "9.7.18.12.1: arrive-on at cluster scope"),
    "st.async": DefaultOrdering("release", "cluster", "9.7.9.12: complete-tx is release.cluster for its own bytes"),
    "red.async": DefaultOrdering("release", "cluster", "9.7.15.7: complete-tx is release.cluster for its own bytes"),
    "cp.async.bulk": DefaultOrdering("release", "cluster", "9.7.10.28: complete-tx, for its own bytes"),
    "cp.async.bulk.tensor": DefaultOrdering("release", "cluster", "9.7.10.28: complete-tx, for its own bytes"),
    "barrier.cluster.arrive": DefaultOrdering("release", "cluster", "9.7.15.3"),
    "barrier.cluster.wait": DefaultOrdering("acquire", "cluster", "9.7.15.3"),
    "multimem.ld_reduce": DefaultOrdering("weak", None, "9.7.9.14"),
    "multimem.st": DefaultOrdering("weak", None, "9.7.9.14"),
    "multimem.red": DefaultOrdering("relaxed", "sys", "9.7.9.14"),
}

_MEMBAR_SCOPE = {"cta": "cta", "gl": "gpu", "sys": "sys"}


def ordering(op: PtxOp) -> Ordering:
    """Semantics and scope of an operation, defaults filled in."""
    default = DEFAULTS.get(op.family, DefaultOrdering("weak", None, ""))
    if op.family == "membar":
        return Ordering("sc", next((_MEMBAR_SCOPE[w] for w in op.words if w in _MEMBAR_SCOPE), "sys"))
    if op.has("volatile"):
        return Ordering("relaxed", "sys")  # 8.4.2: volatile is relaxed at system scope
    sem = op.first_of(("acq_rel", "acquire", "release", "relaxed", "weak", "sc")) or default.sem
    scope = op.first_of(SCOPES) or (default.scope if sem != "weak" else None)
    return Ordering(sem, scope)


# Families whose instructions neither touch memory that others see nor synchronize.
PLAIN: frozenset[str] = frozenset(
    """
    mov add addc sub subc mul mul24 mad mad24 madc sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext
    bmsk dp4a dp2a add3 fma rcp sqrt rsqrt sin cos lg2 ex2 tanh testp copysign set setp selp slct and or xor not
    cnot lop3 shf shl shr prmt cvt cvta mapa getctarank isspacep istypep createpolicy activemask shfl vote match
    shfl.sync vote.sync match.sync redux.sync elect.sync bra brx brx.idx call vadd vsub vabsdiff vmin vmax vshl vshr
    vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4
    alloca stacksave stackrestore nanosleep pmevent brkpt prefetch prefetchu applypriority discard
    cp.async.bulk.prefetch mbarrier.pending_count
    clusterlaunchcontrol.query_cancel tensormap.query txq suq tex tld4 suld sust sured
    """.split()  # noqa: SIM905
)
