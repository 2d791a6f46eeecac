"""What SASS opcodes are: results, widths, latency, and their part in synchronization.

Source of every row: listings of ptxas 13.5.37 for sm_90a, sm_100a, sm_103a and sm_120a (partly 12.9 and 13.4.59), read
beside the PTX they came from; NVIDIA publishes no SASS manual. A row's `source` names the PTX that produces it.
"""

from __future__ import annotations

import enum
from functools import cache

import msgspec

MEASURED = "ptxas 13.5.37"


class Part(enum.Enum):
    """The part an opcode plays in synchronization, memory traffic or control."""

    TMEM_LOAD = "tmem load"
    TMEM_STORE = "tmem store"
    TMEM_MMA = "mma"
    TMEM_COPY = "tmem copy"
    TMEM_SHIFT = "tmem shift"
    TMEM_ALLOC = "tmem alloc"
    TMEM_DEALLOC = "tmem dealloc"
    TMEM_RELINQUISH = "tmem relinquish"
    TMEM_COMMIT = "tmem commit"
    TMEM_STORE_FENCE = "tmem store fence"  # wait::st
    PROXY_FENCE = "proxy fence"
    BARRIER_INIT = "barrier init"
    BARRIER_INVAL = "barrier inval"
    BARRIER_ARRIVE = "arrive"
    BARRIER_EXPECT = "expect_tx"
    BARRIER_COMPLETE = "complete_tx"
    BARRIER_PENDING = "pending count"  # first half of cp.async.mbarrier.arrive
    BARRIER_WAIT = "wait"
    COPY_ARRIVE = "cp.async arrive"
    BULK_LOAD = "bulk load"
    BULK_STORE = "bulk store"
    BULK_PEER = "bulk copy to peer"
    BULK_PREFETCH = "bulk prefetch"
    BULK_COMMIT = "bulk commit"
    SCOREBOARD_WAIT = "scoreboard wait"
    MAP_INVALIDATE = "tensor map invalidate"
    MAP_PREFETCH = "tensor map prefetch"
    ASYNC_STORE = "st.async"
    ASYNC_REDUCE = "red.async"
    BULK_FILL = "st.bulk"
    COPY_ASYNC = "cp.async"
    COPY_COMMIT = "cp.async commit"
    CLC_CANCEL = "clc try_cancel"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    REDUCTION = "reduction"
    FENCE = "fence"
    ERROR_BARRIER = "error barrier"
    CACHE_INVALIDATE = "L1 invalidate"
    CACHE_CONTROL = "cache control"
    CTA_SYNC = "bar.sync"
    CTA_ARRIVE = "bar.arrive"
    CLUSTER_ARRIVE = "cluster arrive"
    CLUSTER_WAIT = "cluster wait"
    WARP_SYNC = "warp sync"
    COLLECTIVE = "collective"
    GRID_WAIT = "griddepcontrol.wait"
    GRID_LAUNCH = "griddepcontrol.launch_dependents"
    REGISTERS = "setmaxnreg"
    WGMMA_FENCE = "wgmma fence"
    WGMMA_MMA = "wgmma"
    WGMMA_WAIT = "wgmma wait"
    SLEEP = "sleep"
    NOP = "nop"
    CONTROL = "control"
    PLAIN = "plain"  # arithmetic and moves
    UNKNOWN = "unknown"


class Results(enum.Enum):
    """Which leading operands an opcode writes."""

    NONE = "none"
    REGISTER = "register"  # R
    CARRIES = "carries"  # R, then up to two predicates
    MAYBE_PREDICATE = "maybe predicate"  # [P,] R
    PREDICATE = "predicate"  # P
    PREDICATES = "predicates"  # P, P
    VOTE = "vote"  # R, P or P
    TWO = "two"  # R, R
    FLAGS = "flags"  # PR


class Latency(enum.Enum):
    FIXED = "fixed"
    VARIABLE = "variable"  # its result is guarded by a write scoreboard


class Row(msgspec.Struct, frozen=True):
    """Table row of an opcode or of a dotted prefix of it. `space` is the state space of its first address."""

    part: Part = Part.PLAIN
    results: Results = Results.REGISTER
    latency: Latency = Latency.FIXED
    space: str | None = None
    source: str = MEASURED


