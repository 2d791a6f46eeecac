"""What a registered kernel is: its module, configuration and architectures, and the defects it can be built with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from verifier.errors import ConfigError

Setting = int | str | bool

MARKER = "# defect:"


@dataclass(frozen=True)
class Defect:
    """A reported bug that a kernel can be built with, and the rule that must report it.

    `module` holds the line that a finding belongs to, where that is not the kernel's own module. `also` names rules
    that report what follows from the defect.
    """

    name: str
    rule: str
    summary: str
    module: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelCase:
    """One kernel in one configuration; `config` maps option names to scalars."""

    name: str
    module: str
    config: Mapping[str, Setting]
    archs: tuple[str, ...]
    defects: tuple[Defect, ...] = ()

    @property
    def source(self) -> Path:
        """The kernel's Python file."""
        return _file(self.module)

    def defect(self, name: str) -> Defect:
        """The defect of this name; ConfigError when the kernel has none."""
        for defect in self.defects:
            if defect.name == name:
                return defect
        known = ", ".join(defect.name for defect in self.defects) or "none"
        raise ConfigError(f"unknown defect {name!r}", where=f"kernel {self.name}", do=f"it has: {known}")

    def check_defect(self, name: str | None) -> None:
        """ConfigError unless `name` is None or a defect of this kernel."""
        if name is not None:
            self.defect(name)

    def defect_source(self, name: str) -> Path:
        """The Python file with the line that a finding about this defect belongs to."""
        return _file(self.defect(name).module or self.module)

    def defect_lines(self, name: str) -> tuple[int, ...]:
        """Lines of `defect_source` (from 1) whose trailing `# defect:` comment names this defect."""
        lines = self.defect_source(name).read_text(encoding="utf-8").splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if name in marked(line))


def settings(base: Mapping[str, Setting] = MappingProxyType({}), /, **options: Setting) -> Mapping[str, Setting]:
    """A configuration, which nobody can change; where it differs from `base`."""
    return MappingProxyType({**base, **options})


def _file(module: str) -> Path:
    return Path(__file__).parent / f"{module.rpartition('.')[2]}.py"


def marked(line: str) -> tuple[str, ...]:
    """Names after the defect marker of a source line; empty when it has none."""
    _, marker, names = line.partition(MARKER)
    return tuple(name.strip() for name in names.split(",")) if marker else ()
