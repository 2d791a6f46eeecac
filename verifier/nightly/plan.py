"""The cells of a run: kernels x configurations x architectures x toolchains, and files that came compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

import verifier
from verifier.compile.build import Environment, module_root
from verifier.compile.store import case_key, module_sources
from verifier.compile.toolchain import Tool
from verifier.errors import ConfigError, VerifierError
from verifier.nightly.cells import CaseSubject, CellSpec, Checks, FileSubject, Scalar
from verifier.nightly.settings import Settings, ToolchainSettings
from verifier.nightly.toolchains import Toolchain
from verifier.report.comparison import Build

AS_BUILT = "as built"
ANY = "-"
_CODE = ("*.py", "*.lark", "*.json")


class Case(Protocol):
    """What the plan needs of a registered kernel."""

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Scalar]: ...
    @property
    def archs(self) -> tuple[str, ...]: ...
    @property
    def defects(self) -> Sequence[Defect]: ...


class Defect(Protocol):
    @property
    def name(self) -> str: ...


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: what it is called, and its description, or why it cannot be done."""

    label: Build
    spec: CellSpec
    error: str = ""

    @property
    def loose(self) -> bool:
        """Of files, not of a registered kernel."""
        return isinstance(self.spec.subject, FileSubject)


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One toolchain of the matrix as it was asked for and as it is."""

    wanted: ToolchainSettings
    ready: Toolchain


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line narrows or changes: names of kernels, architectures, a defect to build them with."""

    kernels: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    defect: str | None = None


