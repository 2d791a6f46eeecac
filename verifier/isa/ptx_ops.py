"""PTX opcodes: how the text of one splits into a family and modifiers, and which operands it writes.

ptxas accepts most modifiers in any order (`ld.global.gpu.relaxed`, `ld.relaxed.gpu.global`), so everything above
this table asks for a modifier by name, never by position.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

# Families of more than one word. The longest match wins; every other opcode is a family of its first word.
_FAMILIES: frozenset[str] = frozenset(
    """
    mbarrier.init mbarrier.inval mbarrier.arrive mbarrier.arrive_drop mbarrier.expect_tx mbarrier.complete_tx
    mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count
    tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.st tcgen05.mma tcgen05.cp
    tcgen05.shift tcgen05.commit tcgen05.wait::ld tcgen05.wait::st tcgen05.fence::before_thread_sync
    tcgen05.fence::after_thread_sync
    cp.async.bulk.tensor cp.async.bulk.prefetch.tensor cp.async.bulk.prefetch cp.async.bulk.commit_group
    cp.async.bulk.wait_group cp.async.bulk cp.reduce.async.bulk.tensor cp.reduce.async.bulk cp.async.commit_group
    cp.async.wait_group cp.async.wait_all cp.async.mbarrier.arrive cp.async multimem.cp.async.bulk
    multimem.cp.reduce.async.bulk
    fence.proxy fence.mbarrier_init fence barrier.cluster.arrive barrier.cluster.wait barrier.cta.sync
    barrier.cta.arrive barrier.cta.red barrier.sync barrier.arrive barrier.red bar.warp.sync bar.sync bar.arrive
    bar.red bar.cta.sync bar.cta.arrive bar.cta.red
    griddepcontrol.wait griddepcontrol.launch_dependents setmaxnreg.inc setmaxnreg.dec elect.sync
    wgmma.fence wgmma.commit_group wgmma.wait_group wgmma.mma_async
    st.async red.async multimem.ld_reduce multimem.st multimem.red multimem.red.async st.bulk
    clusterlaunchcontrol.try_cancel clusterlaunchcontrol.query_cancel tensormap.replace tensormap.cp_fenceproxy
    prefetch.tensormap shfl.sync vote.sync match.sync redux.sync
    mma.sync mma.sp wmma.load wmma.store wmma.mma ldmatrix stmatrix brx.idx
    """.split()  # noqa: SIM905  a table reads better as text
)
_LONGEST = max(name.count(".") for name in _FAMILIES) + 1

_NO_RESULT: frozenset[str] = frozenset(
    """
    st red bra brx.idx call ret exit trap brkpt membar fence nanosleep pmevent discard applypriority prefetch prefetchu
    bar.sync bar.arrive bar.warp.sync bar.cta.sync bar.cta.arrive barrier.sync barrier.arrive barrier.cta.sync
    barrier.cta.arrive barrier.cluster.arrive barrier.cluster.wait
    tcgen05.dealloc tcgen05.st tcgen05.mma tcgen05.cp tcgen05.shift tcgen05.commit
    cp.async.wait_group cp.async.bulk.wait_group setmaxnreg.inc setmaxnreg.dec wgmma.wait_group griddepcontrol.wait
    st.async red.async st.bulk stmatrix wmma.store multimem.st multimem.red sust surd
    """.split()  # noqa: SIM905  a table reads better as text
)

SCOPES = ("cta", "cluster", "gpu", "sys")
SEMANTICS = ("weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio")
SPACES = (
    "shared::cta",
    "shared::cluster",
    "shared",
    "global",
    "local",
    "const",
    "param",
    "param::entry",
    "param::func",
)
_WIDTHS = {"pred": 1, "8": 8, "16": 16, "32": 32, "64": 64, "128": 128}


class PtxOp(msgspec.Struct, frozen=True):
    """One decoded opcode: `family`, and all other dot-separated words in the order written."""

    text: str
    family: str
    words: tuple[str, ...]
    modifiers: frozenset[str]

    def has(self, word: str) -> bool:
        return word in self.modifiers

    def first_of(self, choices: tuple[str, ...]) -> str | None:
        """The first of `choices` that is a modifier, in the order of `choices`."""
        return next((word for word in choices if word in self.modifiers), None)

    def value_of(self, key: str) -> str | None:
        """`x` of a modifier `key::x`: `value_of("cta_group")` is "1" or "2"."""
        prefix = key + "::"
        return next((word[len(prefix) :] for word in self.words if word.startswith(prefix)), None)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(word for word in self.words if is_type(word))

    @property
    def writes_result(self) -> bool:
        """Whether a register in the first operand is written."""
        return self.family not in _NO_RESULT


def is_type(word: str) -> bool:
    return word == "pred" or (word[:1] in "busf" and word[1:].isdigit()) or word in ("bf16", "f16x2", "bf16x2", "tf32")


def width_of(type_name: str) -> int:
    """Bits of a PTX type; types without a plain width count as 32."""
    return _WIDTHS.get(type_name, _WIDTHS.get(type_name[1:], 32))


@lru_cache(maxsize=8192)
def decode(opcode: str) -> PtxOp:
    """Split an opcode: `decode("ld.global.acquire.gpu.b32").family == "ld"`."""
    parts = opcode.split(".")
    for length in range(min(_LONGEST, len(parts)), 1, -1):
        family = ".".join(parts[:length])
        if family in _FAMILIES:
            return PtxOp(opcode, family, tuple(parts[length:]), frozenset(parts[length:]))
    return PtxOp(opcode, parts[0], tuple(parts[1:]), frozenset(parts[1:]))


_SPECIAL = (
    "tid ntid laneid warpid nwarpid ctaid nctaid smid nsmid gridid clusterid nclusterid cluster_ctaid cluster_nctaid "
    "cluster_ctarank cluster_nctarank is_explicit_cluster lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt "
    "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi reserved_smem_offset_begin "
    "reserved_smem_offset_end reserved_smem_offset_cap total_smem_size aggr_smem_size dynamic_smem_size "
    "current_graph_exec"
)
SPECIAL_REGISTERS = frozenset(_SPECIAL.split())


def is_special_register(name: str) -> bool:
    """Whether `name` (without `%`) is a special register of PTX ISA 9.4, chapter 10."""
    base = name.partition(".")[0]
    return base in SPECIAL_REGISTERS or base.rstrip("0123456789") in ("pm", "envreg", "reserved_smem_offset_")
