"""PTX instructions -> events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verifier.isa.ptx_ops import PtxOp, is_type, width_of
from verifier.isa.ptx_sync import PLAIN, ordering
from verifier.isa.wmma import matrix_bytes
from verifier.model.events import Event, Kind
from verifier.model.lower_alu import Namer, arg_of
from verifier.model.lower_ptx import Resolved
from verifier.model.program import AddressExpr, Arg, Const, Function, Instr, Reg
from verifier.parse import ptx_ast as ast

_SPACES = (
    "shared::cluster",
    "shared::cta",
    "shared",
    "global",
    "local",
    "const",
    "param",
    "param::entry",
    "param::func",
)


class Context:
    """One instruction being lifted: its operands, and ways to read them."""

    def __init__(self, instr: Instr) -> None:
        resolved = instr.origin
        assert isinstance(resolved, Resolved)
        self.instr = instr
        self.op: PtxOp = resolved.op
        self.operands = resolved.statement.operands
        self.name: Namer = resolved.arg  # type: ignore[assignment]

    def addresses(self) -> list[ast.Address]:
        return [operand for operand in self.operands if isinstance(operand, ast.Address)]

    def place(self, index: int) -> AddressExpr | None:
        """The index-th bracketed operand, or None."""
        found = self.addresses()
        return self._expr(found[index]) if index < len(found) else None

    def _expr(self, operand: ast.Address) -> AddressExpr | None:
        base = arg_of(operand.base, self.name)
        return None if base is None else AddressExpr((base,), operand.offset)

    def scalar(self, index: int) -> Arg | None:
        """The index-th operand if it is a register, immediate or symbol."""
        return arg_of(self.operands[index], self.name) if index < len(self.operands) else None

    def after_address(self, offset: int = 1, which: int = -1) -> Arg | None:
        """The operand `offset` places after the `which`-th bracketed one."""
        places = [i for i, operand in enumerate(self.operands) if isinstance(operand, ast.Address)]
        return self.scalar(places[which] + offset) if places else None

    def vector(self, index: int) -> tuple[str, ...]:
        """Registers of a vector or scalar operand."""
        if index >= len(self.operands):
            return ()
        operand = self.operands[index]
        items = operand.items if isinstance(operand, ast.Vector) else (operand,)
        args = (arg_of(item, self.name) for item in items)
        return tuple(arg.name for arg in args if isinstance(arg, Reg))

    def event(self, kind: Kind, **fields: object) -> Event:
        order = ordering(self.op)
        fields.setdefault("sem", order.sem)
        fields.setdefault("scope", order.scope)
        fields.setdefault("space", self.op.first_of(_SPACES))
        return Event(
            kind=kind,
            instr=self.instr.index,
            location=self.instr.location,
            opcode=self.instr.opcode,
            flags=self.op.modifiers,
            **fields,  # type: ignore[arg-type]
        )


def lift_ptx(function: Function) -> tuple[Event, ...]:
    """Events of all instructions, in order; instructions without meaning here have none."""
    return tuple(_lift(function.instrs))


def _lift(instrs: tuple[Instr, ...]) -> Iterator[Event]:
    for instr in instrs:
        context = Context(instr)
        lift = _TABLE.get(context.op.family)
        if lift is not None:
            yield lift(context)
        elif context.op.family not in PLAIN:
            yield context.event(Kind.UNKNOWN)


def _simple(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind)


def _tmem_load(c: Context) -> Event:
    return c.event(Kind.TMEM_LOAD, address=c.place(0), registers=c.vector(0))


def _tmem_store(c: Context) -> Event:
    return c.event(Kind.TMEM_STORE, address=c.place(0), registers=c.vector(len(c.operands) - 1))


def _mma(c: Context) -> Event:
    """`mma [d], a, b, idesc, ...`: `source` is set when A comes from tensor memory, `registers` are descriptors."""
    source = c.place(1) if isinstance(c.operands[1], ast.Address) else None
    others = (c.place(i) for i in range(1 if source is None else 2, len(c.addresses())))
    return c.event(
        Kind.TMEM_MMA,
        address=c.place(0),
        source=source,
        count=c.scalar(3),
        registers=c.vector(1) + c.vector(2),
        scales=tuple(place for place in others if place is not None),
    )


def _alloc(c: Context) -> Event:
    """`address` is the shared-memory slot that receives the base; `count` the number of columns."""
    return c.event(Kind.TMEM_ALLOC, address=c.place(0), count=c.scalar(1))


def _dealloc(c: Context) -> Event:
    base = c.scalar(0)
    return c.event(Kind.TMEM_DEALLOC, address=AddressExpr((base,)) if base is not None else None, count=c.scalar(1))


def _commit(c: Context) -> Event:
    return c.event(Kind.TMEM_COMMIT, barrier=c.place(0), mask=c.after_address())


def _init(c: Context) -> Event:
    return c.event(Kind.BARRIER_INIT, barrier=c.place(0), count=c.after_address())


def _arrive(c: Context) -> Event:
    """The last operand is the count, or the bytes with `.expect_tx`."""
    operand = c.after_address()
    expects = c.op.has("expect_tx")
    return c.event(
        Kind.BARRIER_ARRIVE,
        barrier=c.place(0),
        count=Const(1) if expects or operand is None else operand,
        size=operand if expects else None,
    )


def _transaction(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, barrier=c.place(0), size=c.after_address())


def _wait(c: Context) -> Event:
    return c.event(Kind.BARRIER_WAIT, barrier=c.place(0), parity=c.after_address(), registers=c.vector(0))


def _bulk(c: Context) -> Event:
    """Direction by the order of the spaces in the opcode: destination first."""
    spaces = [word for word in c.op.words if word.startswith(("shared", "global"))]
    mask = c.after_address() if any(w.startswith("multicast") for w in c.op.words) else None
    if spaces[:1] == ["global"]:
        return c.event(Kind.BULK_STORE, address=c.place(0), source=c.place(1), space="global", size=_bulk_size(c))
    kind = Kind.BULK_PEER if len(spaces) > 1 and spaces[1].startswith("shared") else Kind.BULK_LOAD
    return c.event(
        kind,
        address=c.place(0),
        source=c.place(1),
        barrier=c.place(2),
        space=spaces[0] if spaces else None,
        size=_bulk_size(c),
        mask=mask,
    )


def _bulk_size(c: Context) -> Arg | None:
    """Bytes of a non-tensor copy; a tensor copy's box is not in PTX."""
    return None if "tensor" in c.op.family else c.after_address(1, 1)


