"""What is known about statement shapes: templates from a memo, or from Lark when a shape is new.

A shape is the kind of text it belongs to, the kinds of its leaves, and everything between them. Equal shapes parse
alike, because to the grammar two leaves of one kind are the same token. Operands have shapes one by one, so that
a few dozen of them make up all instructions; where a name and a number may take each other's place, one shape
without kinds serves both.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
    moved,
    takes_any_operand,
)
from verifier.parse.ptx_text import Rejected
from verifier.parse.shapes import ShapeMemo, fingerprint, grammar_text
from verifier.parse.source import Span

SEED = Path(__file__).with_name("ptx_shapes.json")
"""Shapes that ship with the package."""

_STARTS = {"o": "body", "c": "body", "b": "body", "m": "file", "p": "param", "h": "header_directive"}
"""Kinds of text: an operand, all operands of a call, a directive of a body, one of a module, a parameter, a directive
of a function header."""

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

_FRAMES = {"o": ("x _, ", ";"), "c": ("call ", ";")}
"""What makes a statement of operands. An operand is not the first one, where `.5` would belong to the opcode."""

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
        parts = ptx_text.LEAF.split(text)
        leaves = parts[1::2]
        build = self._whole(kind, parts)
        if build is None:
            raise Rejected
        operands = [_NO_OPERAND if leaf[0] in '"=' else self.objects[leaf] for leaf in leaves]
        return build(leaves, operands, span)

    def operands(self, text: str, call: bool) -> Build | None:
        """How to build the operands in `text`; None when only Lark can. Raises `Rejected`."""
        parts = ptx_text.LEAF.split(text)
        if call:
            return self._whole("c", parts)
        shape = self._shape("i", parts)
        if shape in self._built:
            return self._built[shape]
        template = None if "?" in shape.partition("\0")[0] else self._list(text)
        build = None if template is None else compile_template(template, len(parts) // 2)
        if build is not None and takes_any_operand(template):
            self.common["\0".join(parts[::2])] = build
        else:
            self._built[shape] = build
        return build

    def trim(self) -> None:
        """Forget leaves when there are many: they are remembered for speed alone."""
        if len(self.objects) > MAX_LEAVES:
            self.objects.clear()
            self._kinds.clear()

    def _shape(self, kind: str, parts: list[str]) -> str:
        return f"{kind}{''.join(map(self._kinds.__getitem__, parts[1::2]))}\0" + "\0".join(parts[::2])

    def _whole(self, kind: str, parts: list[str]) -> Build | None:
        shape = self._shape(kind, parts)
        if shape not in self._built:
            template = self._template(shape)
            self._built[shape] = None if template is None else compile_template(template, len(parts) // 2)
        return self._built[shape]

    def _list(self, text: str) -> Template | None:
        """Template of operands separated by commas, each of which has a shape of its own."""
        items: list[object] = ["t"]
        leaves = 0
        for operand in ptx_text.split_operands(text):
            parts = ptx_text.LEAF.split(operand)
            template = self._template("o\0" + "\0".join(parts[::2]), or_learn=False)
            template = template or self._template(self._shape("o", parts))
            if template is None:
                return None
            items.append(moved(template, leaves))
            leaves += len(parts) // 2
        return items

    def _template(self, shape: str, *, or_learn: bool = True) -> Template | None:
        kinds, _, between = shape.partition("\0")
        template = self.memo.table.get(shape)
        if template is not None:
            try:
                compile_template(template, between.count("\0"))
                return template
            except BadTemplate:
                del self.memo.table[shape]
        if not or_learn or "?" in kinds:
            return None
        template = learn(shape)
        if template is None:
            return None
        any_leaf = kinds[0] == "o" and takes_any_operand(template)
        return self.memo.learn(f"o\0{between}" if any_leaf else shape, template)


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
    holes = _holes(text, len(before))
    try:
        result = engine().learn(before + text + after, _STARTS[kind], holes)
    except ParseError:
        raise Rejected from None
    except Unlearnable:
        return None
    if kind in _FRAMES:
        assert isinstance(result, tuple)
        result = result[0].operands if kind == "c" else result[0].operands[1]
    template = encode(result)
    assert template is not None
    return template if sorted(holes_of(template)) == list(range(len(holes))) else None


def _holes(text: str, shift: int) -> dict[int, tuple[int, str]]:
    found = enumerate(ptx_text.LEAF.finditer(text))
    return {match.start() + shift: (index, match[0]) for index, match in found}


@cache
def default_shapes() -> PtxShapes:
    """The shapes that this process shares, starting from those that ship with the package."""
    return PtxShapes(SEED)
