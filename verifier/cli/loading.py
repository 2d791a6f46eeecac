"""Bundles of files -> kernels that rules can check: read, parse, disassemble where needed, join by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from verifier.cli.inputs import Bundle, read_input
from verifier.cli.output import display
from verifier.config import arch_family
from verifier.errors import ConfigError, InputError, InternalError, VerifierError
from verifier.launch import Dim3, LaunchFacts
from verifier.parse.ptx_ast import Directive, FunctionHeader, PtxFile
from verifier.parse.sass_ast import SassDirective, SassFile
from verifier.parse.source import Source
from verifier.rules import Role, Subject

if TYPE_CHECKING:
    from verifier.compile.artifacts import Meta

A = TypeVar("A")
B = TypeVar("B")


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`archs`: keep kernels of these only, () for all; also the targets of CUDA C++. `block` and `cluster` win over
    what the files say. `assemble`: make SASS from PTX that comes without."""

    archs: tuple[str, ...] = ()
    block: Dim3 | None = None
    cluster: Dim3 | None = None
    assemble: bool = True


class LoadedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, the path of its PTX ("" if there is none) and what is known of the tools that built it."""

    kernel: Subject
    ptx_file: str
    toolchain: dict[str, str] = {}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What one bundle holds, parsed. `toolchain` names the tools that made it."""

    source: str
    arch: str
    ptx: PtxFile | None = None
    sass: SassFile | None = None
    meta: Meta | None = None
    toolchain: dict[str, str] = {}


def load_kernels(bundles: Sequence[Bundle], options: LoadOptions) -> Iterator[LoadedKernel | VerifierError]:
    """Every kernel of every bundle, or the error that stands in its way; an error of one bundle ends only that one."""
    parsed: Iterable[Parts | VerifierError]
    parsed = chain.from_iterable(_guarded(parse_bundle, bundle, options, bundle.source) for bundle in bundles)
    if _may_join(bundles):
        parsed = joined(list(parsed))
    found = False
    for item in parsed:
        found = True
        if isinstance(item, VerifierError):
            yield item
        else:
            yield from _guarded(build_kernels, item, options, item.source)
    if bundles and not found:
        yield ConfigError(f"no kernel for {', '.join(options.archs)}", do="name another --arch, or none")


def _guarded(
    step: Callable[[A, LoadOptions], Iterator[B]], argument: A, options: LoadOptions, source: str
) -> Iterator[B | VerifierError]:
    """What `step` yields; an exception becomes the last item, so that the other inputs are still checked."""
    try:
        yield from step(argument, options)
    except VerifierError as error:
        yield error
    except Exception as error:
        bug = InternalError(f"{type(error).__name__}: {error}", where=source)
        bug.__cause__ = error
        yield bug


def parse_bundle(bundle: Bundle, options: LoadOptions) -> Iterator[Parts]:
    """Parse the files of one bundle; CUDA C++ is compiled first, once for each architecture."""
    if bundle.cuda is not None:
        raise NotImplementedError
    meta = _meta(bundle)
    ptx = _parse_ptx(bundle.ptx) if bundle.ptx else None
    toolchain = dict(_known(meta))
    sass: SassFile | None = None
    if bundle.listing:
        sass = _parse_sass(display(bundle.listing), _text(bundle.listing))
    elif bundle.cubin:
        sass, made_by = _disassembled(bundle.cubin)
        toolchain |= made_by
    arch = _arch(ptx, sass)
    if not options.archs or arch in options.archs:
        yield Parts(source=bundle.source, arch=arch, ptx=ptx, sass=sass, meta=meta, toolchain=toolchain)


# ---- joining ---------------------------------------------------------------------------------------------------------


def _may_join(bundles: Sequence[Bundle]) -> bool:
    """Whether some bundle is PTX alone and another SASS alone, so that they may be two halves of one kernel."""
    ptx_alone = any(bundle.ptx and not bundle.has_sass for bundle in bundles)
    return ptx_alone and any(bundle.has_sass and not bundle.ptx for bundle in bundles)


def joined(items: Sequence[Parts | VerifierError]) -> list[Parts | VerifierError]:
    """Give each PTX file without SASS the listing, of those without PTX, that has its kernels for its architecture."""
    halves = [item for item in items if isinstance(item, Parts) and item.ptx is None]
    taken: dict[int, Parts] = {}
    result: list[Parts | VerifierError] = []
    for item in items:
        if isinstance(item, VerifierError) or item.ptx is None or item.sass is not None:
            result.append(item)
            continue
        wanted = set(ptx_kernels(item.ptx))
        matches = [half for half in halves if half.arch == item.arch and wanted & set(sass_kernels(half))]
        if len(matches) > 1 or (matches and id(matches[0]) in taken):
            rival = matches[1] if len(matches) > 1 else taken[id(matches[0])]
            result.append(_ambiguous(item, matches[0], rival))
        elif matches:
            taken[id(matches[0])] = item
            result.append(_merge(item, matches[0]))
        else:
            result.append(item)
    return [item for item in result if id(item) not in taken]


