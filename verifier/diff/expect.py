"""The author's claim as a file, and whether it holds.

unlisted = "none"                  # kernels without an entry must not differ (the default); "any": they may

[[expect]]
kernel = "gemm_splitk_mailbox"     # a pattern; the entry is checked for each kernel that it matches
level = "ptx"
count = 4                          # places of this shape in each kernel
remove = ["mbarrier.try_wait.parity.acquire.cta.*"]
add = ["mbarrier.try_wait.parity.relaxed.cluster.*", "fence.acquire.sync_restrict::shared::cluster.cluster"]
others = "none"                    # a place that no entry claims is a failure (the default)
[expect.metrics]
registers = "="                    # also "+2", "<= 40", "<= +2"
"CCTL.IVALL" = "="
[expect.verdicts]
new = []                           # codes of rules
fixed = ["SCP301"]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from verifier.diff.bounds import check_metric
from verifier.diff.claims import opcodes
from verifier.diff.hunks import Hunk, HunkKind
from verifier.diff.kernels import KernelDiff, LevelDiff
from verifier.diff.phrases import notable
from verifier.diff.results import DiffResults, many, place
from verifier.errors import ConfigError
from verifier.findings import Finding

Tolerance = Literal["none", "any"]


class ExpectedVerdicts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules of the findings that are new or fixed; None where the claim does not say."""

    new: tuple[str, ...] | None = None
    fixed: tuple[str, ...] | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry. `kind` narrows it to hunks of one kind (`moved`, `operand`, ...)."""

    kernel: str = "*"
    arch: str = "*"
    level: Literal["ptx", "sass", "ir"] = "ptx"
    count: int = 0
    kind: HunkKind | None = None
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    others: Tolerance = "none"
    metrics: dict[str, str | int | float] = {}
    verdicts: ExpectedVerdicts = ExpectedVerdicts()

    def covers(self, kernel: KernelDiff) -> bool:
        return fnmatchcase(kernel.name, self.kernel) and fnmatchcase(kernel.arch, self.arch)

    def claims(self, hunk: Hunk) -> bool:
        """Whether a hunk has the shape of this entry; tests and branches need not be named."""
        if self.kind is not None and hunk.kind is not self.kind:
            return False
        return _fits(self.remove, hunk, "removed") and _fits(self.add, hunk, "added")


class ExpectFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expect: tuple[Expectation, ...] = ()
    unlisted: Tolerance = "none"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a claim holds: it does when there are no `failures`. `claimed` counts the hunks that entries claim."""

    file: str
    claimed: int
    failures: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.failures


def load_expectation(path: Path) -> ExpectFile:
    """Read a claim. Raises ConfigError when it cannot be read or has keys or values that make no sense."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=ExpectFile)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except msgspec.DecodeError as error:
        do = "docs/diff.md shows the format; `verifier diff ... --write-expect FILE` drafts one"
        raise ConfigError(f"is not a claim: {error}", where=str(path), do=do) from error


def check_expectation(claim: ExpectFile, results: DiffResults, file: str) -> Verdict:
    """Check every entry against every kernel. Raises ConfigError when an entry asks for what was not compared."""
    failures = [text for entry in claim.expect for text in _unmatched(entry, results)]
    claimed = 0
    for kernel in results.kernels:
        entries = [entry for entry in claim.expect if entry.covers(kernel)]
        if entries:
            found, texts = _check_kernel(kernel, entries)
            claimed += found
            failures += texts
        elif kernel.differs and claim.unlisted == "none":
            failures.append(f"{_title(kernel)}: {_what(kernel)}, which no entry claims")
    if claim.unlisted == "none":
        failures += [f"{side.name} ({side.arch}): removed, which no entry claims" for side in results.removed]
        failures += [f"{side.name} ({side.arch}): added, which no entry claims" for side in results.added]
    return Verdict(file=file, claimed=claimed, failures=tuple(failures))


def _unmatched(entry: Expectation, results: DiffResults) -> Iterator[str]:
    if not any(entry.covers(kernel) for kernel in results.kernels):
        yield f"no kernel {entry.kernel} ({entry.arch}) was compared"


def _check_kernel(kernel: KernelDiff, entries: Sequence[Expectation]) -> tuple[int, list[str]]:
    """(hunks claimed, failures) of one kernel."""
    title = _title(kernel)
    failures: list[str] = []
    claimed = 0
    for name in dict.fromkeys(entry.level for entry in entries):
        level = _level(kernel, name)
        own = [entry for entry in entries if entry.level == name]
        counts = [0] * len(own)
        for hunk in level.comparison.hunks:
            at = next((i for i, entry in enumerate(own) if entry.claims(hunk)), None)
            if at is not None:
                counts[at] += 1
            elif all(entry.others == "none" for entry in own):
                failures.append(f"{title}: 1 place {hunk.kind.value} that no entry claims: {_shown(hunk, kernel)}")
        claimed += sum(counts)
        failures += _wrong_counts(title, own, counts)
    for entry in entries:
        failures += [f"{title}: {text}" for text in _check_numbers(kernel, entry)]
    return claimed, failures


def _level(kernel: KernelDiff, name: str) -> LevelDiff:
    for level in kernel.levels:
        if level.level == name:
            return level
    raise ConfigError(
        f"the claim is about the {name.upper()} of {kernel.name}, which was not compared",
        do="both sides need it, made by the same tools; --level ir adds the IR",
    )


def _wrong_counts(title: str, entries: Sequence[Expectation], counts: Sequence[int]) -> Iterator[str]:
    for entry, count in zip(entries, counts, strict=True):
        if count != entry.count:
            yield f"{title}: {many(count, 'place')} of {_shape(entry)}, claimed {entry.count}"


def _check_numbers(kernel: KernelDiff, entry: Expectation) -> Iterator[str]:
    measured = frozenset(skeleton.level for skeleton in kernel.skeletons)
    for name, bound in entry.metrics.items():
        failure = check_metric(kernel.metrics, measured, name, bound)
        if failure:
            yield failure
    verdicts = kernel.verdicts
    for word, wanted, found in (
        ("new", entry.verdicts.new, verdicts.new),
        ("fixed", entry.verdicts.fixed, verdicts.fixed),
    ):
        if wanted is not None and set(wanted) != _codes(found):
            yield f"{word} findings are of {_list(_codes(found))}, claimed {_list(wanted)}"


def _codes(findings: Sequence[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


def _list(codes: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(codes)) or "no rule"


def _fits(patterns: Sequence[str], hunk: Hunk, side: str) -> bool:
    lines = hunk.removed if side == "removed" else hunk.added
    return any(_match(patterns, opcodes(some)) for some in (lines, notable(lines)))


def _match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return len(patterns) == len(names) and all(map(fnmatchcase, names, patterns))


def _title(kernel: KernelDiff) -> str:
    return f"{kernel.name} ({kernel.arch})"


def _what(kernel: KernelDiff) -> str:
    return kernel.main.sentence if kernel.main else "its synchronization or its verdicts changed"


def _shape(entry: Expectation) -> str:
    parts = [*(f"- {name}" for name in entry.remove), *(f"+ {name}" for name in entry.add)]
    return " ".join(parts) or "no instruction"


def _shown(hunk: Hunk, kernel: KernelDiff) -> str:
    where = place(hunk.lines[0].location, kernel.roots)
    parts = [*(f"- {name}" for name in opcodes(hunk.removed)), *(f"+ {name}" for name in opcodes(hunk.added))]
    return f"{' '.join(parts[:4])}{' ...' if len(parts) > 4 else ''} at {where}"
