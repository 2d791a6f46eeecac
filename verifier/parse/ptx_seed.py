"""Makes `ptx_shapes.json`, the statement shapes that ship with the package.

`python -m verifier.parse.ptx_seed [PTX...]` asks Lark anew about every shape in the table and about those of the
given files. Run it after each change of the grammar; the table holds shapes only, no text of the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from verifier.parse.ptx import parse_ptx
from verifier.parse.ptx_shapes import SEED, PtxShapes, learn
from verifier.parse.ptx_template import Template
from verifier.parse.shapes import write_memo
from verifier.parse.source import Source


def relearned(shapes: Iterable[str]) -> dict[str, Template]:
    """What Lark makes of each of these shapes today; shapes that it no longer accepts raise `Rejected`."""
    table = {}
    for shape in shapes:
        template = learn(shape)
        if template is not None:
            table[shape] = template
    return table


def main(files: list[str]) -> None:
    """Rewrite the table with its own shapes and those of `files`."""
    known: list[str] = list(msgspec.json.decode(SEED.read_bytes())["shapes"]) if SEED.is_file() else []
    shapes = PtxShapes()
    for name in files:
        parse_ptx(Source(name, Path(name).read_text(encoding="utf-8", errors="replace")), shapes)
    table = relearned(sorted({*known, *shapes.memo.table}))
    write_memo(SEED, shapes.memo.fingerprint, table)
    sys.stdout.write(f"{SEED}: {len(table)} shapes, {len(table) - len(known)} new\n")


if __name__ == "__main__":
    main(sys.argv[1:])
