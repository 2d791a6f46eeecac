"""Which findings somebody waived: in the kernel's source, in the settings, in the baseline; and which waivers are idle.

A waived finding stays in every report, with its reason, and does not fail the run.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence

import msgspec

from verifier.config import Ignore
from verifier.findings import Finding, Suppressed, Waiver
from verifier.report.baseline import Baseline
from verifier.report.comments import Comment, find_comments
from verifier.rules import KernelOutcome, Rule

Read = Callable[[str], str]  # file -> its text, "" where it cannot be read

REWRITE = "verifier baseline"


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver that waived nothing, though what it waives was looked for. `key` names it across runs."""

    key: str
    text: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """`used` are keys of waivers that waived something; `problems` tells of those that cannot."""

    used: tuple[str, ...] = ()
    idle: tuple[Idle, ...] = ()
    problems: tuple[str, ...] = ()

    def notices(self) -> tuple[str, ...]:
        """What a user should tidy up."""
        return (*self.problems, *(idle.text for idle in self.idle))


def merge_usage(parts: Sequence[Usage]) -> Usage:
    """The usage of one run that was checked in parts: what one of them used is idle in none."""
    used = {key for part in parts for key in part.used}
    idle = {idle.key: idle for part in parts for idle in part.idle if idle.key not in used}
    problems = dict.fromkeys(problem for part in parts for problem in part.problems)
    return Usage(used=tuple(sorted(used)), idle=tuple(idle.values()), problems=tuple(problems))


class Waivers:
    """Applies waivers to kernels one by one and keeps count of what was used."""

    def __init__(
        self,
        read: Read,
        *,
        ignores: Sequence[Ignore] = (),
        baseline: Baseline | None = None,
        rules: Sequence[Rule] = (),
        display: Callable[[str], str] = str,
    ) -> None:
        self._read = read
        self._ignores = tuple(ignores)
        self._baseline = {entry.fingerprint: entry for entry in baseline.findings} if baseline else {}
        self._names = {rule.code: rule.name for rule in rules}
        self._display = display
        self._comments: dict[str, tuple[Comment, ...]] = {}
        self._used: set[str] = set()
        self._reached: set[tuple[str, str]] = set()  # (key of a comment, rule that looked there)
        self._matched: set[Ignore] = set()
        self._seen: set[tuple[str, str]] = set()  # (kernel, rule)

    def apply(self, outcome: KernelOutcome) -> KernelOutcome:
        """The outcome with waived findings set aside."""
        self._note(outcome)
        kept: list[Finding] = []
        waived: list[Suppressed] = []
        for finding in outcome.findings:
            found = self._waiver(finding, outcome)
            if found is None:
                kept.append(finding)
            else:
                waived.append(found)
        return msgspec.structs.replace(outcome, findings=tuple(kept), suppressed=(*outcome.suppressed, *waived))

    def usage(self, *, complete: bool = False) -> Usage:
        """What the waivers did so far. `complete`: everything that they may be meant for was checked."""
        problems = tuple(self._malformed())
        idle = [*self._idle_comments(complete), *self._idle_ignores(), *self._gone()]
        return Usage(used=tuple(sorted(map(str, self._used))), idle=tuple(idle), problems=problems)

    def _waiver(self, finding: Finding, outcome: KernelOutcome) -> Suppressed | None:
        file, line = finding.location.file, finding.location.line
        for comment in self._comments_of(file) if file and line else ():
            if comment.covers(line or 0) and any(self._selects(code, finding.rule) for code in comment.codes):
                self._used.add(_comment_key(file or "", comment))
                origin = f"{self._display(file or '')}:{comment.line}"
                return _suppressed(finding, Waiver.SOURCE, comment.reason, origin)
        for ignore in self._ignores:
            if self._selects(ignore.code, finding.rule) and _concerns(ignore, outcome):
                self._used.add(ignore.key)
                return _suppressed(finding, Waiver.SETTINGS, ignore.reason, ignore.origin)
        if finding.fingerprint in self._baseline:
            self._used.add(finding.fingerprint)
            return _suppressed(finding, Waiver.BASELINE, "known when the baseline was written", "baseline")
        return None

    def _note(self, outcome: KernelOutcome) -> None:
        """Remember where rules looked, to tell an idle waiver from one that this run never came to."""
        ran = [count.rule for count in outcome.ledger if not count.skipped]
        self._seen.update((outcome.name, rule) for rule in ran)
        for obligation in outcome.obligations:
            file, line = obligation.location.file, obligation.location.line
            for comment in self._comments_of(file) if file and line else ():
                if comment.covers(line or 0):
                    self._reached.add((_comment_key(file or "", comment), obligation.rule))
        self._matched.update(ignore for ignore in self._ignores if _concerns(ignore, outcome))

    def _comments_of(self, file: str) -> tuple[Comment, ...]:
        if file not in self._comments:
            self._comments[file] = find_comments(self._read(file), file)
        return self._comments[file]

    def _selects(self, code: str, rule: str) -> bool:
        return rule.startswith(code.upper()) or code == self._names.get(rule)

    def _malformed(self) -> Iterator[str]:
        for file, comments in self._comments.items():
            for comment in comments:
                if comment.problem:
                    yield f"{self._display(file)}:{comment.line}: a waiver without effect, it {comment.problem}"

    def _idle_comments(self, complete: bool) -> Iterator[Idle]:
        everywhere = {rule for _, rule in self._seen} if complete else set()
        for file, comments in self._comments.items():
            for comment in comments:
                key = _comment_key(file, comment)
                ran = everywhere | {rule for reached, rule in self._reached if reached == key}
                codes = [code for code in comment.codes if any(self._selects(code, rule) for rule in ran)]
                if codes and not comment.problem and key not in self._used:
                    place = f"{self._display(file)}:{comment.line}"
                    yield Idle(key=key, text=f"{place}: unused waiver of {', '.join(codes)}, take it out")

    def _idle_ignores(self) -> Iterator[Idle]:
        for ignore in self._ignores:
            ran = any(fnmatch.fnmatchcase(k, ignore.kernel) and self._selects(ignore.code, r) for k, r in self._seen)
            if ignore in self._matched and ran and ignore.key not in self._used:
                text = f"{ignore.origin}: unused waiver of {ignore.code} for kernel {ignore.kernel}, take it out"
                yield Idle(key=ignore.key, text=text)

    def _gone(self) -> Iterator[Idle]:
        for key, entry in self._baseline.items():
            if key not in self._used and (entry.kernel, entry.rule) in self._seen:
                text = f"the baseline holds a {entry.rule} of {entry.kernel} that is gone; write it again: {REWRITE}"
                yield Idle(key=key, text=text)


def _comment_key(file: str, comment: Comment) -> str:
    return f"{file}:{comment.line}"


def _concerns(ignore: Ignore, outcome: KernelOutcome) -> bool:
    toolchain = " ".join(outcome.toolchain.values())
    return (
        fnmatch.fnmatchcase(outcome.name, ignore.kernel)
        and fnmatch.fnmatchcase(outcome.arch, ignore.arch)
        and fnmatch.fnmatchcase(toolchain, f"*{ignore.toolchain}*")
    )


def _suppressed(finding: Finding, waiver: Waiver, reason: str, origin: str) -> Suppressed:
    return Suppressed(finding=finding, waiver=waiver, reason=reason, origin=origin)
