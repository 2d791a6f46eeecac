"""PTX and cubin of one kernel that do not share a stem: joined by the names of their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from verifier.cli.inputs import Bundle, read_input
from verifier.cli.output import display
from verifier.cli.parts import LoadOptions, Parts, parse_bundle
from verifier.errors import InputError, VerifierError
from verifier.model import lower_ptx, lower_sass


class _Half(NamedTuple):
    """A bundle that has only one side, and the kernels on it as (name, architecture)."""

    bundle: Bundle
    kernels: frozenset[tuple[str, str]]


def join(bundles: Sequence[Bundle]) -> list[Bundle | VerifierError]:
    """`bundles` with the halves of one build made one; an error in the place of a half that fits several."""
    lonely_ptx = [bundle for bundle in bundles if bundle.ptx and not bundle.has_sass]
    lonely_sass = [bundle for bundle in bundles if bundle.has_sass and not bundle.ptx]
    if not lonely_ptx or not lonely_sass:
        return list(bundles)
    left = [half for bundle in lonely_ptx if (half := _half(bundle))]
    right = [half for bundle in lonely_sass if (half := _half(bundle))]
    replaced: dict[Bundle, Bundle | VerifierError | None] = {}
    for half in left:
        _pair(half, left, right, replaced)
    return [new for bundle in bundles if (new := replaced.get(bundle, bundle)) is not None]


def _pair(
    half: _Half, left: list[_Half], right: list[_Half], replaced: dict[Bundle, Bundle | VerifierError | None]
) -> None:
    partners = [other for other in right if other.kernels & half.kernels]
    if not partners:
        return
    rivals = [other for other in left if other.kernels & partners[0].kernels]
    if len(partners) > 1 or len(rivals) > 1:
        sources = [other.bundle.source for other in (partners if len(partners) > 1 else rivals)]
        name = min(half.kernels & partners[0].kernels)[0]
        replaced[half.bundle] = _ambiguous(half.bundle.source, name, sources)
        replaced.update({other.bundle: None for other in partners})
        return
    other = partners[0].bundle
    replaced[half.bundle] = msgspec.structs.replace(
        half.bundle, source=f"{half.bundle.source} + {other.source}", cubin=other.cubin, listing=other.listing
    )
    replaced[other] = None


def _ambiguous(source: str, name: str, sources: Sequence[str]) -> InputError:
    return InputError(
        f"which files belong together is not clear: {' and '.join(sources)} have a kernel {name}",
        where=source,
        do="give the files of one build the same stem, or check them one by one",
    )


def _half(bundle: Bundle) -> _Half | None:
    """The kernels of a bundle; None where it cannot be read, which is for the one who checks it to say."""
    try:
        return _Half(bundle, frozenset(_kernels(bundle)))
    except VerifierError:
        return None


def _kernels(bundle: Bundle) -> Iterator[tuple[str, str]]:
    if bundle.cubin is not None:
        from verifier.parse.cubin import read_cubin

        cubin = read_cubin(read_input(bundle.cubin), display(bundle.cubin))
        yield from ((kernel.name, cubin.arch) for kernel in cubin.kernels)
        return
    for parts in parse_bundle(bundle, LoadOptions(assemble=False)):
        yield from ((name, parts.arch) for name in (*ptx_kernels(parts), *sass_kernels(parts)))


def ptx_kernels(parts: Parts) -> tuple[str, ...]:
    """Names of the kernels that the PTX defines."""
    return lower_ptx.entry_names(parts.ptx) if parts.ptx else ()


def sass_kernels(parts: Parts) -> tuple[str, ...]:
    """Names of the kernels of the machine code."""
    if parts.cubin is not None:
        return tuple(kernel.name for kernel in parts.cubin.kernels)
    return lower_sass.entry_names(parts.sass) if parts.sass else ()
