"""One bundle of files -> parsed PTX and SASS: read, compile or disassemble where needed, parse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from verifier.cli.inputs import Bundle, read_input
from verifier.cli.output import display, note
from verifier.config import arch_family
from verifier.errors import ConfigError, InputError, ToolchainError
from verifier.launch import Dim3, LaunchFacts
from verifier.model.lower_ptx import entry_names
from verifier.parse.ptx_ast import Directive, PtxFile
from verifier.parse.sass_ast import SassDirective, SassFile
from verifier.parse.source import Source
from verifier.report.results import ASSEMBLED_HERE

if TYPE_CHECKING:
    from verifier.compile.artifacts import Artifacts, Meta, ToolMessage, Usage
    from verifier.parse.cubin import CubinInfo, KernelInfo


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`archs`: keep kernels of these only, () for all; also the targets of CUDA C++. `block` and `cluster` win over
    what is known of a launch. `assemble`: make SASS from PTX that comes without."""

    archs: tuple[str, ...] = ()
    block: Dim3 | None = None
    cluster: Dim3 | None = None
    assemble: bool = True


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What one bundle holds, parsed. `toolchain` names the tools that made it, `cubin` describes the machine code,
    `messages` are what its assembler said (None: not known), `usage` what each entry takes."""

    source: str
    arch: str
    ptx: PtxFile | None = None
    sass: SassFile | None = None
    cubin: CubinInfo | None = None
    meta: Meta | None = None
    toolchain: dict[str, str] = {}
    messages: tuple[ToolMessage, ...] | None = None
    usage: tuple[Usage, ...] = ()


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one bundle before anything is parsed, and what messages call each of them."""

    source: str
    ptx: str | None = None
    ptx_name: str = ""
    cubin: bytes | None = None
    cubin_name: str = ""
    listing: str | None = None
    meta: Meta | None = None
    messages: tuple[ToolMessage, ...] | None = None
    usage: tuple[Usage, ...] = ()


def parse_bundle(bundle: Bundle, options: LoadOptions) -> Iterator[Parts]:
    """Parts of one bundle, none when it is for another architecture; several when CUDA C++ is compiled for several."""
    if bundle.cuda is not None:
        if not options.archs:
            raise ConfigError("CUDA C++ needs an architecture", where=bundle.source, do="--arch sm_100a, for example")
        for arch in options.archs:
            yield _parse(_compiled(bundle.cuda, arch), options)
        return
    built = bundle.compiled
    if built is not None and options.archs and built.meta.arch not in options.archs:
        return
    parts = _parse(_read(bundle), options)
    if not options.archs or parts.arch in options.archs:
        yield parts


def no_kernel(source: str) -> InputError:
    """Device functions alone have no warps to follow."""
    return InputError(
        "defines no kernel", where=source, do="only .entry functions (__global__ in CUDA C++) are checked"
    )


def launch_of(parts: Parts, entry: str, options: LoadOptions) -> LaunchFacts:
    """Launch facts of one kernel: of the command line, else of meta.json, else of the cubin."""
    meta, info = parts.meta, _info(parts, entry)
    known = LaunchFacts()
    if meta is not None:
        known = meta.launches.get(entry) or (meta.launch if meta.entry == entry else None) or known
    return msgspec.structs.replace(
        known,
        block=options.block or known.block or (info.block if info else None),
        cluster=options.cluster or known.cluster or (info.cluster if info else None),
    )


def metrics_of(parts: Parts, entry: str) -> dict[str, int | float]:
    """Resources of one kernel, as its cubin and its assembler state them: counts, and sizes in bytes."""
    info = _info(parts, entry)
    usage = next((usage for usage in parts.usage if usage.entry == entry), None)
    found: dict[str, int | None] = {}
    if info is not None:
        found = {
            "registers": info.registers,
            "stack_bytes": info.frame,
            "shared_bytes": info.shared,
            "barriers": info.barriers,
            "code_bytes": info.code_size,
        }
    if usage is not None:
        found |= {"spill_store_bytes": usage.spill_stores, "spill_load_bytes": usage.spill_loads}
    return {name: value for name, value in found.items() if value is not None}


def _info(parts: Parts, entry: str) -> KernelInfo | None:
    kernels = parts.cubin.kernels if parts.cubin else ()
    return next((kernel for kernel in kernels if kernel.name == entry), None)


def _read(bundle: Bundle) -> Raw:
    if bundle.compiled is not None:
        meta = bundle.compiled.meta
        return _raw_of(bundle.compiled, bundle.source, ptx_name=f"{bundle.source} (PTX for {meta.arch})")
    return _artifact(bundle) if bundle.meta is not None else _loose(bundle)


def _artifact(bundle: Bundle) -> Raw:
    from verifier.compile.artifacts import read_artifacts

    assert bundle.meta is not None
    artifacts = read_artifacts(bundle.meta.parent)
    if artifacts.ptx is None and artifacts.cubin is None and artifacts.sass is None:
        raise InputError("there is a meta.json and no kernel", where=bundle.source, do="compile the kernel again")
    return _raw_of(artifacts, bundle.source, ptx_name=display(bundle.ptx) if bundle.ptx else "")


def _compiled(path: Path, arch: str) -> Raw:
    from verifier.compile.nvrtc import compile_cuda

    read_input(path)
    return _raw_of(compile_cuda(path, arch), display(path), ptx_name=f"{display(path)} (PTX for {arch})")


