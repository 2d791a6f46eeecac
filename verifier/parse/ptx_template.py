"""Templates: what Lark made of one text of a shape, as data from which any text of that shape is rebuilt.

A template is JSON: null, ["k", constant], [role, n] for the n-th leaf, ["t", items...] for a tuple, ["@"] for
the span, or [class, fields...] for a syntax tree. `compile_template` turns one into a function of the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from verifier.parse import ptx_ast
from verifier.parse.source import Span

FORMAT = "ptx-template-1"

Template: TypeAlias = list[Any]
"""A nested list as described above; `Any` because JSON nests."""

Build: TypeAlias = Callable[[Sequence[str], Sequence[ptx_ast.Operand], Span | None], Any]

_CLASSES = {
    struct.__name__: struct
    for struct in (
        ptx_ast.Address,
        ptx_ast.Args,
        ptx_ast.BranchTargets,
        ptx_ast.Directive,
        ptx_ast.Element,
        ptx_ast.FileDecl,
        ptx_ast.Imm,
        ptx_ast.Loc,
        ptx_ast.Name,
        ptx_ast.Not,
        ptx_ast.Pair,
        ptx_ast.Param,
        ptx_ast.Pointer,
        ptx_ast.RegDecl,
        ptx_ast.Sink,
        ptx_ast.Sum,
        ptx_ast.VarDecl,
        ptx_ast.Vector,
    )
}
_SINK = ptx_ast.Sink()


class Hole(msgspec.Struct, frozen=True, gc=False):
    """The n-th leaf of a statement: as an operand ("o"), integer ("x"), text ("s"), text of a quoted string ("q") or
    of an initializer ("a")."""

    role: str
    index: int


class BadTemplate(ValueError):
    """A stored template that makes no sense: it counts as not stored."""


def encode(value: object) -> Template | None:
    """Data for a syntax tree with holes."""
    if value is None:
        return None
    if isinstance(value, Hole):
        return [value.role, value.index]
    if isinstance(value, (str, int, float)):
        return ["k", value]
    if isinstance(value, tuple):
        return ["t", *(encode(item) for item in value)]
    if isinstance(value, Span):
        return ["@"]
    if isinstance(value, msgspec.Struct) and type(value).__name__ in _CLASSES:
        return [type(value).__name__, *(encode(getattr(value, field)) for field in value.__struct_fields__)]
    raise TypeError(f"no template for {type(value).__name__}")


def holes_of(template: object) -> list[int]:
    """Leaf numbers in a template, in order of appearance."""
    if not isinstance(template, list) or not template:
        return []
    if template[0] in _LEAF_BUILDERS:
        return [template[1]]
    return [index for item in template[1:] for index in holes_of(item)]


def moved(template: Template, by: int) -> Template:
    """The same template for leaves that stand `by` places further on."""
    if by == 0 or template[:1] == ["k"]:
        return template
    if template and template[0] in _LEAF_BUILDERS:
        return [template[0], template[1] + by]
    return [moved(item, by) if isinstance(item, list) else item for item in template]


def takes_any_operand(template: object) -> bool:
    """True when a name and a number may stand in every place that a leaf takes."""
    if not isinstance(template, list):
        return True
    tag, *rest = template
    if tag == "Address" and rest[1] != ["k", 0]:
        return False
    return tag in ("o", "k", "Sink") or (tag in ("t", "Vector", "Address") and all(map(takes_any_operand, rest)))


def compile_template(template: object, leaves: int) -> Build:
    """A function that rebuilds what `template` describes. Raises `BadTemplate`."""
    if template is None:
        return lambda texts, objects, span: None
    if not isinstance(template, list) or not template or not isinstance(template[0], str):
        raise BadTemplate
    tag, *rest = template
    if tag in _LEAF_BUILDERS:
        if len(rest) != 1 or type(rest[0]) is not int or not 0 <= rest[0] < leaves:
            raise BadTemplate
        return _LEAF_BUILDERS[tag](rest[0])
    if tag == "k":
        return _constant(rest)
    if tag == "@":
        return lambda texts, objects, span: span
    if tag == "t":
        return _tuple(rest, leaves)
    return _struct(tag, rest, leaves)


def _operand(index: int) -> Build:
    return lambda texts, objects, span: objects[index]


def _text(index: int) -> Build:
    return lambda texts, objects, span: texts[index]


def _string(index: int) -> Build:
    return lambda texts, objects, span: texts[index][1:-1]


def _initializer(index: int) -> Build:
    return lambda texts, objects, span: "".join(texts[index][1:].split())


def _integer(index: int) -> Build:
    return lambda texts, objects, span: objects[index].value  # type: ignore[union-attr]


_LEAF_BUILDERS: dict[str, Callable[[int], Build]] = {
    "o": _operand,
    "s": _text,
    "q": _string,
    "a": _initializer,
    "x": _integer,
}


def _constant(rest: list[Any]) -> Build:
    if len(rest) != 1 or not isinstance(rest[0], (str, int, float)):
        raise BadTemplate
    value = rest[0]
    return lambda texts, objects, span: value


def _tuple(items: list[Any], leaves: int) -> Build:
    if not items:
        return lambda texts, objects, span: ()
    if all(isinstance(item, list) and item[:1] == ["o"] for item in items):
        numbers = [item[1] for item in items if len(item) == 2]
        first = numbers[0] if numbers else -1
        if numbers == list(range(first, first + len(items))) and 0 <= first <= leaves - len(items):
            stop = first + len(items)
            if first == 0 and stop == leaves:
                return lambda texts, objects, span: tuple(objects)
            return lambda texts, objects, span: tuple(objects[first:stop])
    built = [compile_template(item, leaves) for item in items]
    if len(built) == 1:
        only = built[0]
        return lambda texts, objects, span: (only(texts, objects, span),)
    if len(built) == 2:
        one, two = built
        return lambda texts, objects, span: (one(texts, objects, span), two(texts, objects, span))
    return lambda texts, objects, span: tuple([build(texts, objects, span) for build in built])


def _struct(tag: str, rest: list[Any], leaves: int) -> Build:
    if tag not in _CLASSES or len(rest) != len(_CLASSES[tag].__struct_fields__):
        raise BadTemplate
    if tag == "Sink":
        return lambda texts, objects, span: _SINK
    make: Callable[..., object] = _CLASSES[tag]
    fields = [compile_template(item, leaves) for item in rest]
    if len(fields) == 1:
        only = fields[0]
        return lambda texts, objects, span: make(only(texts, objects, span))
    if len(fields) == 3:
        a, b, c = fields
        return lambda texts, objects, span: make(
            a(texts, objects, span), b(texts, objects, span), c(texts, objects, span)
        )
    return lambda texts, objects, span: make(*[field(texts, objects, span) for field in fields])
