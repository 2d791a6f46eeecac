"""Source text with positions: every statement keeps the span it came from."""

from __future__ import annotations

import bisect
from functools import cached_property

import msgspec


class Span(msgspec.Struct, frozen=True, gc=False):
    """Half-open range of character offsets into a `Source`."""

    start: int
    end: int


class Source:
    """A text and its line table. `name` is what messages call it (a path, as given by the user)."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at != -1:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def line_of(self, offset: int) -> int:
        """1-based line that holds `offset`."""
        return bisect.bisect_right(self._line_starts, offset)

    def column_of(self, offset: int) -> int:
        """1-based column of `offset` in its line."""
        return offset - self._line_starts[self.line_of(offset) - 1] + 1

    def line_text(self, line: int) -> str:
        """Text of a 1-based line, without its newline; empty when there is no such line."""
        if not 1 <= line <= len(self._line_starts):
            return ""
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end == -1 else self.text[start:end]
