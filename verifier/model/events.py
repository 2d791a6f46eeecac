"""One vocabulary for what PTX and SASS instructions do to memory, barriers and the warp.

An event is the meaning of one instruction, with its operands still symbolic; a stream evaluates them for its warp.
Rules and analyses speak events, never opcodes.
"""

from __future__ import annotations

import enum

import msgspec

from verifier.findings import Location
from verifier.model.program import AddressExpr, Arg


class Kind(enum.Enum):
    # Tensor memory
    TMEM_LOAD = "tmem load"
    TMEM_STORE = "tmem store"
    TMEM_MMA = "mma"
    TMEM_COPY = "tmem copy"
    TMEM_SHIFT = "tmem shift"
    TMEM_ALLOC = "tmem alloc"
    TMEM_DEALLOC = "tmem dealloc"
    TMEM_RELINQUISH = "tmem relinquish"
    TMEM_COMMIT = "tcgen05 commit"
    TMEM_WAIT_LOAD = "wait::ld"
    TMEM_WAIT_STORE = "wait::st"
    TMEM_FENCE_BEFORE = "fence::before_thread_sync"
    TMEM_FENCE_AFTER = "fence::after_thread_sync"
    # Memory barriers
    BARRIER_INIT = "barrier init"
    BARRIER_INVAL = "barrier inval"
    BARRIER_ARRIVE = "arrive"
    BARRIER_EXPECT = "expect_tx"
    BARRIER_COMPLETE = "complete_tx"
    BARRIER_WAIT = "wait"
    COPY_ARRIVE = "cp.async arrive"
    # Asynchronous copies
    BULK_LOAD = "bulk load"  # global -> shared, completes on a barrier
    BULK_STORE = "bulk store"  # shared -> global, completes in a bulk group
    BULK_PEER = "bulk copy to peer"  # shared -> shared::cluster, completes on a barrier
    BULK_PREFETCH = "bulk prefetch"  # through a tensor map, to L2
    BULK_COMMIT = "bulk commit"
    BULK_WAIT = "bulk wait"
    ASYNC_STORE = "st.async"
    ASYNC_REDUCE = "red.async"
    COPY_ASYNC = "cp.async"
    COPY_COMMIT = "cp.async commit"
    COPY_WAIT = "cp.async wait"
    CLC_CANCEL = "clc try_cancel"
    # Ordinary memory
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    # Fences and execution barriers
    FENCE = "fence"
    PROXY_FENCE = "proxy fence"
    INIT_FENCE = "fence.mbarrier_init"
    CTA_SYNC = "bar.sync"
    CTA_ARRIVE = "bar.arrive"
    WARP_SYNC = "bar.warp.sync"
    CLUSTER_ARRIVE = "cluster arrive"
    CLUSTER_WAIT = "cluster wait"
    GRID_WAIT = "griddepcontrol.wait"
    GRID_LAUNCH = "griddepcontrol.launch_dependents"
    # Tensor maps
    MAP_WRITE = "tensor map write"
    MAP_COPY = "tensor map copy"
    MAP_PREFETCH = "tensor map prefetch"
    # wgmma
    WGMMA_FENCE = "wgmma fence"
    WGMMA_MMA = "wgmma"
    WGMMA_COMMIT = "wgmma commit"
    WGMMA_WAIT = "wgmma wait"
    # The rest
    COLLECTIVE = "collective"  # needs every lane, orders nothing
    REGISTERS = "setmaxnreg"
    CACHE_INVALIDATE = "L1 invalidate"
    ERROR_BARRIER = "error barrier"
    SPILL = "spill"
    EXIT = "exit"
    UNKNOWN = "unknown"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Meaning of instruction `instr`. Fields that do not apply are None or empty.

    `sem`/`scope` are the memory ordering with defaults filled in (`weak`, `relaxed`, `acquire`, `release`, `acq_rel`,
    `sc`; `cta`, `cluster`, `gpu`, `sys`). `space` is the state space of `address` as written, or, for a generic
    address, as far as `model.spaces` knows it (else None). `address` is where data is written or read (the destination
    of a copy), `source` the other end of a copy (a tensor map for tensor copies), `barrier` the mbarrier, `scales`
    what else of tensor memory an MMA reads: scale factors of A and B, or the metadata of a sparse A. `count`, `size`
    (bytes), `parity` and `mask` (multicast) are operands; `number` is an immediate (N of wait_group, id of a named
    barrier, register count). `registers` are those an asynchronous read writes, that a TMEM store or wgmma reads, or
    the matrix descriptors of `tcgen05.mma` and `tcgen05.cp`. `flags` are modifiers that rules ask for by name.
    """

    kind: Kind
    instr: int
    location: Location
    opcode: str
    sem: str = "weak"
    scope: str | None = None
    space: str | None = None
    address: AddressExpr | None = None
    source: AddressExpr | None = None
    barrier: AddressExpr | None = None
    scales: tuple[AddressExpr, ...] = ()
    count: Arg | None = None
    size: Arg | None = None
    parity: Arg | None = None
    mask: Arg | None = None
    number: Arg | None = None
    registers: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    width: int = 0  # bytes moved by an ordinary access, per lane; 0 when not known
    lanes: int = 32  # lanes, from the first on, whose address counts

    def has(self, flag: str) -> bool:
        return flag in self.flags


TMEM_ASYNC = frozenset({Kind.TMEM_LOAD, Kind.TMEM_STORE, Kind.TMEM_MMA, Kind.TMEM_COPY, Kind.TMEM_SHIFT})
TMEM_WRITES = frozenset({Kind.TMEM_STORE, Kind.TMEM_MMA, Kind.TMEM_COPY, Kind.TMEM_SHIFT, Kind.TMEM_DEALLOC})
SHARED = frozenset({"shared", "shared::cta", "shared::cluster"})
# Operations that announce something to other threads.
ANNOUNCEMENTS = frozenset(
    {Kind.BARRIER_ARRIVE, Kind.TMEM_COMMIT, Kind.CTA_SYNC, Kind.CTA_ARRIVE, Kind.CLUSTER_ARRIVE, Kind.ASYNC_STORE}
)


def in_shared(event: Event, *, perhaps: bool = False) -> bool:
    """Whether `event.address` is in shared memory; `perhaps`: or is a generic address that may be."""
    return event.space in SHARED or (perhaps and event.space is None)


def in_global(event: Event) -> bool:
    """Whether `event.address` is in global memory, as a generic one is that is not known to be elsewhere."""
    return event.space in ("global", None)