def _bulk_wait(c: Context) -> Event:
    return c.event(Kind.BULK_WAIT, number=c.scalar(0))


def _async_store(kind: Kind) -> Callable[[Context], Event]:
    def lift(c: Context) -> Event:
        return c.event(
            kind,
            address=c.place(0),
            barrier=c.place(1),
            space="shared::cluster",
            registers=c.vector(1),
            width=_bytes(c),
        )

    return lift


def _async(plain: Callable[[Context], Event], remote: Callable[[Context], Event]) -> Callable[[Context], Event]:
    """`.mmio` forms write global memory and complete on no barrier: a release, as strong as an ordinary one."""
    return lambda c: remote(c) if c.place(1) is not None else plain(c)


def _bytes(c: Context) -> int:
    """Bytes per lane of an access: element width times vector length."""
    lengths = {"v2": 2, "v4": 4, "v8": 8}
    element = next((width_of(word) for word in reversed(c.op.words) if is_type(word)), 32) // 8
    return element * next((lengths[word] for word in c.op.words if word in lengths), 1)


def _load(c: Context) -> Event:
    return c.event(Kind.LOAD, address=c.place(0), registers=c.vector(0), width=_bytes(c))


def _store(c: Context) -> Event:
    return c.event(Kind.STORE, address=c.place(0), registers=c.vector(1), width=_bytes(c))


_ROW = 16  # bytes of a matrix row; each is named by a lane (PTX ISA 9.4, 9.7.16.5.15 ldmatrix, 9.7.16.5.16 stmatrix)


