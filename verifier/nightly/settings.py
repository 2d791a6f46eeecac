"""`nightly.toml`: toolchains, matrix, limits, thresholds. Without the file: what is installed, all kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from verifier.config import Bar, Ignore, parse_ignores, parse_toml, read_text
from verifier.errors import ConfigError
from verifier.findings import Profile, Severity

DEFAULT_FILE = "nightly.toml"
INSTALLED = "installed"
Scalar = str | int | float | bool

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB)?\s*")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, None: 1}
_LIMIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*")


class ToolchainSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of the matrix. `dsl`: packages for an environment of its own, () means what is installed here.

    `ptxas`: the wheel that has the assembler; "" means the one inside the DSL. `kernels` and `archs` narrow the column.
    """

    dsl: tuple[str, ...] = ()
    ptxas: str = ""
    kernels: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more configuration of a registered kernel: `set` overrides options of its own."""

    kernel: str
    name: str
    set: dict[str, Scalar]
    archs: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    profile: Profile = Profile.DEFAULT
    strict: bool = False
    fail_on: Severity = Severity.ERROR
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    jobs: int = 2
    seconds: float = 600.0
    memory: str = "8 GiB"
    keep: int = 30
    toolchain: dict[str, ToolchainSettings] = {}
    configuration: tuple[Configuration, ...] = ()
    artifacts: tuple[str, ...] = ()
    thresholds: dict[str, str | int | float] = {}
    suppress: list[dict[str, str]] = []


class Threshold(msgspec.Struct, frozen=True):
    """How much a metric may grow: by a share of what it was (`relative`, in percent) or by a number."""

    amount: float
    relative: bool

    def exceeded(self, before: float, after: float) -> bool:
        allowed = abs(before) * self.amount / 100 if self.relative else self.amount
        return after - before > allowed

    def __str__(self) -> str:
        return f"{self.amount:g}%" if self.relative else f"{self.amount:g}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a run does. `seconds` and `memory` (bytes) bound a cell; `keep` counts runs."""

    profile: Profile = Profile.DEFAULT
    bar: Bar = Bar()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    jobs: int = 2
    seconds: float = 600.0
    memory: int = 8 << 30
    keep: int = 30
    toolchains: dict[str, ToolchainSettings] = msgspec.field(default_factory=lambda: {INSTALLED: ToolchainSettings()})
    configurations: tuple[Configuration, ...] = ()
    artifacts: tuple[str, ...] = ()
    thresholds: dict[str, Threshold] = msgspec.field(default_factory=lambda: dict(DEFAULT_THRESHOLDS))
    ignores: tuple[Ignore, ...] = ()


# What may not grow by more than this unless somebody says so: resources, and what makes a loop slow.
DEFAULT_THRESHOLDS: Mapping[str, Threshold] = {
    "registers": Threshold(8, False),
    "stack_bytes": Threshold(0, False),
    "spill_store_bytes": Threshold(0, False),
    "spill_load_bytes": Threshold(0, False),
    "shared_bytes": Threshold(1024, False),
    "code_bytes": Threshold(10, True),
    "unknown_instructions": Threshold(0, False),
    "CCTL.IVALL in loops": Threshold(0, False),
    "MEMBAR.ALL.GPU in loops": Threshold(0, False),
}


def load_settings(path: Path) -> Settings:
    """Read nightly.toml. Raises `ConfigError` with the key that is wrong."""
    table = parse_toml(read_text(path), path)
    try:
        file = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}", where=str(path), do="docs/nightly.md lists the keys") from error
    toolchains = file.toolchain or {INSTALLED: ToolchainSettings()}
    thresholds = {name: _threshold(name, value, path) for name, value in file.thresholds.items()}
    if file.jobs < 1 or file.seconds <= 0 or file.keep < 1:
        raise ConfigError("jobs, seconds and keep must be positive", where=str(path))
    return Settings(
        profile=file.profile,
        bar=Bar(fail_on=file.fail_on, strict=file.strict),
        select=file.select,
        ignore=file.ignore,
        kernels=file.kernels,
        archs=file.archs,
        jobs=file.jobs,
        seconds=file.seconds,
        memory=parse_size(file.memory, str(path)),
        keep=file.keep,
        toolchains=toolchains,
        configurations=file.configuration,
        artifacts=file.artifacts,
        thresholds={**DEFAULT_THRESHOLDS, **thresholds},
        ignores=parse_ignores(file.suppress, f"{path.name} [[suppress]]", path),
    )


def parse_size(text: str, where: str) -> int:
    """`8 GiB` in bytes. Raises `ConfigError`."""
    match = _SIZE.fullmatch(text)
    if not match or not float(match[1]):
        raise ConfigError(f"{text!r} is not a size like 8 GiB", where=where)
    return int(float(match[1]) * _UNITS[match[2]])


def _threshold(name: str, value: str | float, path: Path) -> Threshold:
    match = _LIMIT.fullmatch(str(value))
    if not match:
        do = f'write {name} = 8, or {name} = "10%"'
        raise ConfigError(f"threshold {value!r} of {name} is no number and no percentage", where=str(path), do=do)
    return Threshold(float(match[1]), match[2] == "%")
