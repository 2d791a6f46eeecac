"""Grammar callbacks for operands and constant expressions: one method a rule, each gets its children."""

from __future__ import annotations

from typing import Any

from lark import Token

from verifier.parse import ptx_literals as literals
from verifier.parse.ptx_ast import Address, Args, Element, Imm, Name, Not, Operand, Pair, Sink, Sum, Vector
from verifier.parse.ptx_leaves import Leaves, Unlearnable, start_of
from verifier.parse.ptx_template import Hole

Children = list[Any]

SINK = Sink()


class Operands(Leaves):
    """Names, literals, vectors, addresses; constant expressions are folded."""

    def name(self, children: Children) -> Name:
        if len(children) == 1:
            return self.name_of(children[0])
        self.not_for_holes()
        return Name(children[0].value + children[1].value)

    def sink(self, children: Children) -> Sink:
        return SINK

    def negation(self, children: Children) -> Not:
        return Not(self.name_of(children[1]))

    def pair(self, children: Children) -> Pair:
        first, second = (SINK if token.type == "SINK" else self.name_of(token) for token in children)
        return Pair(first, second)

    def sum(self, children: Children) -> Sum:
        return Sum(self.name_of(children[0]), children[1])

    def element(self, children: Children) -> Element:
        return Element(self.name_of(children[0]), self.as_int(children[1], start_of(children[0])))

    def element_at(self, children: Children) -> Element:
        return Element(self.name_of(children[0]), children[1])

    def vector(self, children: Children) -> Vector:
        return Vector(tuple(children))

    def address(self, children: Children) -> Address:
        base, *extra = children
        parts: tuple[Operand, ...] = tuple(extra)
        return Address(base.base, base.offset, parts) if isinstance(base, Sum) else Address(base, 0, parts)

    def address_sum(self, children: Children) -> Sum:
        return self.sum(children)

    def args(self, children: Children) -> Args:
        return Args(tuple(children))

    def offset(self, children: Children) -> int:
        sign, first = children[0], children[1]
        if len(children) == 2 and sign == "+":
            return self.as_int(first, start_of(sign))
        return self.as_int(self._fold([Imm(0, "0"), *children], start_of(sign)), start_of(sign))

    def literal(self, children: Children) -> Imm:
        number: Imm = children[0]
        return number

    def number(self, children: Children) -> Imm:
        token: Token = children[0]
        return self.number_at(start_of(token), token.value)

    def negative(self, children: Children) -> Imm:
        sign, digits = children
        text = sign.value + digits.value
        return self.number_at(start_of(digits) - 1, text)

    def expression(self, children: Children) -> Imm:
        if len(children) == 1:
            only: Imm = children[0]
            return only
        return self._fold(children, 0)

    def parenthesis(self, children: Children) -> Imm:
        inner: Imm = children[0]
        self._known(inner)
        return Imm(inner.value, f"({inner.text})")

    def unary(self, children: Children) -> Imm:
        operator, value = children
        self._known(value)
        try:
            return Imm(literals.unary(operator.value, value.value), operator.value + value.text)
        except literals.LiteralError as error:
            self.fail(start_of(operator), str(error))

    def cast(self, children: Children) -> Imm:
        kind, value = children
        self._known(value)
        try:
            return Imm(literals.cast(kind.value, value.value), f"({kind.value}){value.text}")
        except literals.LiteralError as error:
            self.fail(start_of(kind), str(error))

    def _fold(self, items: Children, near: int) -> Imm:
        flat: list[Imm | str] = []
        for item in items:
            if isinstance(item, Token):
                near = near or start_of(item)
                flat.append(item.value)
            else:
                self._known(item)
                flat.append(item)
        try:
            value = literals.fold(flat)
        except (literals.LiteralError, OverflowError) as error:
            self.fail(near, str(error))
        return Imm(value, "".join(item if isinstance(item, str) else item.text for item in flat))

    def _known(self, value: Imm) -> None:
        if isinstance(value, Hole):
            raise Unlearnable
