"""Launch facts: what PTX does not say about how a kernel is started."""

from __future__ import annotations

import msgspec

Dim3 = tuple[int, int, int]


class LaunchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a launch; a field that is not known is None.

    `grid` counts CTAs, `cluster` counts CTAs of one cluster, `block` counts threads (x, y, z);
    `dynamic_smem` is in bytes. `grid` entries are None where they depend on run-time values.
    """

    grid: tuple[int | None, int | None, int | None] | None = None
    cluster: Dim3 | None = None
    block: Dim3 | None = None
    dynamic_smem: int | None = None
