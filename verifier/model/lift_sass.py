"""SASS instructions -> events.

Machine code shows what happens, not what the memory model orders: an arrive with release semantics at CTA scope and a
relaxed one are the same bytes. Where an opcode does not tell, `sem` is "weak" and `scope` None, which here means
not known. Modifiers that PTX has, too, get their PTX names in `flags`.
"""

from __future__ import annotations

from collections.abc import Callable

from verifier.isa.sass_ops import Part, SassOp, decode
from verifier.isa.sass_regs import access_bytes
from verifier.model.events import Event, Kind
from verifier.model.program import AddressExpr, Arg, Const, Function, Instr, Reg
from verifier.model.sass_operands import Machine, addresses_of, arg_of, bundle_member, split, written_registers
from verifier.parse import sass_ast as ast
from verifier.parse.control import control_of

_MACHINE = Machine(0)  # no operand that is lifted lies in a constant bank
_SCOPES = {"CTA": "cta", "SM": "cta", "GPU": "gpu", "SYS": "sys"}
_PTX_FLAGS = {
    "2CTA": "cta_group::2",
    "MULTICAST": "multicast::cluster",
    "BROADCAST": "multicast::cluster",
    "OPTOUT": "drop",
    "RED": "remote",
}
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_NO_BOUND = 0x36  # `DEPBAR.LE SBn, 0x36` before an allocation bounds a queue and waits for nothing in particular


class Context:
    """One instruction being lifted: its operands, and ways to read them."""

    def __init__(self, instr: Instr, op: SassOp) -> None:
        assert isinstance(instr.origin, ast.SassInstruction)
        self.instr = instr
        self.op = op
        self.statement = instr.origin
        self.operands = instr.origin.operands
        self._places = addresses_of(instr.origin)

    def place(self, index: int) -> AddressExpr | None:
        """The index-th bracketed operand; of a bundle, its first register."""
        return self._places[index] if index < len(self._places) else None

    def member(self, place: int, member: int) -> AddressExpr | None:
        """Register `member` of the group that bracketed operand `place` names."""
        found = bundle_member(self.statement, place, member)
        return AddressExpr((found,)) if found is not None else None

    def matrix(self, kind: str, index: int) -> AddressExpr | None:
        """The index-th bracketed operand of one kind: "tmem", "gdesc"."""
        found = [o for o in self.operands if isinstance(o, ast.Address) and o.kind == kind]
        if index >= len(found):
            return None
        terms = tuple(Reg(t.name) for t in found[index].terms if isinstance(t, ast.Register) and t.name != "URZ")
        return AddressExpr(terms, found[index].offset)

    def scalar(self, index: int) -> Arg | None:
        """An operand that is a register or an immediate; negative indices count from the end."""
        if not -len(self.operands) <= index < len(self.operands):
            return None
        operand = self.operands[index]
        return arg_of(operand, _MACHINE) if isinstance(operand, ast.Register | ast.Immediate) else None

    def written(self) -> tuple[str, ...]:
        return written_registers(self.op, split(self.op, self.operands))

    def event(self, kind: Kind, *flags: str, **fields: object) -> Event:
        strong = self.op.has("STRONG")
        fields.setdefault("sem", "relaxed" if strong else "weak")
        fields.setdefault("scope", self.scope() if strong else None)
        fields.setdefault("space", self.op.row.space)
        words = self.op.words
        return Event(
            kind=kind,
            instr=self.instr.index,
            location=self.instr.location,
            opcode=self.instr.opcode,
            flags=frozenset((*words, *flags, *(_PTX_FLAGS[word] for word in words if word in _PTX_FLAGS))),
            **fields,  # type: ignore[arg-type]
        )

    def scope(self) -> str | None:
        return next((_SCOPES[word] for word in self.op.words if word in _SCOPES), None)


def lift_sass(function: Function) -> tuple[Event, ...]:
    """Events of all instructions, in order; instructions without meaning here have none."""
    groups = _Groups(function)
    return tuple(event for instr in function.instrs if (event := _lift(instr, groups)) is not None)


class _Groups:
    """Which scoreboards count groups of bulk copies and of cp.async: DEPBAR waits for either, by number."""

    def __init__(self, function: Function) -> None:
        self.bulk: set[int] = set()
        self.copies: set[int] = set()
        for instr in function.instrs:
            part = decode(instr.opcode).part
            if part in (Part.BULK_COMMIT, Part.COPY_COMMIT) and isinstance(instr.origin, ast.SassInstruction):
                control = control_of(instr.origin)
                if control is not None:
                    group = self.bulk if part is Part.BULK_COMMIT else self.copies
                    group.update(n for n in (control.read, control.write) if n is not None)

    def kind(self, scoreboard: int) -> Kind | None:
        """What a wait for a number of this scoreboard waits for; None when that cannot be told."""
        if (scoreboard in self.bulk) == (scoreboard in self.copies):
            return None
        return Kind.BULK_WAIT if scoreboard in self.bulk else Kind.COPY_WAIT


