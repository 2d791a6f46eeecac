"""Rewrites the shipped table of SASS operand shapes from `data/operands.txt`. Run it after a change of the grammar.

python tests/parse/update_sass_shapes.py
"""

from __future__ import annotations

from pathlib import Path

from verifier.parse.sass import SEED, Template, learn_operand, memo_fingerprint
from verifier.parse.shapes import ShapeMemo, write_memo

OPERANDS = Path(__file__).parent / "data" / "operands.txt"


def fresh_memo() -> ShapeMemo[Template]:
    """A memo of exactly the shapes of `operands.txt`, learned from Lark."""
    memo: ShapeMemo[Template] = ShapeMemo(Template, memo_fingerprint())
    for text in OPERANDS.read_text().splitlines():
        learn_operand(memo, text)
    return memo


if __name__ == "__main__":
    write_memo(SEED, memo_fingerprint(), fresh_memo().table)