def _variable(part: Part, results: Results = Results.REGISTER, space: str | None = None, source: str = MEASURED) -> Row:
    return Row(part, results, Latency.VARIABLE, space, source)


def _effect(part: Part, space: str | None = None, source: str = MEASURED) -> Row:
    return Row(part, Results.NONE, Latency.FIXED, space, source)


_ARITHMETIC = (
    "BMSK CS2R CS2UR F2FP FADD FADD2 FFMA FFMA2 FHADD FHFMA FMNMX FMNMX3 FMUL FMUL2 FSEL FSET FSWZADD HADD2 HADD2_32I "
    "HFMA2 HMNMX2 HMUL2 HSET2 I2FP I2IP IABS IDP IDP4A LEPC LOP MOV MOV32I P2R PRMT RPCMOV SEL SGXT SHF SHL SHR SHFADD "
    "UFADD UFFMA UFMUL UFSEL UI2FP UF2FP UBMSK UBREV UFLO UIABS UMOV UP2UR UPOPC UPRMT USEL USGXT USHF USHL VABSDIFF "
    "VABSDIFF4 VHMNMX VIADDMNMX VIMNMX3 UVIADDMNMX UFMNMX HMMA IMMA QMMA OMMA BMMA QMUL4 MOVM GETLMEMBASE"
)
_CARRY = "IADD IADD3 IMAD IMNMX LEA UIADD3 UIMAD ULEA VIADD VIMNMX UVIMNMX UIADD UVIADD"
_PREDICATED_RESULT = "LOP3 ULOP3 R2UR REDUX CREDUX UREDUX"
_COMPARISONS = "ISETP FSETP HSETP2 PLOP3 UISETP UPLOP3 UFSETP PSETP"
_SLOW = "BREV DADD DFMA DMUL F2F F2I FLO FRND I2F MUFU POPC DMMA B2R S2R S2UR AL2P"  # a scoreboard guards the result
_MATRIX = "UTCHMMA UTCQMMA UTCIMMA UTCOMMA UTCMXQMMA"

