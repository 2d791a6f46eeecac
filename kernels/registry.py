"""The kernels that `verifier verify` compiles: configuration, architectures, and the defects each can be built with.

This module imports neither the DSL nor a kernel, so that listing and selecting cost nothing. A kernel module offers
`build(config, defect) -> (kernel, arguments)`; compiling it means `cute.compile(kernel, *arguments)`.

To add a kernel: one file in this folder, one `KernelCase` in `CASES`. To add a defect: one `Defect` here, the branch
in the kernel, and `# defect: NAME` at the end of the line where a finding about it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from verifier.errors import ConfigError

BLACKWELL = ("sm_100a", "sm_103a")
MARKER = "# defect:"


@dataclass(frozen=True)
class Defect:
    """A reported bug that a kernel can be built with, and the rule that must report it."""

    name: str
    rule: str
    summary: str


@dataclass(frozen=True)
class KernelCase:
    """One kernel in one configuration; `config` maps option names to scalars."""

    name: str
    module: str
    config: Mapping[str, int | str | bool]
    archs: tuple[str, ...]
    defects: tuple[Defect, ...] = ()

    @property
    def source(self) -> Path:
        """The kernel's Python file."""
        return Path(__file__).parent / f"{self.module.rpartition('.')[2]}.py"

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

    def defect_lines(self, name: str) -> tuple[int, ...]:
        """Lines of `source` (from 1) whose trailing `# defect:` comment names this defect."""
        defect = self.defect(name)
        lines = self.source.read_text(encoding="utf-8").splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if defect.name in marked(line))


def marked(line: str) -> tuple[str, ...]:
    """Names after the defect marker of a source line; empty when it has none."""
    _, marker, names = line.partition(MARKER)
    return tuple(name.strip() for name in names.split(",")) if marker else ()


def case(name: str) -> KernelCase:
    """The case of this name; ConfigError when there is none."""
    for known in CASES:
        if known.name == name:
            return known
    raise ConfigError(f"unknown kernel {name!r}", do=f"known kernels: {', '.join(known.name for known in CASES)}")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        name="gemm_persistent",
        module="kernels.gemm_persistent",
        config=MappingProxyType(
            {
                "m": 8192,
                "n": 8192,
                "k": 4096,
                "tile_m": 128,
                "tile_n": 256,
                "tile_k": 64,
                "stages": 4,
                "store_buffers": 2,
                "reserved_columns": 48,
                "max_ctas": 148,
            }
        ),
        archs=BLACKWELL,
        defects=(
            Defect("release-before-load", "TCG103", "releases the accumulator before it reads the last shared subtile"),
            Defect("no-wait-ld", "TCG101", "releases the accumulator while the TMEM load may be in flight"),
            Defect("no-fence", "TCG102", "releases the accumulator by a relaxed arrive without a tcgen05 fence"),
        ),
    ),
    KernelCase(
        name="gemm_splitk_mailbox",
        module="kernels.gemm_splitk_mailbox",
        # Nine K tiles on four ranks: three ranks take three each, the last rank takes none.
        config=MappingProxyType(
            {
                "m": 256,
                "n": 7168,
                "k": 576,
                "tile_m": 128,
                "tile_n": 128,
                "tile_k": 64,
                "stages": 4,
                "split_k": 4,
            }
        ),
        archs=BLACKWELL,
        defects=(
            Defect("cta-scope-wait", "SCP301", "acquires the peers' partial sums at CTA scope"),
            Defect("acquire-cluster-wait", "PRF601", "invalidates L1 on each attempt of the mailbox wait"),
            Defect("wait-not-retried", "MBR201", "reads the mailbox after one attempt that may have failed"),
            Defect("missing-phase0-wait", "MBR202", "frees TMEM after a wait that may return for the phase before"),
        ),
    ),
)
