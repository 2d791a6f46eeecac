"""The common form of PTX and SASS: one function as a list of instructions with resolved registers.

Both front ends (`lower_ptx`, `lower_sass`) produce this; CFG, SSA, values, roles and streams know only this.
An instruction carries what it computes (`assigns`), what it reads (`uses`), where control goes (`flow`) and
the statement it came from (`origin`), from which `model.events` lifts its synchronizing meaning.
"""

from __future__ import annotations

import enum

import msgspec

from verifier.findings import Location


class Reg(msgspec.Struct, frozen=True, gc=False):
    """A register. Names are unique in a function: a register of a nested scope gets a `#n` suffix."""

    name: str


class Const(msgspec.Struct, frozen=True, gc=False):
    """An integer, or a float whose value no address can depend on."""

    value: int | float


class Sym(msgspec.Struct, frozen=True, gc=False):
    """The address of a named object, or the name of a kernel parameter; `space` is its state space."""

    name: str
    space: str  # "shared", "global", "const", "local", "param", "code"


class SReg(msgspec.Struct, frozen=True, gc=False):
    """A special register, by its PTX name without `%`: `tid.x`, `cluster_ctarank`, `laneid`."""

    name: str


Arg = Reg | Const | Sym | SReg


class Assign(msgspec.Struct, frozen=True):
    """`dst := op(args)` on `width` bits. `op` is one of `isa.compute.OPERATIONS`, or "opaque"."""

    dst: str
    op: str
    width: int
    args: tuple[Arg, ...] = ()


class AddressExpr(msgspec.Struct, frozen=True):
    """The sum of `terms` and `offset` bytes."""

    terms: tuple[Arg, ...]
    offset: int = 0


class FlowKind(enum.Enum):
    NEXT = "next"  # falls through
    BRANCH = "branch"  # to targets[0]; falls through too when guarded
    INDEXED = "indexed"  # to one of targets
    EXIT = "exit"  # ends the thread; falls through when guarded
    CALL = "call"  # to a function that is not followed; then falls through
    TRAP = "trap"  # does not return


class Flow(msgspec.Struct, frozen=True):
    """Where control goes. An INDEXED branch with a selector goes to `targets[i]` where that holds `keys[i]`. A CALL
    names its `callee` when that may synchronize or touch memory that others see."""

    kind: FlowKind
    targets: tuple[int, ...] = ()  # instruction indices
    selector: Reg | None = None
    keys: tuple[int, ...] = ()
    callee: str = ""


NEXT = Flow(FlowKind.NEXT)
UNKNOWN_CALLEE = "an unknown function"  # of an indirect call


class Guard(msgspec.Struct, frozen=True, gc=False):
    """Predicate register under which an instruction executes, per lane."""

    reg: str
    negated: bool


class Instr(msgspec.Struct, frozen=True):
    """One instruction. `opcode` is the full text with modifiers; `origin` is the parsed statement."""

    index: int
    opcode: str
    guards: tuple[Guard, ...]  # all must hold; PTX has at most one
    assigns: tuple[Assign, ...]
    uses: tuple[str, ...]  # every register read, guards included
    flow: Flow
    location: Location
    origin: object


class ObjectDecl(msgspec.Struct, frozen=True):
    """A named object: a variable or a kernel parameter. `size` is in bytes, None when declared open (`[]`)."""

    name: str
    space: str
    size: int | None
    align: int


class Function(msgspec.Struct, frozen=True):
    """One kernel entry (or device function) in the common form."""

    name: str
    isa: str  # "ptx" or "sass"
    arch: str  # "sm_100a"
    instrs: tuple[Instr, ...]
    max_block: tuple[int, int, int] | None  # .maxntid: an upper bound
    block: tuple[int, int, int] | None  # .reqntid: exact
    cluster: tuple[int, int, int] | None  # .reqnctapercluster
    objects: tuple[ObjectDecl, ...] = ()
