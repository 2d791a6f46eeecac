"""Scripts: what the inputs of a run are. Inputs are scripted, never branches, so all roles of a kernel agree."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import msgspec

from verifier.analyses.protocol.values import Scalar, Unknown

if TYPE_CHECKING:
    from verifier.analyses.protocol.start import Start

POINTER_SHIFT = 40  # each pointer parameter points into a region of its own
_WORD = (1 << 32) - 1


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of one run.

    `scalar` is the value of every parameter word of up to 4 bytes unless `named` has (parameter, byte offset) -> value;
    `step` is what global words count up by; `tiles` is how many work items a scheduler hands out after the first;
    `grid` is the number of clusters along each axis; `last` puts the cluster under test at the end of the grid, where
    work may be short or none, instead of at its start; `probe` is set where a parameter was raised alone, to come to
    more code, so that it may not fit the others.
    """

    scalar: int
    step: int
    tiles: int
    grid: tuple[int, int, int] = (1, 1, 1)
    named: tuple[tuple[tuple[str, int], int], ...] = ()
    last: bool = False
    probe: bool = False

    def with_value(self, key: tuple[str, int], value: int) -> Script:
        named = {**dict(self.named), key: value}
        return msgspec.structs.replace(self, named=tuple(sorted(named.items())))

    def value(self, key: tuple[str, int]) -> int:
        """What a parameter word is: (parameter, byte offset) -> value."""
        return dict(self.named).get(key, self.scalar)

    @property
    def witness(self) -> Hashable:
        """Runs with equal ones are one witness: a parameter that does not fit the others is as odd in other memory."""
        return self.named if self.probe else self

    @property
    def degenerate(self) -> bool:
        """Whether the inputs are a corner case: something is zero, or the cluster is the last of its grid."""
        return self.last or any(value == 0 for _, value in self.named)

    @property
    def text(self) -> str:
        """The inputs in words."""
        parts = [f"parameters = {self.scalar}"]
        parts += [f"{_short(name)}+{offset} = {value}" for (name, offset), value in self.named]
        x, y, z = self.grid
        parts.append(f"grid of {x * y * z} clusters{', the last of them' if self.last else ''}")
        return ", ".join(parts)

    @property
    def words(self) -> str:
        """What global memory holds, in words."""
        return f"words of global memory = {self.step}, {2 * self.step}, ..."

    @property
    def corner(self) -> str:
        """What makes the inputs a corner case, in words."""
        zeros = [f"{_short(name)}+{offset} = {value}" for (name, offset), value in self.named if value == 0]
        return ", ".join([*zeros, "the last clusters of the grid"] if self.last else zeros)

    def parameter(self, name: str, offset: int, width: int, ordinal: int) -> Scalar:
        """The value of a kernel parameter's bytes."""
        value = dict(self.named).get((name, offset))
        if value is not None:
            return value & (1 << width) - 1
        if width >= 64:
            return (ordinal + 1) << POINTER_SHIFT
        return self.scalar & (1 << width) - 1

    def word(self, address: int, size: int) -> Scalar:
        """A value in global memory: a ramp over the words of each region."""
        if size > 8:
            return Unknown("a wide load from global memory")
        offset = address & (1 << POINTER_SHIFT) - 1
        return self.step * (offset // max(size, 4) + 1) & (1 << 8 * size) - 1

    def cancelled(self, request: int, start: Start) -> int:
        """The 16-byte answer to the request-th `try_cancel` of a CTA: see `lower_alu` for its layout."""
        if request > self.tiles:
            return 0
        x, y, z = start.first_cta(request)
        return 1 << 96 | (z & _WORD) << 64 | (y & _WORD) << 32 | x & _WORD


def _short(name: str) -> str:
    """A mangled parameter name without its kernel's name."""
    return name[name.rfind("param_") :] if "param_" in name else name
