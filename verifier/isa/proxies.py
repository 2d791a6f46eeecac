"""Proxies as data: what each proxy fence bridges, told by the modifiers of its opcode.

Sources, PTX ISA 9.4: 8.6 "Proxies"; 9.7.15.4 "fence.proxy"; 8.9.4 (the tensormap proxy is not covered by kernel start).
"""

from __future__ import annotations

import msgspec

ALL_SPACES = frozenset({"global", "shared::cta", "shared::cluster"})
MAP_BYTES = 128  # of one tensor map; the only size that an acquire takes


class Bridge(msgspec.Struct, frozen=True):
    """What a proxy fence orders: generic accesses before it and accesses through `proxy` after it.

    `both_ways`: also the other way round. `half` is "release" or "acquire" for one half of a pair across threads.
    `spaces` are the state spaces it is about; `reads_only` says that earlier writes are not covered.
    """

    proxy: str
    spaces: frozenset[str]
    both_ways: bool
    half: str = ""
    reads_only: bool = False

    @property
    def publishes_shared_writes(self) -> bool:
        """Whether the async proxy may read what the thread has written to its shared memory, once synchronized."""
        mine = bool(self.spaces & {"shared::cta", "shared::cluster"})
        return self.proxy == "async" and mine and not self.reads_only and self.half != "acquire"


def bridge(modifiers: frozenset[str]) -> Bridge:
    """The meaning of `fence.proxy` with these modifiers."""
    half = next((word for word in ("acquire", "release") if word in modifiers), "")
    if "tensormap::generic" in modifiers:
        return Bridge("tensormap", frozenset({"global"}), False, half)
    if "async::generic" in modifiers:
        restricted = next((word for word in modifiers if word.startswith("sync_restrict::")), "")
        space = restricted.removeprefix("sync_restrict::").removesuffix("::read")
        return Bridge("async", frozenset({space}), False, half, restricted.endswith("::read"))
    if "async" in modifiers:
        return Bridge("async", frozenset(modifiers & ALL_SPACES) or ALL_SPACES, True)
    return Bridge("alias", ALL_SPACES, True, half)
