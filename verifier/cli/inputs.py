"""What the user named on the command line -> bundles of files that belong together."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from verifier.cli.output import display
from verifier.errors import InputError, VerifierError

if TYPE_CHECKING:
    from verifier.compile.artifacts import Artifacts

PTX, CUBIN, LISTING, CUDA, FAT = "ptx", "cubin", "listing", "cuda", "fat"
SUFFIXES = {".ptx": PTX, ".cubin": CUBIN, ".sass": LISTING, ".cu": CUDA, ".fatbin": FAT}
ARTIFACT = {"kernel.ptx": PTX, "kernel.cubin": CUBIN, "kernel.sass": LISTING}
META = "meta.json"
_MACHINE = slice(18, 20)  # e_machine of an ELF header
_CUDA = (190).to_bytes(2, "little")
_FATBIN = 0xBA55ED50.to_bytes(4, "little")


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one build: an artifact folder, or loose files of one folder that share a stem.

    `meta` is the artifact folder's meta.json, if it has one. `compiled` is a build that is still in memory. At least
    one of all but `meta` is given.
    """

    source: str
    ptx: Path | None = None
    cubin: Path | None = None
    listing: Path | None = None
    cuda: Path | None = None
    meta: Path | None = None
    compiled: Artifacts | None = None

    @property
    def has_sass(self) -> bool:
        return self.cubin is not None or self.listing is not None


def discover(paths: Sequence[Path]) -> tuple[list[Bundle], list[VerifierError]]:
    """Bundles of all `paths`, in order, and an error for each path that gives none."""
    bundles: list[Bundle] = []
    loose: list[tuple[Path, str]] = []
    errors: list[VerifierError] = []
    for path in dict.fromkeys(paths):
        try:
            found, files = _folder(path) if path.is_dir() else ([], [(path, _kind(path))])
            if not found and not files:
                raise InputError("nothing to check in this folder", where=display(path), do=f"it holds no {_names()}")
        except OSError as error:
            errors.append(InputError(f"cannot be read: {error.strerror}", where=display(path)))
        except VerifierError as error:
            errors.append(error)
        else:
            bundles += found
            loose += [file for file in files if file[1] != FAT]
            for fat in (file for file, kind in files if kind == FAT):
                more, trouble = _unpacked(fat)
                bundles += more
                errors += trouble
    return [*bundles, *_by_stem(loose)], errors


def _unpacked(path: Path) -> tuple[list[Bundle], list[VerifierError]]:
    """What a fat binary, a library or an executable holds."""
    from verifier.cli.archives import bundles_of  # which imports this module

    try:
        read_input(path)
        return bundles_of(path), []
    except VerifierError as error:
        return [], [error]


def read_input(path: Path) -> bytes:
    """The content of an input file. Raises `InputError` when there is none."""
    where = display(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is not a regular file", where=where)
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    if not data.strip():
        raise InputError("the file is empty", where=where)
    return data


def _folder(folder: Path) -> tuple[list[Bundle], list[tuple[Path, str]]]:
    """Artifact folders and loose files below `folder`, in the order of their names."""
    entries = sorted(folder.iterdir())
    names = {entry.name for entry in entries}
    if names & ARTIFACT.keys():
        return [_artifact(folder, names)], []
    bundles: list[Bundle] = []
    files: list[tuple[Path, str]] = []
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            more_bundles, more_files = _folder(entry)
            bundles += more_bundles
            files += more_files
        elif entry.suffix in SUFFIXES:
            files.append((entry, SUFFIXES[entry.suffix]))
    return bundles, files


def _artifact(folder: Path, names: set[str]) -> Bundle:
    found = {kind: folder / name for name, kind in ARTIFACT.items() if name in names}
    return _bundle(display(folder), found, folder / META if META in names else None)


def _bundle(source: str, files: Mapping[str, Path], meta: Path | None = None) -> Bundle:
    return Bundle(
        source=source,
        ptx=files.get(PTX),
        cubin=files.get(CUBIN),
        listing=files.get(LISTING),
        cuda=files.get(CUDA),
        meta=meta,
    )


def _kind(path: Path) -> str:
    """What a file is: by its suffix, else by how it begins."""
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    start = read_input(path)[:65536]
    if start.startswith(b"\x7fELF"):
        return CUBIN if start[_MACHINE] == _CUDA else FAT
    if start.startswith(_FATBIN):
        return FAT
    if b".version" in start and b".target" in start:
        return PTX
    if b".headerflags" in start or b".section\t.text." in start or b"/*0000*/" in start:
        return LISTING
    raise InputError(
        "is neither PTX, cubin, CUDA C++, nvdisasm listing nor a file with device code",
        where=display(path),
        do=f"give {_names()}",
    )


def _by_stem(files: Sequence[tuple[Path, str]]) -> Iterator[Bundle]:
    """One bundle for each stem in a folder; CUDA C++ stands alone, because it is compiled anew."""
    groups: dict[tuple[Path, str], dict[str, Path]] = {}
    for path, kind in dict(files).items():
        key = (path.parent, path.name if kind == CUDA else path.stem)
        group = groups.setdefault(key, {})
        while kind in group:  # the same kind twice: `a.b` and `a.c`, told apart by content
            key = (key[0], key[1] + "'")
            group = groups.setdefault(key, {})
        group[kind] = path
    for group in groups.values():
        first = next(group[kind] for kind in (PTX, CUDA, CUBIN, LISTING) if kind in group)
        yield _bundle(display(first), group)


def _names() -> str:
    return ", ".join([*SUFFIXES, "artifact folder"])