def _lift(instr: Instr, groups: _Groups) -> Event | None:
    op = decode(instr.opcode)
    if op.part in _SILENT:
        return None
    context = Context(instr, op)
    if op.part is Part.SCOREBOARD_WAIT:
        return _depbar(context, groups)
    lift = _TABLE.get(op.part)
    return lift(context) if lift is not None else context.event(Kind.UNKNOWN)


def _depbar(c: Context, groups: _Groups) -> Event | None:
    first, bound = (c.operands[0] if c.operands else None), c.scalar(1)
    if not isinstance(first, ast.Word) or not isinstance(bound, Const) or bound.value == _NO_BOUND:
        return None
    kind = groups.kind(int(first.text.removeprefix("SB")))
    return None if kind is None else c.event(kind, number=bound)


def _simple(kind: Kind, *flags: str) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, *flags)


def _at(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, address=c.place(0))


def _on_barrier(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, barrier=c.place(0))


def _tmem_load(c: Context) -> Event:
    return c.event(Kind.TMEM_LOAD, address=c.matrix("tmem", 0), registers=c.written())


def _tmem_store(c: Context) -> Event:
    return c.event(Kind.TMEM_STORE, address=c.matrix("tmem", 0))


def _arrive(c: Context) -> Event:
    """A1T0: one arrival. ART0: as many as the register says. No mode: one arrival, and the register is the bytes that
    are expected. ACT0, one arrival for each active lane, leaves the count unknown."""
    last = c.scalar(-1)
    if c.op.has("ART0"):
        return c.event(Kind.BARRIER_ARRIVE, barrier=c.place(0), count=last)
    modes = [word for word in c.op.words if word.startswith("A") and word.endswith("T0")]
    count = None if modes and modes != ["A1T0"] else Const(1)
    return c.event(Kind.BARRIER_ARRIVE, barrier=c.place(0), count=count, size=None if modes else last)


def _transaction(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, barrier=c.place(0), size=c.scalar(-1))


def _wait(c: Context) -> Event:
    return c.event(Kind.BARRIER_WAIT, barrier=c.place(0), parity=c.scalar(-1), registers=c.written())


def _bulk_load(c: Context) -> Event:
    mask = c.scalar(-1) if c.op.has("MULTICAST") else None
    size = c.scalar(2) if c.op.root == "UBLKCP" else None
    return c.event(Kind.BULK_LOAD, address=c.place(0), barrier=c.member(0, 1), source=c.place(1), size=size, mask=mask)


def _bulk_store(c: Context) -> Event:
    """Tensor copies name the shared address first, plain ones the destination."""
    shared, other = (0, 1) if c.op.root in ("UTMASTG", "UTMAREDG") else (1, 0)
    size = None if shared == 0 else c.scalar(2)
    return c.event(Kind.BULK_STORE, address=c.place(other), source=c.place(shared), space="global", size=size)


def _bulk_peer(c: Context) -> Event:
    return c.event(Kind.BULK_PEER, address=c.place(0), barrier=c.member(0, 1), source=c.place(1), size=c.scalar(2))


def _async(kind: Kind) -> Callable[[Context], Event]:
    """The 64-bit address holds the address of the data, then that of the barrier."""
    return lambda c: c.event(kind, address=c.place(0), barrier=c.member(0, 1), width=access_bytes(c.op))


def _load(c: Context) -> Event:
    if c.op.row.space == "local":
        return c.event(Kind.SPILL, "load", address=c.place(0), width=access_bytes(c.op))
    return c.event(Kind.LOAD, address=c.place(0), registers=c.written(), width=access_bytes(c.op))


def _store(c: Context) -> Event:
    if c.op.row.space == "local":
        return c.event(Kind.SPILL, "store", address=c.place(0), width=access_bytes(c.op))
    return c.event(Kind.STORE, address=c.place(0), width=access_bytes(c.op))


def _atomic(c: Context) -> Event:
    return c.event(Kind.ATOMIC, address=c.place(0), width=access_bytes(c.op))


def _fence(c: Context) -> Event:
    return c.event(Kind.FENCE, sem="sc" if c.op.has("SC") else "acq_rel", scope=c.scope())


def _proxy_fence(c: Context) -> Event:
    """FENCE.VIEW.ASYNC: `.S` for shared, `.G` for global memory."""
    space = "shared::cta" if c.op.has("S") else "global" if c.op.has("G") else None
    return c.event(Kind.PROXY_FENCE, "async", space=space)


def _map_invalidate(c: Context) -> Event:
    return c.event(Kind.PROXY_FENCE, "tensormap::generic", sem="acquire", address=c.place(0), space="global")


def _named_barrier(kind: Kind) -> Callable[[Context], Event]:
    return lambda c: c.event(kind, number=c.scalar(0), count=c.scalar(1), sem="acq_rel", scope="cta")


