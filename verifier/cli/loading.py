"""Bundles of files -> kernels that rules can check: parse each, join PTX and SASS of one kernel by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from verifier.analyses.facts import AssemblerMessage, KernelFacts
from verifier.analyses.sass.side import Cubin
from verifier.cli.inputs import Bundle
from verifier.cli.joining import join, ptx_kernels, sass_kernels
from verifier.cli.parts import LoadOptions, Parts, launch_of, metrics_of, no_kernel, parse_bundle
from verifier.cli.shapes import check_shapes
from verifier.errors import ConfigError, InternalError, VerifierError
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lift_sass import lift_sass
from verifier.model.lower_ptx import lower_ptx
from verifier.model.lower_sass import lower_sass
from verifier.model.program import Function
from verifier.parse.source import Source

_NO_PTX = "no PTX: machine code does not show scopes and semantics, and what depends on them is not checked"

A = TypeVar("A")
B = TypeVar("B")


class LoadedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, the text of its PTX if there is one, what is known of the tools that built it, what was assumed, and
    which instructions the tables do not know. `machine` are all functions of the listing that the kernel is in."""

    kernel: KernelFacts
    ptx: Source | None
    toolchain: dict[str, str] = {}
    assumptions: tuple[str, ...] = ()
    unknown_opcodes: dict[str, int] = {}
    machine: tuple[Function, ...] = ()


def load_kernels(bundles: Sequence[Bundle], options: LoadOptions) -> Iterator[LoadedKernel | VerifierError]:
    """Every kernel of every bundle, or the error that stands in its way; an error of one bundle ends only that one."""
    found = False  # an error counts: only silence needs an explanation
    for bundle in join(bundles):
        if isinstance(bundle, VerifierError):
            yield bundle
            continue
        for item in _guarded(_load, bundle, options, bundle.source):
            found = True
            yield item
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


def _load(bundle: Bundle, options: LoadOptions) -> Iterator[LoadedKernel]:
    for parts in parse_bundle(bundle, options):
        yield from build_kernels(parts, options)


def build_kernels(parts: Parts, options: LoadOptions) -> Iterator[LoadedKernel]:
    """The facts of every kernel in `parts`: those of the PTX, then those of the SASS that the PTX lacks."""
    functions = {function.name: function for function in lower_ptx(parts.ptx)} if parts.ptx else {}
    code = {function.name: function for function in lower_sass(parts.sass, parts.cubin)} if parts.sass else {}
    cubin = Cubin(tuple(code.values()))
    names = list(dict.fromkeys([*ptx_kernels(parts), *sass_kernels(parts)]))
    if not names:
        raise no_kernel(parts.source)
    for name in names:
        launch = launch_of(parts, name, options)
        ptx = KernelModel(functions[name], lift_ptx, launch) if name in functions else None
        sass = KernelModel(code[name], lift_sass, launch) if name in code else None
        check_shapes([model.function for model in (ptx, sass) if model is not None], options, parts.source)
        models = [model for model in (ptx, sass) if model is not None]
        kernel = KernelFacts(
            name=kernel_name(parts, name),
            arch=parts.arch,
            source=parts.source,
            launch=launch,
            ptx=ptx,
            sass=sass,
            metrics=metrics_of(parts, name),
            messages=messages_of(parts),
            cubin=cubin,
        )
        yield LoadedKernel(
            kernel=kernel,
            ptx=parts.ptx.source if parts.ptx else None,
            toolchain=parts.toolchain,
            assumptions=(*(models[0].assumptions if models else ()), *([] if ptx else [_NO_PTX])),
            unknown_opcodes={opcode: n for model in models for opcode, n in unknown_opcodes(model).items()},
            machine=tuple(code.values()),
        )


def messages_of(parts: Parts) -> tuple[AssemblerMessage, ...] | None:
    """What the assembler said under a code."""
    if parts.messages is None:
        return None
    return tuple(AssemblerMessage(m.code, m.text) for m in parts.messages if m.code)


def unknown_opcodes(model: KernelModel) -> dict[str, int]:
    """Instructions that the tables do not know, with their number."""
    return dict(Counter(event.opcode for event in model.events if event.kind is Kind.UNKNOWN))


def kernel_name(parts: Parts, entry: str) -> str:
    """The name of the kernel case, where the artifact knows it; else that of the entry function."""
    return parts.meta.name if parts.meta and parts.meta.entry == entry else entry
