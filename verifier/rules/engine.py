"""Run rules over one kernel and keep the books: obligations, findings, counts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from verifier.config import Policy, arch_family
from verifier.errors import InternalError, VerifierError
from verifier.findings import Finding, Judgement, Location, Obligation, Severity, Suppressed, Verdict

if TYPE_CHECKING:
    from verifier.rules.registry import Rule


class Role(msgspec.Struct, frozen=True):
    """Warps of a block that run one and the same stream, and what they are called for what they do."""

    name: str
    warps: tuple[int, ...]


class RoleLike(Protocol):
    """What a role must tell."""

    @property
    def name(self) -> str: ...
    @property
    def warps(self) -> tuple[int, ...]: ...


class Subject(Protocol):
    """The little that the engine asks of a kernel; rules take a type that knows more."""

    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def source(self) -> str:
        """Where the kernel came from, as the user named it."""

    @property
    def isas(self) -> frozenset[str]:
        """What is at hand: "ptx", "sass" or both."""

    @property
    def blind(self) -> Mapping[str, str]:
        """By instruction set, why nothing can be decided there: the kernel runs code that is not seen."""

    @property
    def roles(self) -> Sequence[RoleLike]: ...
    @property
    def metrics(self) -> Mapping[str, int | float]: ...


Check = Callable[[Subject, Policy], Iterator[Judgement]]


class RuleCount(msgspec.Struct, frozen=True, kw_only=True):
    """What one selected rule found to check in one kernel. `skipped` says why it was not run, if it was not; `missed`
    that it would have had to be: what it reads is not at hand."""

    rule: str
    proved: int = 0
    violated: int = 0
    unknown: int = 0
    skipped: str = ""
    missed: bool = False

    @property
    def idle(self) -> bool:
        """It ran and there was nothing to check."""
        return not self.skipped and self.proved + self.violated + self.unknown == 0


class KernelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the rules said about one kernel.

    Whoever loaded it adds `toolchain`, what built it as far as known; `assumptions`, what had to be assumed about its
    launch; and `unknown_opcodes`, instructions that the tables do not know, with their number. A finding that somebody
    waived is in `suppressed` instead of `findings`; the ledger counts its obligation all the same.
    """

    name: str
    arch: str
    source: str
    roles: tuple[Role, ...]
    obligations: tuple[Obligation, ...]
    findings: tuple[Finding, ...]
    ledger: tuple[RuleCount, ...]
    metrics: dict[str, int | float]
    toolchain: dict[str, str] = {}
    assumptions: tuple[str, ...] = ()
    unknown_opcodes: dict[str, int] = {}
    suppressed: tuple[Suppressed, ...] = ()


def run_rules(kernel: Subject, rules: Sequence[Rule], policy: Policy) -> KernelOutcome:
    """Check one kernel. Raises `InternalError`, naming rule and kernel, when a rule fails."""
    obligations: list[Obligation] = []
    findings: list[Finding] = []
    ledger: list[RuleCount] = []
    for rule in rules:
        skipped = _not_run(rule, kernel)
        if skipped is not None:
            ledger.append(skipped)
            continue
        judgements = _judge(rule, kernel, policy)
        unseen = next((kernel.blind[isa] for isa in rule.isa if isa in kernel.blind), "")
        if unseen and not judgements:
            ledger.append(RuleCount(rule=rule.code, skipped=unseen, missed=True))
            continue
        judgements = [_undecided(judgement, unseen) for judgement in judgements] if unseen else judgements
        obligations += (_obligation(rule, judgement) for judgement in judgements)
        findings += _findings(rule, kernel.name, judgements)
        counts = Counter(judgement.verdict for judgement in judgements)
        ledger.append(
            RuleCount(
                rule=rule.code,
                proved=counts[Verdict.PROVED],
                violated=counts[Verdict.VIOLATED],
                unknown=counts[Verdict.UNKNOWN],
            )
        )
    return KernelOutcome(
        name=kernel.name,
        arch=kernel.arch,
        source=kernel.source,
        roles=tuple(Role(role.name, tuple(role.warps)) for role in kernel.roles),
        obligations=tuple(obligations),
        findings=tuple(findings),
        ledger=tuple(ledger),
        metrics=dict(kernel.metrics),
    )


def fingerprint(code: str, kernel: str, role: str, shape: str, ordinal: int = 0) -> str:
    """Identity of a finding across builds: no line numbers, no registers. `ordinal` tells equal ones apart."""
    parts = [code, kernel, role, shape, *([str(ordinal)] if ordinal else [])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _not_run(rule: Rule, kernel: Subject) -> RuleCount | None:
    """What the ledger says of a rule that does not apply, or whose input is not at hand; None when it is run."""
    if rule.arch and arch_family(kernel.arch) not in rule.arch:
        return RuleCount(rule=rule.code, skipped=f"not for {kernel.arch}")
    missing = [isa for isa in rule.isa if isa not in kernel.isas]
    if missing:
        return RuleCount(rule=rule.code, skipped=f"needs {' and '.join(isa.upper() for isa in missing)}", missed=True)
    return None


def _undecided(judgement: Judgement, unseen: str) -> Judgement:
    """A judgement on a kernel that runs code that is not seen: whatever it rests on, that code may change."""
    return Judgement(
        verdict=Verdict.UNKNOWN,
        role=judgement.role,
        location=judgement.location,
        reason=unseen,
        message=f"cannot be decided: {unseen}",
        severity=Severity.WARNING,
        shape=f"{judgement.shape}: not followed",
    )


def _judge(rule: Rule, kernel: Subject, policy: Policy) -> list[Judgement]:
    try:
        return one_per_place(rule.check(kernel, policy))
    except VerifierError:
        raise
    except Exception as error:
        raise InternalError(
            f"rule {rule.code} failed on kernel {kernel.name}: {type(error).__name__}: {error}", where=kernel.source
        ) from error


_WORSE = {Verdict.PROVED: 0, Verdict.UNKNOWN: 1, Verdict.VIOLATED: 2}


def one_per_place(judgements: Iterator[Judgement]) -> list[Judgement]:
    """Streams of one role share code: of several judgements on one place of one role, the worst stands."""
    worst: dict[tuple[str, Location], Judgement] = {}
    for judgement in judgements:
        key = (judgement.role, judgement.location)
        known = worst.get(key)
        if known is None or _WORSE[judgement.verdict] > _WORSE[known.verdict]:
            worst[key] = judgement
    return list(worst.values())


def _obligation(rule: Rule, judgement: Judgement) -> Obligation:
    return Obligation(
        rule=rule.code,
        verdict=judgement.verdict,
        role=judgement.role,
        location=judgement.location,
        reason=judgement.reason,
    )


def _findings(rule: Rule, kernel: str, judgements: Sequence[Judgement]) -> Iterator[Finding]:
    seen: Counter[tuple[str, str]] = Counter()
    for judgement in judgements:
        if judgement.verdict is Verdict.PROVED:
            continue
        key = (judgement.role, judgement.shape)
        yield Finding(
            rule=rule.code,
            name=rule.name,
            severity=judgement.severity,
            hazard=judgement.hazard,
            verdict=judgement.verdict,
            kernel=kernel,
            role=judgement.role,
            message=judgement.message or judgement.reason,
            fingerprint=fingerprint(rule.code, kernel, judgement.role, judgement.shape, seen[key]),
            location=judgement.location,
            witness=judgement.witness,
            fix=judgement.fix,
        )
        seen[key] += 1
