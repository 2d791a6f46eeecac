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


def acquires(sem: str) -> bool:
    return sem in _ACQUIRE


def releases(sem: str) -> bool:
    return sem in _RELEASE