class _Configured(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    module: str
    config: Mapping[str, Scalar]
    archs: tuple[str, ...]
    defects: tuple[str, ...]


def plan(
    cases: Sequence[Case],
    files: Sequence[FileSubject],
    columns: Sequence[Column],
    settings: Settings,
    wish: Wish,
    store: Path,
) -> list[Cell]:
    """All cells in the order of the registry. Raises `ConfigError` when a name is unknown or nothing is left."""
    known = list(_configured(cases, settings))
    chosen = _chosen(known, settings, wish)
    code = code_digest()
    cells = [
        _case_cell(case, arch, column, settings, wish, store, code)
        for case in chosen
        for arch in case.archs
        if _wanted(arch, wish.archs or settings.archs)
        for column in columns
        if _wanted(case.name, column.wanted.kernels) and _wanted(arch, column.wanted.archs)
    ]
    for subject in files if not wish.kernels else ():
        cells += [_file_cell(subject, tool, settings, wish, store, code) for tool in _assemblers(subject, columns)]
    if not cells:
        raise ConfigError("no cell is left", do="widen --kernel, --arch and the settings of the toolchains")
    return cells


def code_digest() -> str:
    """Of everything in this package that may decide a verdict."""
    root = Path(verifier.__file__).resolve().parent
    files = {path for pattern in _CODE for path in root.rglob(pattern)}
    files |= set((root.parent / "grammars").glob("*.lark"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root.parent)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _configured(cases: Sequence[Case], settings: Settings) -> Iterator[_Configured]:
    named = {case.name: case for case in cases}
    for case in cases:
        yield _variant(case, case.name, case.config, case.archs)
    for extra in settings.configurations:
        if extra.kernel not in named:
            raise ConfigError(f"configuration {extra.name!r} is of kernel {extra.kernel!r}, which is not registered")
        case = named[extra.kernel]
        unknown = set(extra.set) - set(case.config)
        if unknown:
            do = f"it has: {', '.join(case.config)}"
            raise ConfigError(f"kernel {case.name} has no option {', '.join(sorted(unknown))}", do=do)
        yield _variant(case, f"{case.name}[{extra.name}]", {**case.config, **extra.set}, extra.archs or case.archs)


def _variant(case: Case, name: str, config: Mapping[str, Scalar], archs: tuple[str, ...]) -> _Configured:
    defects = tuple(defect.name for defect in case.defects)
    return _Configured(name=name, module=case.module, config=dict(config), archs=archs, defects=defects)


def _chosen(known: Sequence[_Configured], settings: Settings, wish: Wish) -> list[_Configured]:
    names = wish.kernels or settings.kernels
    missing = [name for name in names if not any(_of(name, case.name) for case in known)]
    if missing:
        raise ConfigError(f"unknown kernel {missing[0]!r}", do=f"known: {', '.join(case.name for case in known)}")
    if wish.defect and not any(wish.defect in case.defects for case in known):
        raise ConfigError(f"no kernel has a defect {wish.defect!r}", do="`verifier verify --list` has them")
    return [case for case in known if not names or any(_of(name, case.name) for name in names)]


def _of(name: str, case: str) -> bool:
    """A name means the kernel with all of its configurations, or one of them."""
    return case == name or case.startswith(f"{name}[")


def _wanted(value: str, among: Sequence[str]) -> bool:
    return not among or value in among or any(_of(name, value) for name in among)


def _case_cell(
    case: _Configured, arch: str, column: Column, settings: Settings, wish: Wish, store: Path, code: str
) -> Cell:
    ready = column.ready
    defect = wish.defect if wish.defect in case.defects else None
    label = Build(kernel=case.name, arch=arch, toolchain=ready.name)
    environment = Environment(python=ready.python, fingerprint=ready.fingerprint) if ready.python else None
    error, inputs, root = ready.error, "", ""
    try:
        root = str(found := module_root(case.module))
        inputs = case_key(
            sources=module_sources(case.module, found),
            module=case.module,
            config=case.config,
            arch=arch,
            defect=defect,
            toolchain=ready.fingerprint,
        )
    except VerifierError as failure:
        error = error or str(failure)
    subject = CaseSubject(
        name=case.name, module=case.module, config=dict(case.config), defect=defect, root=root, arch=arch
    )
    checks, ptxas = _checks(settings), ready.ptxas
    key = _key(inputs, ready.packages, ptxas and ptxas.version, label, checks, code)
    return Cell(
        label=label,
        error=error,
        spec=CellSpec(
            key=key,
            subject=subject,
            toolchain=ready.name,
            environment=environment,
            ptxas=ptxas,
            checks=checks,
            seconds=settings.seconds,
            memory=settings.memory,
            store=str(store),
        ),
    )


def _assemblers(subject: FileSubject, columns: Sequence[Column]) -> list[Tool | None]:
    """PTX that came without machine code is assembled by each ptxas of the matrix; all else is as it was built."""
    if "ptx" not in subject.files or {"cubin", "listing"} & subject.files.keys():
        return [None]
    tools = {column.ready.ptxas.version: column.ready.ptxas for column in columns if column.ready.ptxas}
    return [tools[version] for version in sorted(tools)] or [None]


def _file_cell(
    subject: FileSubject, ptxas: Tool | None, settings: Settings, wish: Wish, store: Path, code: str
) -> Cell:
    error, digests = "", {}
    try:
        digests = {kind: hashlib.sha256(Path(file).read_bytes()).hexdigest() for kind, file in subject.files.items()}
    except OSError as failure:
        error = f"{subject.source}: cannot be read: {failure.strerror}"
    archs = wish.archs or settings.archs
    subject = msgspec.structs.replace(subject, archs=archs)
    label = Build(kernel=subject.source, arch=ANY, toolchain=f"ptxas {ptxas.version}" if ptxas else AS_BUILT)
    checks = _checks(settings)
    spec = CellSpec(
        key=_key(digests, archs, label, checks, code),
        subject=subject,
        toolchain=label.toolchain,
        ptxas=ptxas,
        checks=checks,
        seconds=settings.seconds,
        memory=settings.memory,
        store=str(store),
    )
    return Cell(label=label, spec=spec, error=error)


def _checks(settings: Settings) -> Checks:
    return Checks(
        profile=settings.profile.value, select=settings.select, ignore=settings.ignore, ignores=settings.ignores
    )


def _key(*inputs: object) -> str:
    return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()[:40]
