"""Scopes and semantics of the memory model as data: which scope includes which, what acquires, what releases.

Source: PTX ISA 9.4, 8.3 "Scope", 8.8 "Release and acquire patterns".
"""

from __future__ import annotations

_ORDER = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 3}
_ACQUIRE = frozenset({"acquire", "acq_rel", "sc"})
_RELEASE = frozenset({"release", "acq_rel", "sc"})


def includes(scope: str | None, needed: str) -> bool:
    """Whether threads as far apart as `needed` are within `scope`; a weak operation has none."""
    return scope is not None and _ORDER[scope] >= _ORDER[needed]


def covers(modifiers: frozenset[str], space: str) -> bool:
    """Whether a fence orders accesses to `space` ("global", "shared::cta", "shared::cluster").

    PTX ISA 9.4, 9.7.15.4: `.sync_restrict` limits the effect to objects in the named part of shared memory.
    """
    restricted = next((word for word in modifiers if word.startswith("sync_restrict::")), None)
    if restricted is None or restricted.endswith("::shared::cluster"):
        return restricted is None or space != "global"
    return space == "shared::cta"


def acquires(sem: str) -> bool:
    return sem in _ACQUIRE


def releases(sem: str) -> bool:
    return sem in _RELEASE
