"""Settings: the policy that rules judge by, `[tool.verifier]` of a pyproject.toml, and the names of architectures.

Precedence, highest first: command line, environment (`VERIFIER_*`), `[tool.verifier]`, built-in default. The command
line asks the environment itself; this module reads the file and checks what is in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from verifier.errors import ConfigError
from verifier.findings import Profile, Severity

Setting = str | bool | list[str]

# `.target` names of PTX ISA 9.x, section "PTX Module Directives: .target", without the suffixes a and f.
ARCH_FAMILIES = frozenset(
    {
        "sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87",
        "sm_88", "sm_89", "sm_90", "sm_100", "sm_101", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121",
    }
)  # fmt: skip
_ARCH = re.compile(r"(sm_\d+)([af]?)")
_KINDS: Mapping[str, type] = {
    "profile": str,
    "strict": bool,
    "fail-on": str,
    "arch": list,
    "select": list,
    "ignore": list,
    "baseline": str,
}
_WAIVERS = "suppress"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule needs to know beside the kernel to choose a severity."""

    profile: Profile = Profile.DEFAULT


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a run fail: a violation of `fail_on` or worse; under `strict` anything unknown, too."""

    fail_on: Severity = Severity.ERROR
    strict: bool = False


class Ignore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[tool.verifier.suppress]]`: findings of rule `code` (a prefix or a name, too) need not fail a run.

    `kernel` and `arch` are patterns with `*`; `toolchain` is part of what a build tells of its tools, such as
    "ptxas 12.9". `origin` is where it stands.
    """

    code: str
    reason: str
    kernel: str = "*"
    arch: str = "*"
    toolchain: str = ""
    origin: str = ""

    @property
    def key(self) -> str:
        """Names the waiver across runs."""
        return " ".join((self.origin, self.code, self.kernel, self.arch, self.toolchain)).strip()


def arch_family(arch: str) -> str:
    """`sm_100a` -> `sm_100`. Raises `ConfigError` for a name that no PTX ISA defines."""
    match = _ARCH.fullmatch(arch)
    if not match or match[1] not in ARCH_FAMILIES:
        known = ", ".join(sorted(ARCH_FAMILIES, key=lambda name: int(name[3:])))
        raise ConfigError(f"unknown architecture {arch!r}", do=f"known: {known}, each also with the suffix a or f")
    return match[1]


def find_config(start: Path) -> Path | None:
    """The nearest pyproject.toml with a `[tool.verifier]` table, from `start` upwards."""
    for folder in (start, *start.parents):
        candidate = folder / "pyproject.toml"
        if candidate.is_file() and "verifier" in _table(read_text(candidate), candidate):
            return candidate
    return None


def load_config(path: Path) -> dict[str, Setting]:
    """`[tool.verifier]` of `path`, checked; keys as written. Raises `ConfigError`."""
    table = _table(read_text(path), path)["verifier"]
    if not isinstance(table, dict):
        raise ConfigError("[tool.verifier] is not a table", where=str(path))
    return {key: _checked(key, value, path) for key, value in table.items() if key != _WAIVERS}


def load_ignores(path: Path) -> tuple[Ignore, ...]:
    """`[[tool.verifier.suppress]]` of `path`. Raises `ConfigError` for one that has no code or no reason."""
    table = _table(read_text(path), path).get("verifier")
    found = table.get(_WAIVERS, []) if isinstance(table, dict) else []
    return parse_ignores(found, f"{path.name} [[tool.verifier.suppress]]", path)


def parse_ignores(found: object, origin: str, path: Path) -> tuple[Ignore, ...]:
    """Waivers of a settings file; `origin` is how reports call the place."""
    try:
        ignores = msgspec.convert(found, tuple[Ignore, ...])
    except msgspec.ValidationError as error:
        do = 'write code = "TCG102" and reason = "..."; kernel, arch and toolchain narrow it'
        raise ConfigError(f"not a list of waivers: {error}", where=str(path.parent / origin), do=do) from error
    for number, ignore in enumerate(ignores, 1):
        if not ignore.reason.strip() or not ignore.code.strip():
            what = f"waiver {number} ({ignore.code or 'no rule'}) needs a code and a reason"
            raise ConfigError(what, where=str(path.parent / origin))
    return tuple(msgspec.structs.replace(ignore, origin=f"{origin} {n}") for n, ignore in enumerate(ignores, 1))


def read_text(path: Path) -> str:
    """The text of a settings file. Raises `ConfigError` when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot be read: {reason}", where=str(path)) from error


def _table(text: str, path: Path) -> dict[str, object]:
    """The `[tool]` table. Most files have nothing for us: do not load a TOML parser for those."""
    if "tool.verifier" not in text:
        return {}
    tool = parse_toml(text, path).get("tool", {})
    return tool if isinstance(tool, dict) else {}


def parse_toml(text: str, path: Path) -> dict[str, object]:
    """The tables of a TOML file. Raises `ConfigError` when it is none."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    try:
        table: dict[str, object] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {error}", where=str(path)) from error
    return table


def _checked(key: str, value: object, path: Path) -> Setting:
    where = f"{path} [tool.verifier]"
    kind = _KINDS.get(key)
    if kind is None:
        raise ConfigError(f"unknown key {key!r}", where=where, do=f"known: {', '.join((*_KINDS, _WAIVERS))}")
    if kind is list and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [str(item) for item in value]
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        return value
    wanted = {list: "a list of strings", bool: "true or false", str: "a string"}[kind]
    raise ConfigError(f"{key} must be {wanted}", where=where)
