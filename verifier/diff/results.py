"""The outcome of one run of `verifier diff`, as every format renders it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from verifier.diff.kernels import KernelDiff
from verifier.diff.metrics import LOOPS, Delta, Metrics, family
from verifier.diff.sides import Side
from verifier.findings import Location

# Shown also where they are equal, because reviewers ask for them; the third is the sum over all opcodes of its family.
ALWAYS = ("registers", "spill store bytes", "stack bytes", "shared bytes", "CCTL.IVALL", "MEMBAR", "ERRBAR")


class DiffResults(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` are what was compared, as the user named it."""

    before: str
    after: str
    kernels: tuple[KernelDiff, ...]
    removed: tuple[Side, ...] = ()
    added: tuple[Side, ...] = ()

    @property
    def hunks(self) -> int:
        return sum(kernel.hunks for kernel in self.kernels)

    @property
    def differs(self) -> bool:
        return bool(self.removed or self.added) or any(kernel.differs for kernel in self.kernels)

    @property
    def toolchain(self) -> tuple[str, ...]:
        """What changed in the toolchain of any kernel."""
        return tuple(dict.fromkeys(change for kernel in self.kernels for change in kernel.toolchain))


def headline(results: DiffResults) -> str:
    """One sentence about all kernels."""
    changed = [kernel for kernel in results.kernels if kernel.differs]
    parts = [_kernels(results, changed)]
    for word, sides in (("removed", results.removed), ("added", results.added)):
        if sides:
            parts.append(f"{word}: {', '.join(f'{side.name} ({side.arch})' for side in sides)}")
    return "; ".join(parts)


def _kernels(results: DiffResults, changed: list[KernelDiff]) -> str:
    total = len(results.kernels)
    if total == 1 and not results.toolchain:
        return results.kernels[0].main.sentence if results.kernels[0].main else "nothing to compare"
    if not changed:
        what = "synchronize alike and have the same verdicts" if results.toolchain else "are the same code"
        return f"{many(total, 'kernel')}: {'all ' if total > 1 else ''}{what}"
    sentences = {kernel.main.sentence for kernel in changed if kernel.main}
    if len(sentences) == 1 and not results.toolchain:
        return f"{len(changed)} of {many(total, 'kernel')}: {sentences.pop()}"
    return f"{len(changed)} of {many(total, 'kernel')} changed"


class CostRow(msgspec.Struct, frozen=True):
    """One line of the cost table; `loops` is the same count within loops, where it differs."""

    name: str
    delta: Delta
    loops: Delta | None


def cost(metrics: Metrics) -> tuple[list[CostRow], int]:
    """(rows worth showing, number of other counts that are equal)."""
    rows = [CostRow(name, delta, _loops(metrics, name)) for name, delta in _shown(metrics).items()]
    names = {row.name for row in rows}
    return rows, sum(not name.endswith(LOOPS) and name not in names for name in metrics)


def _shown(metrics: Metrics) -> dict[str, Delta]:
    found: dict[str, Delta] = {}
    for name in ALWAYS:
        delta = family(metrics, name)
        if delta is not None:
            found[name] = delta
    for name, delta in metrics.items():
        total = name.removesuffix(LOOPS)
        if name.endswith(" instructions") or (delta.changed and not _is_ptx(total)):
            found.setdefault(total, metrics[total])
    return found


def _is_ptx(name: str) -> bool:
    """Whether a metric counts a PTX opcode, which the skeleton tells already."""
    return "." in name and not name.split(".")[0].isupper()


def _loops(metrics: Metrics, name: str) -> Delta | None:
    delta = family(metrics, name + LOOPS)
    return delta if delta is not None and delta.changed else None


def place(location: Location, roots: Sequence[str] = ()) -> str:
    """`kernels/gemm.py:412`, or the PTX line or SASS offset where no Python line is known."""
    if location.file and location.line:
        return f"{_below(location.file, roots)}:{location.line}"
    if location.ptx_line is not None:
        return f"PTX line {location.ptx_line}"
    return f"SASS {location.sass_offset:#06x}" if location.sass_offset is not None else ""


def _below(file: str, roots: Sequence[str]) -> str:
    """A path as seen from one of `roots` or from the working directory, where it lies below one of them."""
    for folder in (*roots, str(Path.cwd())):
        if folder and file.startswith(f"{folder.rstrip('/')}/"):
            return file[len(folder.rstrip("/")) + 1 :]
    return file


def near(where: str) -> str:
    """A place for people: of a file that lies elsewhere, only the end of its path."""
    return "/".join(where.split("/")[-2:]) if where.startswith("/") else where


def many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
