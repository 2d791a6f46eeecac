"""The identity of generated code: equal if and only if `verifier diff` finds no difference in it.

Two listings are the same code if their keys are equal line by line and one bijection maps the names in them. Numbering
the names by their first occurrence is a canonical form of that, for whole listings.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator

import msgspec

from verifier.diff.lines import Listing


def identity(listing: Listing) -> str:
    """SHA-256 of a listing's canonical form, in hexadecimal."""
    digest = hashlib.sha256(listing.level.encode())
    numbers: dict[str, int] = {}
    for line in listing.lines:
        slots = [numbers.setdefault(slot, len(numbers)) for slot in line.slots]
        for part in (line.kind.value, *_canonical(line.key), *map(str, slots)):
            digest.update(part.encode())
            digest.update(b"\0")
        digest.update(b"\n")
    return digest.hexdigest()


def _canonical(value: object) -> Iterator[str]:
    """A text that depends on nothing but the value: not on the order of sets, not on addresses."""
    if isinstance(value, enum.Enum):
        yield f"{type(value).__name__}.{value.name}"
    elif isinstance(value, (tuple, list)):
        yield "("
        for item in value:
            yield from _canonical(item)
        yield ")"
    elif isinstance(value, (set, frozenset)):
        yield "{"
        yield from sorted(" ".join(_canonical(item)) for item in value)
        yield "}"
    elif isinstance(value, msgspec.Struct):
        yield type(value).__name__
        yield from _canonical(msgspec.structs.astuple(value))
    elif value is None or isinstance(value, (str, bytes, int, float)):
        yield repr(value)
    else:
        raise TypeError(f"a line key must not hold a {type(value).__name__}")
