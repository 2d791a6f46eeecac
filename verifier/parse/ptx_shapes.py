"""What is known about statement shapes: templates from a memo, or from Lark when a shape is new.

A shape is the kind of text it belongs to, the kinds of its leaves, and everything between them. Equal shapes parse
alike, because to the grammar two leaves of one kind are the same token.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from verifier.errors import ParseError
from verifier.parse import ptx_text
from verifier.parse.ptx_ast import Operand
from verifier.parse.ptx_template import FORMAT, BadTemplate, Build, Template, compile_template, encode, holes_of
from verifier.parse.shapes import ShapeMemo, fingerprint, grammar_text
from verifier.parse.source import Span

if TYPE_CHECKING:
    pass

SEED = Path(__file__).with_name("ptx_shapes.json")
"""Shapes that ship with the package."""

_STARTS = {"i": "body", "c": "body", "b": "body", "m": "file", "w": "file", "p": "param", "h": "header_directive"}
"""Kinds of text: operands, operands of a call, body directive, module directive, the same kept whole, parameter,
directive of a function header."""

_FRAMES = {"i": ("o ", ";"), "c": ("call ", ";")}
"""What makes a statement of operands."""


class Rejected(Exception):
    """Lark does not accept this text, or not on its own."""


class PtxShapes:
    """Templates by shape, compiled when first used. `store` is a file that keeps what was learned."""

    def __init__(self, seed: Path | None = None, store: Path | None = None) -> None:
        print_of = fingerprint(grammar_text("ptx"), FORMAT)
        self.memo: ShapeMemo[Template] = ShapeMemo(list, print_of, seed=seed, store=store)
        self.built: dict[str, dict[str, Build | None]] = {kind: {} for kind in _STARTS}
        self.objects = ptx_text.Objects()
        self.kinds = ptx_text.Kinds()

    def leaves(self, text: str) -> tuple[str, list[str], list[Operand]]:
        """Shape of a text without its kind, its leaves, and these as operands."""
        parts = ptx_text.LEAF.split(text)
        leaves = parts[1::2]
        kinds, objects = self.kinds, self.objects
        shape = "".join([kinds[leaf] for leaf in leaves]) + "\0" + "\0".join(parts[::2])
        return shape, leaves, [objects[leaf] for leaf in leaves]

    def part(self, kind: str, text: str, span: Span | None = None) -> object:
        """What `text` says. Raises `Rejected` when Lark has to see more than this text."""
        shape, leaves, objects = ("\0" + text, [], []) if kind == "w" else self.leaves(text)
        build = self.find(kind, shape, text)
        if build is None:
            raise Rejected
        return build(leaves, objects, span)

    def find(self, kind: str, shape: str, text: str) -> Build | None:
        """How to build a text of this shape; None when only Lark can. Raises `Rejected`."""
        built = self.built[kind]
        if shape not in built:
            built[shape] = self._find(kind, shape, text)
        return built[shape]

    def _find(self, kind: str, shape: str, text: str) -> Build | None:
        count = len(shape.split("\0", 1)[0])
        stored = self.memo.table.get(kind + shape)
        if stored is not None:
            try:
                return compile_template(stored, count)
            except BadTemplate:
                del self.memo.table[kind + shape]
        if "?" in shape[:count]:
            return None
        template = self._learn(kind, text, count)
        return None if template is None else compile_template(self.memo.learn(kind + shape, template), count)

    def _learn(self, kind: str, text: str, count: int) -> Template | None:
        from verifier.parse.ptx_lark import engine
        from verifier.parse.ptx_leaves import Unlearnable

        before, after = _FRAMES.get(kind, ("", ""))
        holes = None if kind == "w" else _holes(text, len(before))
        try:
            result = engine().learn(before + text + after, _STARTS[kind], holes)
        except ParseError:
            raise Rejected from None
        except Unlearnable:
            return None
        if kind in _FRAMES:
            assert isinstance(result, tuple)
            result = result[0].operands
        template = encode(result)
        assert template is not None
        return template if sorted(holes_of(template)) == list(range(count)) else None


def _holes(text: str, shift: int) -> dict[int, tuple[int, str]]:
    found = enumerate(ptx_text.LEAF.finditer(text))
    return {match.start() + shift: (index, match[0]) for index, match in found}


@cache
def default_shapes() -> PtxShapes:
    """The shapes that this process shares, starting from those that ship with the package."""
    return PtxShapes(SEED)