def _merge(ptx: Parts, sass: Parts) -> Parts:
    return msgspec.structs.replace(
        ptx, sass=sass.sass, toolchain=ptx.toolchain | sass.toolchain, source=f"{ptx.source} + {sass.source}"
    )


def _ambiguous(item: Parts, match: Parts, rival: Parts) -> InputError:
    return InputError(
        f"{match.source} and {rival.source} hold a kernel of the same name: which belongs together is not clear",
        where=item.source,
        do="give the files of one build the same stem, or check them one by one",
    )


def ptx_kernels(file: PtxFile) -> list[str]:
    """Names of the kernels that a PTX file defines."""
    headers = (statement for statement in file.statements if isinstance(statement, FunctionHeader))
    return [header.name for header in headers if header.kind == "entry" and header.is_definition]


def sass_kernels(parts: Parts) -> list[str]:
    """Names of the code sections of a listing."""
    if parts.sass is None:
        return []
    sections = (s.args[0] for s in parts.sass.statements if isinstance(s, SassDirective) and s.name == ".section")
    return [name.strip('"').removeprefix(".text.") for name in sections if ".text." in name]


# ---- kernels ---------------------------------------------------------------------------------------------------------


class _PlainKernel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arch: str
    source: str
    isas: frozenset[str]
    roles: tuple[Role, ...] = ()
    metrics: dict[str, int | float] = {}


def build_kernels(parts: Parts, options: LoadOptions) -> Iterator[LoadedKernel]:
    """INTEGRATION POINT: the facts of every kernel in `parts`. Replace `_PlainKernel` by `KernelFacts.build`."""
    names = ptx_kernels(parts.ptx) if parts.ptx else sass_kernels(parts)
    if not names:
        raise InputError("defines no kernel", where=parts.source, do="only .entry functions are checked")
    isas = frozenset(isa for isa, file in (("ptx", parts.ptx), ("sass", parts.sass)) if file is not None)
    for name in names:
        launch = launch_of(parts.meta, name, options)
        kernel = _PlainKernel(name=kernel_name(parts, name), arch=parts.arch, source=parts.source, isas=isas)
        del launch
        yield LoadedKernel(
            kernel=kernel, ptx_file=parts.ptx.source.name if parts.ptx else "", toolchain=parts.toolchain
        )


def kernel_name(parts: Parts, entry: str) -> str:
    """The name of the kernel case, where the artifact knows it; else that of the entry function."""
    return parts.meta.name if parts.meta and parts.meta.entry == entry else entry


def launch_of(meta: Meta | None, entry: str, options: LoadOptions) -> LaunchFacts:
    """What the artifact knows about the launch of `entry`, and over it what the command line says."""
    known = LaunchFacts()
    if meta is not None:
        known = meta.launches.get(entry) or (meta.launch if meta.entry == entry else None) or known
    given = {"block": options.block, "cluster": options.cluster}
    return msgspec.structs.replace(known, **{key: value for key, value in given.items() if value is not None})


# ---- files -----------------------------------------------------------------------------------------------------------


def _parse_ptx(path: Path) -> PtxFile:
    from verifier.parse.ptx import parse_ptx

    return parse_ptx(Source(display(path), _text(path)))


def _parse_sass(name: str, text: str) -> SassFile:
    from verifier.parse.sass import parse_sass

    return parse_sass(Source(name, text))


def _text(path: Path) -> str:
    """Text of an input file. NUL bytes at its end belong to a C string and are dropped."""
    data = read_input(path).rstrip(b"\0")
    if b"\0" in data[:4096]:
        raise InputError("is binary, not text", where=display(path), do="give a .cubin suffix to a cubin")
    return data.decode("utf-8", "replace")  # a path or a comment may be in another encoding; code is ASCII


def _disassembled(cubin: Path) -> tuple[SassFile, dict[str, str]]:
    from verifier.compile.disassemble import disassemble

    listing = disassemble(read_input(cubin), name=display(cubin))
    return _parse_sass(display(cubin), listing.text), {"nvdisasm": listing.nvdisasm}


def _meta(bundle: Bundle) -> Meta | None:
    if bundle.meta is None:
        return None
    from verifier.compile.artifacts import read_meta

    return read_meta(bundle.meta.parent)


def _known(meta: Meta | None) -> Mapping[str, str]:
    """The fields of the toolchain fingerprint that are known."""
    fields = msgspec.structs.asdict(meta.toolchain) if meta else {}
    return {key: value for key, value in fields.items() if value is not None}


def _arch(ptx: PtxFile | None, sass: SassFile | None) -> str:
    statements = [*(ptx.statements if ptx else ()), *(sass.statements if sass else ())]
    targets = (s.args[0] for s in statements if isinstance(s, Directive | SassDirective) and s.name == ".target")
    arch = next(targets, "").rstrip(",")
    name = ptx.source.name if ptx else sass.source.name if sass else ""
    if not arch:
        raise InputError("no .target directive says for which architecture it is", where=name)
    try:
        arch_family(arch)
    except ConfigError as error:
        raise InputError(error.what, where=name, do=error.do) from error
    return arch
