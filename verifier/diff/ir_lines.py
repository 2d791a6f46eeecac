"""The compiler's IR as lines to compare, for changes that the assembler hides."""

from __future__ import annotations

from verifier.diff.lines import Effect, Line, LineKind, Listing
from verifier.parse.mlir import MlirLine, operations, parse_mlir
from verifier.parse.source import Source


def ir_listing(name: str, text: str) -> Listing:
    """Lines of an MLIR module; `name` is what messages call it."""
    lines = parse_mlir(Source(name, text))
    return Listing("ir", [_line(line, opcode) for line, opcode in zip(lines, operations(lines), strict=True)])


def _line(line: MlirLine, opcode: str) -> Line:
    return Line(
        kind=LineKind.INSTRUCTION,
        key=line.tokens,
        slots=line.names,
        reads=line.names[line.defines :],
        writes=line.names[: line.defines],
        opcode=opcode,
        pattern=" ".join(line.tokens),
        text=line.text,
        location=line.location,
        effect=Effect.ORDERED,
    )
