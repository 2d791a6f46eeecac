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
from verifier.parse.ptx_ast import Sink
from verifier.parse.ptx_template import (
    FORMAT,
    BadTemplate,
    Build,
    Template,
    compile_template,
    encode,
    holes_of,
    takes_any_operand,
)
from verifier.parse.ptx_text import Rejected
from verifier.parse.shapes import ShapeMemo, fingerprint, grammar_text
from verifier.parse.source import Span

if TYPE_CHECKING:
    pass

SEED = Path(__file__).with_name("ptx_shapes.json")
"""Shapes that ship with the package."""

_STARTS = {"i": "body", "c": "body", "b": "body", "m": "file", "w": "file", "p": "param", "h": "header_directive"}
"""Kinds of text: operands, operands of a call, body directive, module directive, the same kept whole, parameter,
directive of a function header."""

_SAMPLES = {
    "N": "%r1",
    "D": "%v.x",
    "I": "7",
    "M": "-7",
    "F": "1.5",
    "G": "-1.5",
    "S": '"s"',
    "W": "WARP_SZ",
    "A": "= 7",
}
"""A leaf of each kind."""

_FRAMES = {"i": ("o ", ";"), "c": ("call ", ";")}
"""What makes a statement of operands."""


MAX_LEAVES = 500_000
"""Most leaves that are kept between files."""


_NO_OPERAND = Sink()
"""Stands in for strings and initializers, which templates use as text only."""


class PtxShapes:
    """Templates by shape, compiled when first used. `store` is a file that keeps what was learned."""

    def __init__(self, seed: Path | None = None, store: Path | None = None) -> None:
        print_of = fingerprint(grammar_text("ptx"), FORMAT)
        self.memo: ShapeMemo[Template] = ShapeMemo(list, print_of, seed=seed, store=store)
        self.common: dict[str, Build] = {}  # operands by what is between their leaves, where any leaf will do
        self.objects = ptx_text.Objects()
        self._kinds = ptx_text.Kinds()
        self._built: dict[str, Build | None] = {}

    def part(self, kind: str, text: str, span: Span | None = None) -> object:
        """What `text` says. Raises `Rejected` when Lark has to see more than this text."""
        parts = [text] if kind == "w" else ptx_text.LEAF.split(text)
        leaves = parts[1::2]
        build = self._find(kind, parts)
        if build is None:
            raise Rejected
        operands = [_NO_OPERAND if leaf[0] in '"=' else self.objects[leaf] for leaf in leaves]
        return build(leaves, operands, span)

    def operands(self, text: str, call: bool) -> Build | None:
        """How to build the operands in `text`; None when only Lark can. Raises `Rejected`."""
        parts = ptx_text.LEAF.split(text)
        if call:
            return self._find("c", parts)
        between = "\0".join(parts[::2])
        build = self._stored("i\0" + between, len(parts) // 2) or self._find("i", parts)
        if build is not None and "i\0" + between in self.memo.table:
            self.common[between] = build
        return build

    def trim(self) -> None:
        """Forget leaves when there are many: they are remembered for speed alone."""
        if len(self.objects) > MAX_LEAVES:
            self.objects.clear()
            self._kinds.clear()

    def _find(self, kind: str, parts: list[str]) -> Build | None:
        shape = f"{kind}{''.join(map(self._kinds.__getitem__, parts[1::2]))}\0" + "\0".join(parts[::2])
        if shape in self._built:
            return self._built[shape]
        build = self._stored(shape, len(parts) // 2)
        if build is None and "?" not in shape.split("\0", 1)[0]:
            build = self._learn(kind, shape, parts)
        self._built[shape] = build
        return build

    def _stored(self, shape: str, count: int) -> Build | None:
        template = self.memo.table.get(shape)
        if template is None:
            return None
        try:
            return compile_template(template, count)
        except BadTemplate:
            del self.memo.table[shape]
            return None

    def _learn(self, kind: str, shape: str, parts: list[str]) -> Build | None:
        template = learn(shape)
        if template is None:
            return None
        if kind == "i" and takes_any_operand(template):
            shape = "i\0" + "\0".join(parts[::2])
        return compile_template(self.memo.learn(shape, template), len(parts) // 2)


def sample(shape: str) -> str:
    """The shortest text of a shape."""
    head, *between = shape.split("\0")
    leaves = [_SAMPLES[kind] for kind in head[1:]] or [_SAMPLES["N"]] * (len(between) - 1)
    return between[0] + "".join(leaf + fixed for leaf, fixed in zip(leaves, between[1:], strict=True))


def learn(shape: str) -> Template | None:
    """What Lark makes of a text of this shape; None when that is not a function of its leaves. Raises `Rejected`."""
    from verifier.parse.ptx_lark import engine
    from verifier.parse.ptx_leaves import Unlearnable

    if "\ufeff" in shape:  # a byte-order mark is nothing at the start of a text, and that is what Lark sees here
        raise Rejected
    kind, text = shape[0], sample(shape)
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
    return template if sorted(holes_of(template)) == list(range(len(holes or ()))) else None


def _holes(text: str, shift: int) -> dict[int, tuple[int, str]]:
    found = enumerate(ptx_text.LEAF.finditer(text))
    return {match.start() + shift: (index, match[0]) for index, match in found}


@cache
def default_shapes() -> PtxShapes:
    """The shapes that this process shares, starting from those that ship with the package."""
    return PtxShapes(SEED)
