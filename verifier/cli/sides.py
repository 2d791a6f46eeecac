"""Files and folders -> the builds of kernels that `verifier diff` compares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from verifier.cli.inputs import Bundle, discover
from verifier.cli.joining import join, ptx_kernels, sass_kernels
from verifier.cli.loading import build_kernels
from verifier.cli.parts import LoadOptions, Parts, parse_bundle
from verifier.diff.sass_lines import machine_code
from verifier.diff.sides import Side
from verifier.errors import ConfigError, VerifierError
from verifier.parse.ptx_ast import Directive, PtxFile

IR = "kernel.mlir"


def load_sides(path: Path, options: LoadOptions) -> list[Side]:
    """Every kernel in a file or folder. Raises the first error: half of a comparison would be no comparison."""
    bundles, errors = discover([path])
    if errors:
        raise errors[0]
    return sides_of(bundles, options, path if path.is_dir() else None)


def sides_of(bundles: Sequence[Bundle], options: LoadOptions, folder: Path | None = None, root: str = "") -> list[Side]:
    """Every kernel of some bundles. What lies in `folder` is known by its place there, else by its kernel case."""
    sides: list[Side] = []
    for bundle in join(bundles):
        if isinstance(bundle, VerifierError):
            raise bundle
        for parts in parse_bundle(bundle, options):
            case = parts.meta.name if parts.meta else ""
            sides += _sides(parts, bundle, options, _below(bundle, folder) if folder else case, root)
    if not sides:
        raise ConfigError(f"no kernel for {', '.join(options.archs)}", do="name another --arch, or none")
    return sides


def _sides(parts: Parts, bundle: Bundle, options: LoadOptions, path: str, root: str) -> Iterator[Side]:
    names = dict.fromkeys([*ptx_kernels(parts), *sass_kernels(parts)])
    usage = {usage.entry: usage for usage in parts.meta.usage} if parts.meta else {}
    infos = {info.name: info for info in parts.cubin.kernels} if parts.cubin else {}
    ir = _ir(bundle)
    kernels = list(build_kernels(parts, options))
    sass = machine_code(parts.sass, kernels[0].machine) if parts.sass else None
    for entry, loaded in zip(names, kernels, strict=True):
        yield Side(
            name=loaded.kernel.name,
            entry=entry,
            arch=loaded.kernel.arch,
            path=path,
            source=parts.source,
            facts=loaded.kernel,
            launch=loaded.kernel.launch,
            ptx=parts.ptx if loaded.kernel.ptx else None,
            sass=sass if sass and entry in sass.functions else None,
            info=infos.get(entry),
            usage=usage.get(entry),
            ir=ir,
            toolchain={**parts.toolchain, **_ptx_version(parts.ptx)},
            root=root,
        )


def _ir(bundle: Bundle) -> str | None:
    if bundle.compiled is not None:
        return bundle.compiled.mlir
    file = bundle.meta.parent / IR if bundle.meta else None
    return file.read_text(encoding="utf-8", errors="replace") if file and file.is_file() else None


def _ptx_version(file: PtxFile | None) -> dict[str, str]:
    """The `.version` that the compiler chose."""
    statements = file.statements if file else ()
    versions = (s.args[0] for s in statements if isinstance(s, Directive) and s.name == ".version" and s.args)
    version = next(versions, "")
    return {"ptx": version} if version else {}


def _below(bundle: Bundle, folder: Path) -> str:
    """Where a bundle lies below the folder that the user named, without the suffix of a file."""
    place = bundle.meta.parent if bundle.meta else next(p for p in _files(bundle) if p is not None)
    relative = Path(os.path.relpath(place, folder))
    return str(relative.with_suffix("") if bundle.meta is None else relative)


def _files(bundle: Bundle) -> tuple[Path | None, ...]:
    return bundle.ptx, bundle.cubin, bundle.listing, bundle.cuda
