"""Evaluates registers for one warp, on demand over SSA, along the edges that the warp can take."""

from __future__ import annotations

from math import gcd

import msgspec

from verifier.model.program import Arg, Const, Reg, SReg, Sym
from verifier.model.ssa import SsaValue
from verifier.model.symbolic import compute
from verifier.model.values import SymbolTable, Value, add, scale


class ThreadContext(msgspec.Struct, frozen=True):
    """Which warp is looked at: special registers with a known value, per lane."""

    warp: int
    rank: int
    sregs: dict[str, Value]


class Evaluator:
    """Values of SSA values for one warp, given the control-flow edges it can take so far.

    `feasible` is shared with the caller, who adds edges and calls `forget` when a join got a new one.
    """

    def __init__(self, table: SymbolTable, context: ThreadContext, aligns: dict[str, int]) -> None:
        self.table = table
        self.context = context
        self.feasible: set[tuple[int, int]] = set()  # (source block, destination block)
        self.known: dict[int, Value] = {}  # SSA value id -> value established by other means
        self.aligns = aligns
        self._memo: dict[int, Value] = {}
        self._open: set[int] = set()
        self._lent: set[int] = set()  # phis whose own symbol was used before their value was known
        self._solved: dict[int, Value] = {}  # such phis, once their value is known

    def forget(self) -> None:
        self._memo.clear()
        self._solved.clear()

    def arg(self, arg: SsaValue | Arg) -> Value:
        """The value of an SSA value or of an immediate, symbol or special register."""
        if isinstance(arg, SsaValue):
            return self.value(arg)
        if isinstance(arg, Const):
            return Value(int(arg.value)) if isinstance(arg.value, int) else self.table.value("float", arg.value)
        if isinstance(arg, Sym):
            return self.table.value("sym", arg.space, arg.name, uniform=True, align=self.aligns.get(arg.name, 1))
        if isinstance(arg, SReg):
            known = self.context.sregs.get(arg.name)
            return known if known is not None else self.table.value("sreg", arg.name, uniform=_uniform(arg.name))
        assert isinstance(arg, Reg)
        return self.table.value("reg", arg.name)

    def value(self, root: SsaValue) -> Value:
        """Evaluate on an explicit stack: chains of unrolled additions are thousands long."""
        memo = self._memo
        stack = [root]
        while stack:
            value = stack[-1]
            if value.id in memo:
                stack.pop()
                continue
            missing = [n for n in self._needs(value) if n.id not in memo and n.id not in self._open]
            if missing:
                self._open.add(value.id)
                stack += missing
                continue
            result = self._compute(value)
            self._open.discard(value.id)
            if value.id in self._lent and result != self._symbol(value):
                # Values around the cycle were computed with the phi's symbol: compute them again with its value.
                self._solved[value.id] = result
                self._lent.discard(value.id)
                memo.clear()
                self._open.clear()
                stack = [root]
                continue
            memo[value.id] = result
            stack.pop()
        return memo[root.id]

    def _needs(self, value: SsaValue) -> list[SsaValue]:
        if value.id in self.known or value.id in self._solved:
            return []
        if value.incoming is not None:
            return [v for block, v in value.incoming.items() if (block, value.block) in self.feasible]
        needs = [arg for arg in value.args if isinstance(arg, SsaValue)]
        needs += [predicate for predicate, _ in value.guards]
        if value.old is not None:
            needs.append(value.old)
        return needs

    def _known(self, value: SsaValue) -> Value:
        """The value if computed; while a cycle is being evaluated, the symbol of the value itself."""
        known = self._memo.get(value.id)
        if known is not None:
            return known
        self._lent.add(value.id)
        return self._symbol(value)

    def _symbol(self, value: SsaValue) -> Value:
        kind = "phi" if value.incoming is not None else "def" if value.assign is not None else "undef"
        return self.table.value(kind, value.id)

    def _compute(self, value: SsaValue) -> Value:
        if value.id in self.known:
            return self.known[value.id]
        if value.id in self._solved:
            return self._solved[value.id]
        if value.incoming is not None:
            return self._merge(value)
        if value.assign is None:
            return self._symbol(value)
        if not value.guards:
            return self._apply(value)
        return self._guarded(value)

    def _merge(self, phi: SsaValue) -> Value:
        """The one value that comes in, `start + stride * n` for a counted cycle, or a symbol."""
        assert phi.incoming is not None
        own = self._symbol(phi)
        symbol = own.terms[0][0]
        start: Value | None = None
        strides: list[int] = []
        for block, incoming in phi.incoming.items():
            if (block, phi.block) not in self.feasible:
                continue
            value = self._known(incoming)
            if value == own or _is_undefined(value):
                continue
            step = add(value, own, -1)
            if (
                all(s is not symbol for s, _ in step.terms)
                and isinstance(step.lanes, int)
                and dict(value.terms).get(symbol) == 1
            ):
                strides += [step.lanes, *(coef for _, coef in step.terms)]
            elif start is not None and start != value:
                return own
            else:
                start = value
        if start is None:
            return own
        stride = gcd(*strides) if strides else 0
        if not stride:
            return start
        if not start.terms:  # a plain counter: its symbol says as much, and wraps are recognized by it
            return own
        return add(start, scale(self.table.value("iter", phi.id, uniform=start.uniform), stride))

    def _guarded(self, value: SsaValue) -> Value:
        taken = [self._truth(self._known(p), negated) for p, negated in value.guards]
        assert value.old is not None
        if all(t is True for t in taken):
            return self._apply(value)
        old = self._known(value.old)
        if any(t is False for t in taken):
            return old
        new = self._apply(value)
        if new == old or _is_undefined(old):
            return new
        return self._chosen(value, new, old)

    def _chosen(self, value: SsaValue, new: Value, old: Value) -> Value:
        """`guard ? new : old` of two numbers is the select it is; anything else is a fresh symbol."""
        if len(value.guards) != 1 or new.constant is None or old.constant is None or value.assign is None:
            return self._symbol(value)
        predicate, negated = value.guards[0]
        arms = [old, new] if negated else [new, old]
        return compute(self.table, "selp", value.assign.width, [*arms, self._known(predicate)]) or self._symbol(value)

    @staticmethod
    def _truth(value: Value, negated: bool) -> bool | None:
        constant = value.constant
        return None if constant is None else bool(constant & 1) != negated

    def _apply(self, value: SsaValue) -> Value:
        assign = value.assign
        assert assign is not None
        args = [self._known(a) if isinstance(a, SsaValue) else self.arg(a) for a in value.args]
        if assign.op == "elect":
            return self.table.value("elect", value.id)
        result = compute(self.table, assign.op, assign.width, args)
        return self._symbol(value) if result is None else result


def _is_undefined(value: Value) -> bool:
    return len(value.terms) == 1 and value.terms[0][0].kind == "undef"


_LANE_SREGS = frozenset({"tid.x", "tid.y", "tid.z", "laneid", "lanemask_eq", "lanemask_lt", "lanemask_le"})


def _uniform(sreg: str) -> bool:
    return sreg not in _LANE_SREGS