def _matrix(kind: Kind) -> Callable[[Context], Event]:
    """Rows of 16 bytes, whose addresses the first lanes give: 8 a matrix, 16 where it is loaded as m16n16."""

    def lift(c: Context) -> Event:
        rows = next(int(word[1:]) for word in c.op.words if word in ("x1", "x2", "x4")) * 8
        lanes = 2 * rows if c.op.has("m16n16") else rows
        registers = c.vector(0 if kind is Kind.LOAD else 1)
        return c.event(kind, address=c.place(0), registers=registers, width=_ROW, lanes=lanes)

    return lift


def _bulk_fill(c: Context) -> Event:
    """`st.bulk [a], size, 0`."""
    size = c.after_address()
    return c.event(Kind.STORE, address=c.place(0), size=size, width=int(size.value) if isinstance(size, Const) else 0)


def _fragment(kind: Kind) -> Callable[[Context], Event]:
    """A matrix that a whole warp loads or stores; `width` is 0 where its rows lie apart."""

    def lift(c: Context) -> Event:
        stride = c.scalar(2)
        known = int(stride.value) if isinstance(stride, Const) else None
        width = matrix_bytes(c.op, known) if stride is None or known is not None else None
        registers = c.vector(0 if kind is Kind.LOAD else 1)
        return c.event(kind, address=c.place(0), registers=registers, width=width or 0)

    return lift


def _atomic(c: Context) -> Event:
    return c.event(Kind.ATOMIC, address=c.place(0), width=_bytes(c))


def _copy_async(c: Context) -> Event:
    return c.event(Kind.COPY_ASYNC, address=c.place(0), source=c.place(1), size=c.after_address(1, 1))


def _proxy_fence(c: Context) -> Event:
    return c.event(Kind.PROXY_FENCE, address=c.place(0), size=c.after_address())


def _named_barrier(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, number=c.scalar(0), count=c.scalar(1), sem="acq_rel", scope="cta")


def _barrier_red(c: Context) -> Event:
    """`d, a{, b}, {!}c`: the result, the barrier, the number of threads where it is given, the predicate."""
    count = c.scalar(2) if len(c.operands) > 3 else None
    return c.event(Kind.CTA_SYNC, number=c.scalar(1), count=count, sem="acq_rel", scope="cta")


def _registers(c: Context) -> Event:
    return c.event(Kind.REGISTERS, number=c.scalar(0))


def _map_write(c: Context) -> Event:
    return c.event(Kind.MAP_WRITE, address=c.place(0))


def _map_copy(c: Context) -> Event:
    return c.event(Kind.MAP_COPY, address=c.place(0), source=c.place(1))


def _cancel(c: Context) -> Event:
    return c.event(Kind.CLC_CANCEL, address=c.place(0), barrier=c.place(1), space="shared::cta")


def _wgmma(c: Context) -> Event:
    """`registers`: the accumulator, and A where it comes from registers; a descriptor is read at once."""
    fragment = c.vector(1) if len(c.operands) > 1 and isinstance(c.operands[1], ast.Vector) else ()
    return c.event(Kind.WGMMA_MMA, registers=c.vector(0) + fragment)


