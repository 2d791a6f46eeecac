"""Kernels that the project registers: choosing them by name, architecture and defect, and compiling them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from verifier.cli.inputs import Bundle
from verifier.cli.output import display
from verifier.cli.progress import Progress
from verifier.errors import ConfigError, VerifierError

if TYPE_CHECKING:
    from kernels.registry import KernelCase
    from verifier.compile.build import Outcome, Request

REGISTRY = "kernels.registry"


class Registry(Protocol):
    """What a registry module offers."""

    CASES: tuple[KernelCase, ...]

    def case(self, name: str) -> KernelCase: ...


def load_registry() -> Registry:
    """The registry of the checkout that the verifier is installed from."""
    try:
        module: Any = importlib.import_module(REGISTRY)
    except ModuleNotFoundError as error:
        if error.name not in (REGISTRY, REGISTRY.partition(".")[0]):
            raise
        do = "run in a checkout that has kernels/registry.py; for files compiled elsewhere there is `verifier check`"
        raise ConfigError("there is no registry of kernels here", where=display(Path.cwd()), do=do) from error
    registry: Registry = module
    return registry


def describe(registry: Registry) -> str:
    """All kernels with their architectures and defects."""
    lines = []
    for case in registry.CASES:
        lines.append(f"{case.name}  ({', '.join(case.archs)})  {near(case.source)}")
        lines += [f"    --defect {defect.name:22} {defect.rule}  {defect.summary}" for defect in case.defects]
    return "\n".join(lines) + "\n"


def choose(registry: Registry, names: Sequence[str], defect: str | None) -> list[KernelCase]:
    """The named kernels, or all; with a defect and no names, those that can be built with it.

    A name may also be that of a Python file: the kernels that are made of it, which may be none.
    """
    if names:
        found = [case for name in names for case in _named(registry, name)]
        chosen = list({case.name: case for case in found}.values())
        for case in chosen:
            case.check_defect(defect)
        return chosen
    if defect is None:
        return list(registry.CASES)
    chosen = [case for case in registry.CASES if any(known.name == defect for known in case.defects)]
    if not chosen:
        known = sorted({known.name for case in registry.CASES for known in case.defects})
        raise ConfigError(f"no kernel has a defect {defect!r}", do=f"known: {', '.join(known)}")
    return chosen


def _named(registry: Registry, name: str) -> list[KernelCase]:
    if not name.endswith(".py"):
        return [registry.case(name)]
    from verifier.compile.build import module_root
    from verifier.compile.store import module_sources

    path = Path(name)
    if not path.is_file():
        raise ConfigError("there is no such file", where=name, do="`verifier verify --list` names kernels and files")
    path = path.resolve()
    return [case for case in registry.CASES if path in module_sources(case.module, module_root(case.module))]


def requests(cases: Sequence[KernelCase], archs: Sequence[str], defect: str | None) -> list[Request]:
    """One compile for each kernel and each of its architectures; `archs` narrows them, () does not."""
    from verifier.compile.build import Request

    wanted = [
        Request(case=case, arch=arch, defect=defect)
        for case in cases
        for arch in case.archs
        if not archs or arch in archs
    ]
    if not wanted:
        supported = sorted({arch for case in cases for arch in case.archs})
        raise ConfigError(f"no kernel is registered for {', '.join(archs)}", do=f"choose among {', '.join(supported)}")
    return wanted


def compile_all(
    wanted: Sequence[Request], *, jobs: int, timeout: float, cached: bool = True
) -> Iterator[Bundle | VerifierError]:
    """What became of each request, in their order: a bundle to check, or the error."""
    from verifier.compile.build import compile_many
    from verifier.compile.process import Limits
    from verifier.compile.store import default_store

    with Progress("compiling", len(wanted)) as progress:
        outcomes = compile_many(
            wanted,
            store=default_store() if cached else None,
            limits=Limits(seconds=timeout),
            workers=jobs,
            progress=lambda outcome: progress.done(_what(outcome)),
        )
    for outcome in outcomes:
        if outcome.error is not None:
            yield outcome.error
        elif outcome.artifacts is not None:
            source = outcome.artifacts.meta.source
            yield Bundle(source=near(Path(source)) if source else "", compiled=outcome.artifacts)


def _what(outcome: Outcome) -> str:
    request = outcome.request
    state = "failed" if outcome.error else "from the store" if outcome.cached else "compiled"
    return f"{request.case.name} {request.arch}{f' {request.defect}' if request.defect else ''}: {state}"


def near(path: Path) -> str:
    """`path` as seen from here, where it lies below."""
    relative = os.path.relpath(path)
    return display(path if relative.startswith("..") else relative)
