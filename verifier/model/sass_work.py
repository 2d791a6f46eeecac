"""What the rules of the SASS lowering share: one instruction at work, and the simplest forms of assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verifier.isa.sass_ops import SassOp
from verifier.model.program import Arg, Assign, Const
from verifier.model.sass_operands import ZERO, Machine, Operands, arg_of, register_range
from verifier.parse import sass_ast as ast

WORD = Const(32)


class Work:
    """One instruction: its opcode, split operands and the machine."""

    __slots__ = ("machine", "op", "results", "sources")

    def __init__(self, op: SassOp, operands: Operands, machine: Machine) -> None:
        self.op = op
        self.results = operands.results
        self.sources = operands.sources
        self.machine = machine

    def dst(self, place: int = 0) -> str | None:
        """Name of result register `place`, None when it is a constant register or missing."""
        operand = self.results[place] if place < len(self.results) else None
        names = register_range(operand.name, 1) if isinstance(operand, ast.Register) else ()
        return names[0] if names else None

    def args(self, first: int, last: int) -> tuple[Arg, ...] | None:
        """Plain arguments of sources first..last-1, or None when one of them is not plain."""
        args = [arg_of(operand, self.machine) for operand in self.sources[first:last]]
        return None if len(args) < last - first or None in args else tuple(a for a in args if a is not None)

    def only(self, *words: str) -> bool:
        """Whether the opcode carries no modifier beside these."""
        return all(word in words for word in self.op.words)


Rule = Callable[[Work], "list[Assign] | None"]


def one(work: Work, operation: str, args: Sequence[Arg] | None, width: int = 32) -> list[Assign] | None:
    dst = work.dst()
    return None if args is None or dst is None else [Assign(dst, operation, width, tuple(args))]


def total(work: Work, terms: Sequence[tuple[Arg, int] | None]) -> list[Assign] | None:
    """Addition of signed arguments, by the simplest operation that does it."""
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    real = [term for term in known if term[0] != ZERO]
    signs = [sign for _, sign in real]
    if not real:
        return one(work, "mov", (ZERO,))
    if signs in ([1], [-1]):
        return one(work, "mov" if signs == [1] else "neg", (real[0][0],))
    if signs in ([1, 1], [1, -1]):
        return one(work, "add" if signs == [1, 1] else "sub", (real[0][0], real[1][0]))
    return one(work, "sum", tuple(part for arg, sign in real for part in (arg, Const(sign))))


def names_predicate(operand: ast.Operand) -> bool:
    return isinstance(operand, ast.Register) and operand.name.startswith(("P", "UP"))


def plain(operation: str, count: int, *words: str) -> Rule:
    def rule(work: Work) -> list[Assign] | None:
        return one(work, operation, work.args(0, count)) if work.only(*words) else None

    return rule