_TABLE: dict[str, Row] = {
    # Arithmetic
    **{name: Row() for name in _ARITHMETIC.split()},
    **{name: Row(results=Results.CARRIES) for name in _CARRY.split()},
    **{name: Row(results=Results.MAYBE_PREDICATE) for name in _PREDICATED_RESULT.split()},
    **{name: Row(results=Results.PREDICATES) for name in _COMPARISONS.split()},
    **{name: _variable(Part.PLAIN) for name in _SLOW.split()},
    "DSETP": _variable(Part.PLAIN, Results.PREDICATES),
    "FCHK": _variable(Part.PLAIN, Results.PREDICATE),
    "REDUX": _variable(Part.COLLECTIVE, Results.MAYBE_PREDICATE, source="redux.sync"),
    "CREDUX": Row(Part.COLLECTIVE, Results.MAYBE_PREDICATE, source="redux.sync"),
    "R2P": Row(results=Results.FLAGS),
    "UR2UP": Row(results=Results.FLAGS),
    "BMOV": Row(results=Results.REGISTER),
    "QSPC": _variable(Part.PLAIN, Results.MAYBE_PREDICATE),
    # Warp collectives
    "ELECT": Row(Part.COLLECTIVE, Results.MAYBE_PREDICATE, source="elect.sync"),
    "VOTE": Row(Part.COLLECTIVE, Results.VOTE, source="vote.sync"),
    "VOTEU": Row(Part.COLLECTIVE, Results.VOTE, source="vote.sync"),
    "SHFL": _variable(Part.COLLECTIVE, Results.MAYBE_PREDICATE, source="shfl.sync"),
    "MATCH": _variable(Part.COLLECTIVE, Results.MAYBE_PREDICATE, source="match.sync"),
    "WARPSYNC": _effect(Part.WARP_SYNC, source="bar.warp.sync"),
    "ENDCOLLECTIVE": _effect(Part.CONTROL),
    # Constant bank
    "LDC": _variable(Part.PLAIN, source="ld.param, ld.const"),
    "LDCU": _variable(Part.PLAIN, source="ld.param, ld.const"),
    "ULDC": Row(source="ld.param, ld.const"),
    # Memory
    "LD": _variable(Part.LOAD, Results.MAYBE_PREDICATE, "generic", "ld, ld.shared::cluster"),
    "LDG": _variable(Part.LOAD, Results.MAYBE_PREDICATE, "global", "ld.global"),
    "LDGMC": _variable(Part.LOAD, space="global", source="multimem.ld_reduce"),
    "LDS": _variable(Part.LOAD, space="shared", source="ld.shared"),
    "LDSM": _variable(Part.LOAD, space="shared", source="ldmatrix"),
    "LDL": _variable(Part.LOAD, space="local", source="ld.local, spills"),
    "ST": _effect(Part.STORE, "generic", "st, st.shared::cluster"),
    "STG": _effect(Part.STORE, "global", "st.global"),
    "STS": _effect(Part.STORE, "shared", "st.shared"),
    "STSM": _effect(Part.STORE, "shared", "stmatrix"),
    "STL": _effect(Part.STORE, "local", "st.local, spills"),
    "ATOM": _variable(Part.ATOMIC, Results.MAYBE_PREDICATE, "generic", "atom"),
    "ATOMG": _variable(Part.ATOMIC, Results.MAYBE_PREDICATE, "global", "atom.global"),
    "ATOMS": _variable(Part.ATOMIC, Results.MAYBE_PREDICATE, "shared", "atom.shared, red.shared"),
    "RED": _effect(Part.REDUCTION, "generic", "red"),
    "REDG": _effect(Part.REDUCTION, "global", "red.global"),
    "LDGSTS": _effect(Part.COPY_ASYNC, "shared", "cp.async"),
    "LDGDEPBAR": Row(Part.COPY_COMMIT, Results.NONE, Latency.VARIABLE, None, "cp.async.commit_group"),
    "STAS": _effect(Part.ASYNC_STORE, "shared::cluster", "st.async"),
    "REDAS": _effect(Part.ASYNC_REDUCE, "shared::cluster", "red.async"),
    "UMEMSETS": _effect(Part.BULK_FILL, "shared", "st.bulk"),
    "CCTL": _effect(Part.CACHE_CONTROL, source="discard, prefetch, applypriority"),
    "CCTL.IVALL": _effect(Part.CACHE_INVALIDATE, source="acquire at cluster, gpu, sys"),
    "TEX": _variable(Part.LOAD, Results.TWO, "texture"),
    "TLD": _variable(Part.LOAD, Results.TWO, "texture"),
    "TLD4": _variable(Part.LOAD, Results.TWO, "texture"),
    "TXQ": _variable(Part.LOAD, Results.TWO, "texture"),
    "TMML": _variable(Part.LOAD, Results.TWO, "texture"),
    "TXD": _variable(Part.LOAD, Results.TWO, "texture"),
    "SULD": _variable(Part.LOAD, Results.MAYBE_PREDICATE, "surface"),
    "SUST": _effect(Part.STORE, "surface"),
    "SURED": _effect(Part.REDUCTION, "surface"),
    "SUATOM": _variable(Part.ATOMIC, Results.MAYBE_PREDICATE, "surface"),
    # Fences
    "MEMBAR": _effect(Part.FENCE, source="fence.acq_rel, fence.sc, membar"),
    "ERRBAR": _effect(Part.ERROR_BARRIER, source="fence at gpu, sys"),
    "CGAERRBAR": _effect(Part.ERROR_BARRIER, source="fence at gpu, sys"),
    "FENCE.VIEW.ASYNC": Row(Part.PROXY_FENCE, Results.NONE, Latency.VARIABLE, None, "fence.proxy.async"),
    "FENCE.VIEW.ASYNC.T": Row(Part.TMEM_STORE_FENCE, Results.NONE, Latency.VARIABLE, None, "tcgen05.wait::st"),
    # Execution barriers
    "BAR": _effect(Part.CTA_SYNC, source="barrier.sync"),
    "BAR.SYNC": _effect(Part.CTA_SYNC, source="barrier.sync"),
    "BAR.RED": _effect(Part.CTA_SYNC, source="barrier.red"),
    "BAR.ARV": _effect(Part.CTA_ARRIVE, source="barrier.arrive"),
    "UCGABAR_ARV": _effect(Part.CLUSTER_ARRIVE, source="barrier.cluster.arrive"),
    "UCGABAR_WAIT": _effect(Part.CLUSTER_WAIT, source="barrier.cluster.wait"),
    "ACQBULK": _effect(Part.GRID_WAIT, source="griddepcontrol.wait"),
    "PREEXIT": _effect(Part.GRID_LAUNCH, source="griddepcontrol.launch_dependents"),
    "USETMAXREG": Row(Part.REGISTERS, Results.NONE, Latency.VARIABLE, None, "setmaxnreg.dec"),
    "USETMAXREG.TRY_ALLOC": _variable(Part.REGISTERS, Results.PREDICATE, source="setmaxnreg.inc"),
    # Memory barriers
    "SYNCS.EXCH": _variable(Part.BARRIER_INIT, space="shared", source="mbarrier.init"),
    "SYNCS.CCTL": _effect(Part.BARRIER_INVAL, "shared", "mbarrier.inval"),
    "SYNCS.ARRIVE": Row(Part.BARRIER_ARRIVE, Results.REGISTER, Latency.FIXED, "shared", "mbarrier.arrive"),
    "SYNCS.PHASECHK": _variable(
        Part.BARRIER_WAIT, Results.PREDICATE, "shared", "mbarrier.test_wait, mbarrier.try_wait"
    ),
    # sm_107a has forms with uniform operands; the PTX is the same (ptxas 13.4.59).
    "USYNCS.EXCH": _variable(Part.BARRIER_INIT, space="shared", source="mbarrier.init"),
    "USYNCS.CCTL": _effect(Part.BARRIER_INVAL, "shared", "mbarrier.inval"),
    "USYNCS.ARRIVE": Row(Part.BARRIER_ARRIVE, Results.REGISTER, Latency.FIXED, "shared", "mbarrier.arrive"),
    "USYNCS.PHASECHK": _variable(
        Part.BARRIER_WAIT, Results.PREDICATE, "shared", "mbarrier.test_wait, mbarrier.try_wait"
    ),
    "ARRIVES": _effect(Part.COPY_ARRIVE, "shared", "cp.async.mbarrier.arrive"),
    # Bulk copies; the space is that of the destination
    "UTMALDG": _effect(Part.BULK_LOAD, "shared", "cp.async.bulk.tensor, to shared"),
    "UTMASTG": _effect(Part.BULK_STORE, "shared", "cp.async.bulk.tensor, from shared"),
    "UTMAREDG": _effect(Part.BULK_STORE, "shared", "cp.reduce.async.bulk.tensor"),
    "UTMAPF": _effect(Part.BULK_PREFETCH, "global", "cp.async.bulk.prefetch.tensor"),
    "UBLKCP.S.G": _effect(Part.BULK_LOAD, "shared", "cp.async.bulk, to shared"),
    "UBLKCP.G.S": _effect(Part.BULK_STORE, "global", "cp.async.bulk, from shared"),
    "UBLKCP.S.S": _effect(Part.BULK_PEER, "shared::cluster", "cp.async.bulk, to a peer"),
    "UBLKRED.G.S": _effect(Part.BULK_STORE, "global", "cp.reduce.async.bulk, from shared"),
    "UBLKRED.S.S": _effect(Part.BULK_PEER, "shared::cluster", "cp.reduce.async.bulk, to a peer"),
    "UBLKPF": _effect(Part.BULK_PREFETCH, "global", "cp.async.bulk.prefetch"),
    "UTMACMDFLUSH": _effect(Part.BULK_COMMIT, source="cp.async.bulk.commit_group"),
    "UTMACCTL.PF": _effect(Part.MAP_PREFETCH, source="prefetch.tensormap"),
    "UTMACCTL.IV": _effect(Part.MAP_INVALIDATE, source="fence.proxy.tensormap acquire"),
    "DEPBAR": _effect(Part.SCOREBOARD_WAIT, source="cp.async.wait_group, cp.async.bulk.wait_group"),
    "UGETNEXTWORKID": _effect(Part.CLC_CANCEL, "shared", "clusterlaunchcontrol.try_cancel"),
    # Tensor memory
    "LDTM": _variable(Part.TMEM_LOAD, space="tmem", source="tcgen05.ld"),
    "LDTM.STAT": _variable(Part.TMEM_LOAD, Results.TWO, "tmem", "tcgen05.ld.red"),
    "STTM": _effect(Part.TMEM_STORE, "tmem", "tcgen05.st"),
    **{name: _effect(Part.TMEM_MMA, "tmem", "tcgen05.mma") for name in _MATRIX.split()},
    "UTCCP": _effect(Part.TMEM_COPY, "tmem", "tcgen05.cp"),
    "UTCSHIFT": _effect(Part.TMEM_SHIFT, "tmem", "tcgen05.shift"),
    "UTCBAR": _effect(Part.TMEM_COMMIT, "shared", "tcgen05.commit"),
    "UTCATOMSWS": Row(Part.TMEM_DEALLOC, source="tcgen05.dealloc"),
    "UTCATOMSWS.FIND_AND_SET": _variable(Part.TMEM_ALLOC, Results.MAYBE_PREDICATE, source="tcgen05.alloc"),
    "UTCATOMSWS.2CTA.FIND_AND_SET": _variable(Part.TMEM_ALLOC, Results.MAYBE_PREDICATE, source="tcgen05.alloc"),
    "UVIRTCOUNT": _effect(Part.TMEM_RELINQUISH, source="tcgen05.relinquish_alloc_permit"),
    # Warp group matrix instructions
    "WARPGROUP.ARRIVE": _effect(Part.WGMMA_FENCE, source="wgmma.fence"),
    "WARPGROUP.DEPBAR": _effect(Part.WGMMA_WAIT, source="wgmma.wait_group"),
    "WARPGROUPSET": _effect(Part.CONTROL),
    **{name: Row(Part.WGMMA_MMA, source="wgmma.mma_async") for name in ("HGMMA", "QGMMA", "IGMMA", "BGMMA")},
    # Control
    **{name: _effect(Part.CONTROL) for name in ("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "KILL", "BPT")},
    **{name: _effect(Part.CONTROL) for name in ("BSSY", "BSYNC", "BREAK", "YIELD", "PMTRIG", "SETLMEMBASE", "CSMTEST")},
    **{name: _effect(Part.SLEEP) for name in ("NANOSLEEP",)},
    "NOP": _effect(Part.NOP, source="tcgen05.fence, tcgen05.wait::ld, fence.acquire.cta, padding"),
}

_ARRIVE_MODES = {"A0TR": Part.BARRIER_EXPECT, "A0TX": Part.BARRIER_COMPLETE, "A0T1": Part.BARRIER_PENDING}
_UNKNOWN = Row(Part.UNKNOWN, Results.REGISTER, Latency.VARIABLE, None, "")


class SassOp(msgspec.Struct, frozen=True):
    """A decoded opcode. `words` are the dotted parts after the first."""

    text: str
    root: str
    words: tuple[str, ...]
    row: Row
    part: Part

    @property
    def known(self) -> bool:
        return self.part is not Part.UNKNOWN

    def has(self, word: str) -> bool:
        return word in self.words


@cache
def decode(text: str) -> SassOp:
    """Look an opcode up by its longest dotted prefix in the table."""
    parts = text.split(".")
    row = _UNKNOWN
    for length in range(len(parts), 0, -1):
        found = _TABLE.get(".".join(parts[:length]))
        if found is not None:
            row = found
            break
    words = tuple(parts[1:])
    part = row.part
    if part is Part.BARRIER_ARRIVE:
        part = next((_ARRIVE_MODES[word] for word in words if word in _ARRIVE_MODES), part)
    return SassOp(text, parts[0], words, row, part)


def opcodes() -> dict[str, Row]:
    """The whole table, for documentation and tests."""
    return dict(_TABLE)