def _registers(c: Context) -> Event:
    direction = "inc" if c.op.has("TRY_ALLOC") else "dec"
    return c.event(Kind.REGISTERS, direction, number=c.scalar(-1))


def _wgmma(c: Context) -> Event:
    commits = any(isinstance(o, ast.Word) and o.text.startswith("gsb") for o in c.operands)
    return c.event(Kind.WGMMA_MMA, *(["commit"] if commits else []), registers=c.written())


def _control(c: Context) -> Event | None:
    """Instructions that end a thread; other control flow is in the graph."""
    ends = c.op.root in _ENDS or (c.op.root == "BPT" and c.op.has("TRAP"))
    return c.event(Kind.EXIT) if ends else None


_SILENT = frozenset(
    {Part.PLAIN, Part.NOP, Part.SLEEP, Part.COLLECTIVE, Part.CACHE_CONTROL, Part.BULK_PREFETCH, Part.BARRIER_PENDING}
)
_TABLE: dict[Part, Callable[[Context], Event | None]] = {
    Part.TMEM_LOAD: _tmem_load,
    Part.TMEM_STORE: _tmem_store,
    Part.TMEM_MMA: lambda c: c.event(Kind.TMEM_MMA),
    Part.TMEM_COPY: _simple(Kind.TMEM_COPY),
    Part.TMEM_SHIFT: _simple(Kind.TMEM_SHIFT),
    Part.TMEM_ALLOC: _simple(Kind.TMEM_ALLOC),
    Part.TMEM_DEALLOC: _simple(Kind.TMEM_DEALLOC),
    Part.TMEM_RELINQUISH: _simple(Kind.TMEM_RELINQUISH),
    Part.TMEM_COMMIT: lambda c: c.event(
        Kind.TMEM_COMMIT, barrier=c.place(0), mask=c.scalar(-1) if c.op.has("MULTICAST") else None
    ),
    Part.TMEM_STORE_FENCE: _simple(Kind.TMEM_WAIT_STORE),
    Part.PROXY_FENCE: _proxy_fence,
    Part.BARRIER_INIT: _on_barrier(Kind.BARRIER_INIT),
    Part.BARRIER_INVAL: _on_barrier(Kind.BARRIER_INVAL),
    Part.BARRIER_ARRIVE: _arrive,
    Part.BARRIER_EXPECT: _transaction(Kind.BARRIER_EXPECT),
    Part.BARRIER_COMPLETE: _transaction(Kind.BARRIER_COMPLETE),
    Part.BARRIER_WAIT: _wait,
    Part.COPY_ARRIVE: _on_barrier(Kind.COPY_ARRIVE),
    Part.BULK_LOAD: _bulk_load,
    Part.BULK_STORE: _bulk_store,
    Part.BULK_PEER: _bulk_peer,
    Part.BULK_COMMIT: _simple(Kind.BULK_COMMIT),
    Part.MAP_INVALIDATE: _map_invalidate,
    Part.MAP_PREFETCH: _at(Kind.MAP_PREFETCH),
    Part.ASYNC_STORE: _async(Kind.ASYNC_STORE),
    Part.ASYNC_REDUCE: _async(Kind.ASYNC_REDUCE),
    Part.BULK_FILL: _at(Kind.STORE),
    Part.COPY_ASYNC: lambda c: c.event(Kind.COPY_ASYNC, address=c.place(0), source=c.place(1)),
    Part.COPY_COMMIT: _simple(Kind.COPY_COMMIT),
    Part.CLC_CANCEL: lambda c: c.event(Kind.CLC_CANCEL, address=c.place(0), barrier=c.place(1)),
    Part.LOAD: _load,
    Part.STORE: _store,
    Part.ATOMIC: _atomic,
    Part.REDUCTION: _atomic,
    Part.FENCE: _fence,
    Part.ERROR_BARRIER: _simple(Kind.ERROR_BARRIER),
    Part.CACHE_INVALIDATE: _simple(Kind.CACHE_INVALIDATE),
    Part.CTA_SYNC: _named_barrier(Kind.CTA_SYNC),
    Part.CTA_ARRIVE: _named_barrier(Kind.CTA_ARRIVE),
    Part.CLUSTER_ARRIVE: _simple(Kind.CLUSTER_ARRIVE),
    Part.CLUSTER_WAIT: _simple(Kind.CLUSTER_WAIT),
    Part.WARP_SYNC: _simple(Kind.WARP_SYNC),
    Part.GRID_WAIT: _simple(Kind.GRID_WAIT),
    Part.GRID_LAUNCH: _simple(Kind.GRID_LAUNCH),
    Part.REGISTERS: _registers,
    Part.WGMMA_FENCE: _simple(Kind.WGMMA_FENCE),
    Part.WGMMA_MMA: _wgmma,
    Part.WGMMA_WAIT: lambda c: c.event(Kind.WGMMA_WAIT, number=c.scalar(-1)),
    Part.CONTROL: _control,
}
