"""Fat binaries, libraries and executables -> one bundle for each cubin or PTX inside, joined by kernel names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from verifier.cli.inputs import Bundle
from verifier.cli.output import display, note
from verifier.config import ARCH_FAMILIES
from verifier.errors import ConfigError, InputError, VerifierError

_SHORT = 3  # architectures that a note names


def bundles_of(path: Path) -> list[Bundle]:
    """What a file with device code holds. Errors: `verifier.compile.fatbin.unpack`."""
    from verifier.compile.fatbin import unpack

    images = [_Image(image.name, image.kind, image.arch, image.data) for image in unpack(path)]
    known = [image for image in images if _is_known(image.arch)]
    if len(known) < len(images):
        left = sorted({image.arch for image in images} - {image.arch for image in known})
        note(
            f"note: {display(path)}: {len(images) - len(known)} images are for {', '.join(left[:_SHORT])}: not checked"
        )
    if not known:
        raise InputError("it holds device code for architectures that are not known only", where=display(path))
    return list(_bundles(known))


class _Image:
    """One image and, when asked, the names of its kernels."""

    def __init__(self, name: str, kind: str, arch: str, data: bytes) -> None:
        self.name = display(name)
        self.kind = kind
        self.arch = arch
        self.data = data
        self._kernels: frozenset[str] | None = None

    @property
    def kernels(self) -> frozenset[str]:
        """Empty where the image cannot be read, which is for the one who checks it to say."""
        if self._kernels is None:
            try:
                self._kernels = frozenset(_cubin_kernels(self) if self.kind == "cubin" else _ptx_kernels(self))
            except VerifierError:
                self._kernels = frozenset()
        return self._kernels

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def _bundles(images: Sequence[_Image]) -> Iterator[Bundle]:
    """A cubin takes the only PTX of its architecture that has its kernels; PTX that is left over stands alone."""
    sources = [image for image in images if image.kind == "ptx"]
    taken: set[int] = set()
    for image in images:
        if image.kind == "cubin":
            partners = [p for p in sources if p.arch == image.arch and p.kernels & image.kernels]
            ptx = partners[0] if len(partners) == 1 else None
            taken |= {id(partner) for partner in partners}
            yield _bundle(image, ptx)
    for source in sources:
        if id(source) not in taken:
            yield _bundle(None, source)


def _bundle(cubin: _Image | None, ptx: _Image | None) -> Bundle:
    from verifier.compile.artifacts import Artifacts, Meta

    image = cubin or ptx
    assert image is not None
    return Bundle(
        source=image.name,
        compiled=Artifacts(
            meta=Meta(name=image.name, arch=image.arch),
            ptx=ptx.text if ptx else None,
            cubin=cubin.data if cubin else None,
        ),
    )


def _cubin_kernels(image: _Image) -> Iterator[str]:
    from verifier.parse.cubin import read_cubin

    yield from (kernel.name for kernel in read_cubin(image.data, image.name).kernels)


def _ptx_kernels(image: _Image) -> Iterator[str]:
    from verifier.model.lower_ptx import entry_names
    from verifier.parse.ptx import parse_ptx
    from verifier.parse.source import Source

    yield from entry_names(parse_ptx(Source(image.name, image.text)))


def _is_known(arch: str) -> bool:
    from verifier.config import arch_family

    try:
        return arch_family(arch) in ARCH_FAMILIES
    except ConfigError:
        return False