_TABLE: dict[str, Callable[[Context], Event]] = {
    "tcgen05.ld": _tmem_load,
    "tcgen05.st": _tmem_store,
    "tcgen05.mma": _mma,
    "tcgen05.cp": lambda c: c.event(Kind.TMEM_COPY, address=c.place(0), registers=c.vector(1)),
    "tcgen05.shift": lambda c: c.event(Kind.TMEM_SHIFT, address=c.place(0)),
    "tcgen05.alloc": _alloc,
    "tcgen05.dealloc": _dealloc,
    "tcgen05.relinquish_alloc_permit": _simple(Kind.TMEM_RELINQUISH),
    "tcgen05.commit": _commit,
    "tcgen05.wait::ld": _simple(Kind.TMEM_WAIT_LOAD),
    "tcgen05.wait::st": _simple(Kind.TMEM_WAIT_STORE),
    "tcgen05.fence::before_thread_sync": _simple(Kind.TMEM_FENCE_BEFORE),
    "tcgen05.fence::after_thread_sync": _simple(Kind.TMEM_FENCE_AFTER),
    "mbarrier.init": _init,
    "mbarrier.inval": lambda c: c.event(Kind.BARRIER_INVAL, barrier=c.place(0)),
    "mbarrier.arrive": _arrive,
    "mbarrier.arrive_drop": _arrive,
    "mbarrier.expect_tx": _transaction(Kind.BARRIER_EXPECT),
    "mbarrier.complete_tx": _transaction(Kind.BARRIER_COMPLETE),
    "mbarrier.test_wait": _wait,
    "mbarrier.try_wait": _wait,
    "cp.async.mbarrier.arrive": lambda c: c.event(Kind.COPY_ARRIVE, barrier=c.place(0)),
    "cp.async.bulk.tensor": _bulk,
    "cp.async.bulk": _bulk,
    "cp.reduce.async.bulk.tensor": _bulk,
    "cp.reduce.async.bulk": _bulk,
    "cp.async.bulk.prefetch.tensor": lambda c: c.event(Kind.BULK_PREFETCH, source=c.place(0)),
    "cp.async.bulk.commit_group": _simple(Kind.BULK_COMMIT),
    "cp.async.bulk.wait_group": _bulk_wait,
    "st.async": _async(_store, _async_store(Kind.ASYNC_STORE)),
    "red.async": _async(_atomic, _async_store(Kind.ASYNC_REDUCE)),
    "cp.async": _copy_async,
    "cp.async.commit_group": _simple(Kind.COPY_COMMIT),
    "cp.async.wait_group": lambda c: c.event(Kind.COPY_WAIT, number=c.scalar(0)),
    "cp.async.wait_all": lambda c: c.event(Kind.COPY_WAIT, number=Const(0)),
    "clusterlaunchcontrol.try_cancel": _cancel,
    "ld": _load,
    "ldu": _load,
    "ldmatrix": _matrix(Kind.LOAD),
    "multimem.ld_reduce": _load,
    "st": _store,
    "stmatrix": _matrix(Kind.STORE),
    "st.bulk": _bulk_fill,
    "wmma.load": _fragment(Kind.LOAD),
    "wmma.store": _fragment(Kind.STORE),
    "multimem.st": _store,
    "atom": _atomic,
    "red": _atomic,
    "multimem.red": _atomic,
    "fence": _simple(Kind.FENCE),
    "membar": _simple(Kind.FENCE),
    "fence.proxy": _proxy_fence,
    "fence.mbarrier_init": _simple(Kind.INIT_FENCE),
    **dict.fromkeys(
        (
            "bar.sync",
            "barrier.sync",
            "bar.cta.sync",
            "barrier.cta.sync",
        ),
        _named_barrier(Kind.CTA_SYNC),
    ),
    **dict.fromkeys(("bar.red", "barrier.red", "bar.cta.red", "barrier.cta.red"), _barrier_red),
    **dict.fromkeys(
        ("bar.arrive", "barrier.arrive", "bar.cta.arrive", "barrier.cta.arrive"), _named_barrier(Kind.CTA_ARRIVE)
    ),
    "bar.warp.sync": _simple(Kind.WARP_SYNC),
    "barrier.cluster.arrive": _simple(Kind.CLUSTER_ARRIVE),
    "barrier.cluster.wait": _simple(Kind.CLUSTER_WAIT),
    "griddepcontrol.wait": _simple(Kind.GRID_WAIT),
    "griddepcontrol.launch_dependents": _simple(Kind.GRID_LAUNCH),
    "tensormap.replace": _map_write,
    "tensormap.cp_fenceproxy": _map_copy,
    "prefetch.tensormap": lambda c: c.event(Kind.MAP_PREFETCH, address=c.place(0)),
    "wgmma.fence": _simple(Kind.WGMMA_FENCE),
    "wgmma.mma_async": _wgmma,
    "wgmma.commit_group": _simple(Kind.WGMMA_COMMIT),
    "wgmma.wait_group": lambda c: c.event(Kind.WGMMA_WAIT, number=c.scalar(0)),
    "setmaxnreg.inc": _registers,
    "setmaxnreg.dec": _registers,
    **dict.fromkeys(("mma.sync", "mma.sp", "mma", "wmma.mma"), _simple(Kind.COLLECTIVE)),
    "ret": _simple(Kind.EXIT),
    "exit": _simple(Kind.EXIT),
    "trap": _simple(Kind.EXIT),
}
