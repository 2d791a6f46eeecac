"""Rewrites the shipped table of PTX statement shapes. Run it after each change of the grammar.

python -m tests.parse.update_ptx_shapes [PTX...]

Lark is asked anew about every shape in the table, and about those of the test texts and the given files. The table
holds shapes, no text of the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.parse.ptx_texts import IN_BODY, IN_MODULE, STORED, body
from verifier.parse.ptx import parse_ptx
from verifier.parse.ptx_shapes import SEED, PtxShapes, learn
from verifier.parse.ptx_template import Template
from verifier.parse.shapes import write_memo
from verifier.parse.source import Source


def stored_shapes() -> list[str]:
    """Shapes of the shipped table, whatever grammar it was made for."""
    return list(msgspec.json.decode(SEED.read_bytes())["shapes"])


def relearned(shapes: Iterable[str]) -> dict[str, Template]:
    """What Lark makes of these shapes today; a shape that the grammar no longer accepts raises `Rejected`."""
    learned = ((shape, learn(shape)) for shape in shapes)
    return {shape: template for shape, template in learned if template is not None}


def main(files: list[str]) -> None:
    shapes = PtxShapes()
    for text in (*map(body, IN_BODY.values()), *IN_MODULE.values()):
        parse_ptx(Source("construct", text), shapes)
    for path in (*STORED, *map(Path, files)):
        parse_ptx(Source(str(path), path.read_text(encoding="utf-8", errors="replace")), shapes)
    table = relearned({*stored_shapes(), *shapes.memo.table})
    write_memo(SEED, shapes.memo.fingerprint, table)
    SEED.chmod(0o644)


if __name__ == "__main__":
    main(sys.argv[1:])
