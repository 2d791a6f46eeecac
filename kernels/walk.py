"""The way of a persistent CTA, or cluster, over the output tiles."""

from dataclasses import dataclass
from typing import Any


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