def _raw_of(artifacts: Artifacts, source: str, ptx_name: str) -> Raw:
    return Raw(
        source=source,
        ptx=artifacts.ptx,
        ptx_name=ptx_name,
        cubin=artifacts.cubin,
        cubin_name=source,
        listing=artifacts.sass,
        meta=artifacts.meta,
        messages=artifacts.meta.messages or None,
        usage=artifacts.meta.usage,
    )


def _loose(bundle: Bundle) -> Raw:
    return Raw(
        source=bundle.source,
        ptx=_text(bundle.ptx) if bundle.ptx else None,
        ptx_name=display(bundle.ptx or ""),
        cubin=read_input(bundle.cubin) if bundle.cubin else None,
        cubin_name=display(bundle.cubin or bundle.listing or ""),
        listing=_text(bundle.listing) if bundle.listing else None,
    )


def _text(path: Path) -> str:
    """Text of an input file. NUL bytes at its end belong to a C string and are dropped."""
    data = read_input(path).rstrip(b"\0")
    if b"\0" in data[:4096]:
        raise InputError("is binary, not text", where=display(path), do="a cubin needs the suffix .cubin")
    return data.decode("utf-8", "replace")  # a path or a comment may be in another encoding; code is ASCII


def _parse(raw: Raw, options: LoadOptions) -> Parts:
    ptx = _parse_ptx(raw) if raw.ptx is not None else None
    if ptx is not None and not entry_names(ptx):
        raise no_kernel(raw.ptx_name)
    ptx_arch = _target(ptx.source.name, ptx.statements) if ptx else ""
    toolchain: dict[str, str] = {}
    if ptx is not None and raw.cubin is None and raw.listing is None and options.assemble:
        raw, toolchain = _assembled(raw, ptx_arch)
    cubin = _describe(raw) if raw.cubin is not None else None
    if cubin is not None:
        if not cubin.kernels:
            raise no_kernel(raw.cubin_name)
        toolchain.setdefault("assembler", cubin.assembler)
    sass, nvdisasm = _sass(raw)
    if nvdisasm:
        toolchain["nvdisasm"] = nvdisasm
    arch = _machine(sass, cubin.arch if cubin else ptx_arch) if sass else ptx_arch
    known = msgspec.structs.asdict(raw.meta.toolchain) if raw.meta else {}
    toolchain = {key: value for key, value in (known | toolchain).items() if value}
    return Parts(
        source=raw.source,
        arch=arch,
        ptx=ptx,
        sass=sass,
        cubin=cubin,
        meta=raw.meta,
        toolchain=toolchain,
        messages=raw.messages,
        usage=raw.usage,
    )


def _parse_ptx(raw: Raw) -> PtxFile:
    from verifier.parse.ptx import parse_ptx

    return parse_ptx(Source(raw.ptx_name, raw.ptx or ""))


def _assembled(raw: Raw, arch: str) -> tuple[Raw, dict[str, str]]:
    """PTX that came alone, with the cubin that ptxas makes of it as evidence. No ptxas: as it came, and a note."""
    from verifier.compile.assemble import assemble

    try:
        made = assemble(raw.ptx or "", arch, name=raw.ptx_name)
    except ToolchainError as error:
        note(f"note: {raw.source} is checked without SASS, because {error.what}; --no-assemble says that this is meant")
        return raw, {}
    assembler = f"{made.assembler or 'ptxas'}{ASSEMBLED_HERE}"
    evidence = msgspec.structs.replace(
        raw, cubin=made.cubin, cubin_name=raw.ptx_name, messages=made.messages, usage=made.usage
    )
    return evidence, {"assembler": assembler}


def _describe(raw: Raw) -> CubinInfo:
    from verifier.parse.cubin import read_cubin

    return read_cubin(raw.cubin or b"", raw.cubin_name)


def _sass(raw: Raw) -> tuple[SassFile | None, str]:
    """The parsed listing, and the version of nvdisasm where it was made here."""
    from verifier.parse.sass import parse_sass

    if raw.listing is not None:
        return parse_sass(Source(raw.cubin_name, raw.listing)), ""
    if raw.cubin is None:
        return None, ""
    from verifier.compile.disassemble import disassemble

    listing = disassemble(raw.cubin, name=raw.cubin_name)
    return parse_sass(Source(raw.cubin_name, listing.text)), listing.nvdisasm


def _machine(sass: SassFile, otherwise: str) -> str:
    """The architecture of a listing. That of an older cubin (ptxas 12.9 for sm_90a) has flags in place of `.target`."""
    named = any(isinstance(s, SassDirective) and s.name == ".target" for s in sass.statements)
    return otherwise if otherwise and not named else _target(sass.source.name, sass.statements)


def _target(name: str, statements: tuple[object, ...]) -> str:
    """The architecture that `.target` names."""
    targets = (s.args[0] for s in statements if isinstance(s, Directive | SassDirective) and s.name == ".target")
    arch = next(targets, "").rstrip(",")
    if not arch:
        raise InputError("no .target directive says for which architecture it is", where=name)
    try:
        arch_family(arch)
    except ConfigError as error:
        raise InputError(error.what, where=name, do=error.do) from error
    return arch
