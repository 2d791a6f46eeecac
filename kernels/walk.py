"""The way of a persistent CTA, or cluster, over the output tiles."""

from dataclasses import dataclass
from typing import Any

import cutlass


@dataclass(frozen=True)
class Walk:
    """The tiles of one walker: `first`, `first + step`, ... below `count`, row by row of C."""

    first: Any
    step: Any
    count: Any
    columns: Any  # tiles in one row

    def coordinates(self, tile: Any) -> tuple[Any, Any]:
        """Row and column of a tile."""
        return tile // self.columns, tile % self.columns


@dataclass(frozen=True)
class Run:
    """The tiles of one CTA: [first, last) of all tiles, expert by expert, row by row."""

    first: Any
    last: Any
    rows: Any  # tiles in one column
    columns: Any  # tiles in one row

    def expert(self, tile: Any) -> tuple[Any, Any]:
        """Expert of a tile, and the tile after the last one of the same expert."""
        expert = tile // (self.rows * self.columns)
        return expert, cutlass.min(self.last, (expert + 1) * self.rows * self.columns)

    def coordinates(self, tile: Any) -> tuple[Any, Any]:
        """Row and column of a tile."""
        within = tile % (self.rows * self.columns)
        return within // self.columns, within % self.columns
