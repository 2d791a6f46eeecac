"""What the engine makes of judgements: obligations, findings, counts, fingerprints; and of a rule that breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from verifier.config import Policy
from verifier.errors import InputError, InternalError
from verifier.findings import Hazard, Judgement, Location, Profile, Severity, Verdict
from verifier.rules import Role, Rule, RuleCount, RuleDoc, Subject, run_rules


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "gemm"
    arch: str = "sm_100a"
    source: str = "gemm.ptx"
    isas: frozenset[str] = frozenset({"ptx"})
    blind: dict[str, str] = msgspec.field(default_factory=dict)
    roles: tuple[Role, ...] = (Role("mma", (4,)),)
    metrics: dict[str, int | float] = msgspec.field(default_factory=lambda: {"registers": 40})


def make_rule(check: Callable[[Subject, Policy], Iterator[Judgement]], **changes: object) -> Rule:
    facts: dict[str, object] = {
        "code": "XYZ001",
        "name": "odd-thing",
        "hazard": Hazard.CONTRACT,
        "since": "0.1.0",
        "isa": ("ptx",),
        "arch": (),
        "doc": RuleDoc("Odd.", {}),
    }
    return Rule(**{**facts, **changes}, check=check)  # type: ignore[arg-type]


def judging(*judgements: Judgement) -> Rule:
    return make_rule(lambda kernel, policy: iter(judgements))


def judgement(verdict: Verdict, line: int = 1, **changes: object) -> Judgement:
    facts: dict[str, object] = {"role": "mma", "reason": "because", "shape": "arrive:bar0"}
    return Judgement(verdict=verdict, location=Location(ptx_line=line), **{**facts, **changes})  # type: ignore[arg-type]


def test_the_books_balance() -> None:
    rule = judging(
        judgement(Verdict.PROVED, line=1),
        judgement(Verdict.VIOLATED, line=2, message="it races"),
        judgement(Verdict.UNKNOWN, line=3),
    )
    outcome = run_rules(Kernel(), [rule], Policy())
    assert outcome.ledger == (RuleCount(rule="XYZ001", proved=1, violated=1, unknown=1),)
    assert [o.verdict for o in outcome.obligations] == [Verdict.PROVED, Verdict.VIOLATED, Verdict.UNKNOWN]
    assert [(f.verdict, f.message) for f in outcome.findings] == [
        (Verdict.VIOLATED, "it races"),
        (Verdict.UNKNOWN, "because"),
    ]
    assert outcome.roles == (Role("mma", (4,)),)
    assert outcome.metrics == {"registers": 40}


@pytest.mark.parametrize(
    ("verdicts", "stands"),
    [
        ([Verdict.PROVED, Verdict.VIOLATED, Verdict.UNKNOWN], Verdict.VIOLATED),
        ([Verdict.UNKNOWN, Verdict.PROVED], Verdict.UNKNOWN),
        ([Verdict.PROVED, Verdict.PROVED], Verdict.PROVED),
    ],
)
def test_streams_of_one_role_count_once_and_the_worst_stands(verdicts: list[Verdict], stands: Verdict) -> None:
    rule = judging(*map(judgement, verdicts), judgement(Verdict.PROVED, role="other"))
    mine, other = run_rules(Kernel(), [rule], Policy()).obligations
    assert (mine.verdict, other.verdict) == (stands, Verdict.PROVED)


def test_nothing_to_check_is_not_clean_and_not_skipped() -> None:
    (count,) = run_rules(Kernel(), [judging()], Policy()).ledger
    assert count.idle
    assert count.skipped == ""


@pytest.mark.parametrize(
    ("changes", "kernel", "reason"),
    [
        ({"isa": ("sass",)}, Kernel(), "needs SASS"),
        ({"isa": ("ptx", "sass")}, Kernel(isas=frozenset()), "needs PTX and SASS"),
        ({"arch": ("sm_100", "sm_103")}, Kernel(arch="sm_90a"), "not for sm_90a"),
    ],
)
def test_a_rule_that_does_not_apply_says_why(changes: dict[str, object], kernel: Kernel, reason: str) -> None:
    def fail(kernel: Subject, policy: Policy) -> Iterator[Judgement]:
        raise AssertionError("must not run")

    (count,) = run_rules(kernel, [make_rule(fail, **changes)], Policy()).ledger
    assert count.skipped == reason
    assert not count.idle


def test_a_rule_without_its_input_is_missed_and_one_for_another_architecture_is_not() -> None:
    def count(kernel: Kernel, **changes: object) -> RuleCount:
        return run_rules(kernel, [make_rule(lambda kernel, policy: iter(()), **changes)], Policy()).ledger[0]

    assert count(Kernel(), isa=("sass",)).missed
    assert not count(Kernel(), isa=("sass",), arch=("sm_90",)).missed
    assert not count(Kernel()).missed


def test_nothing_is_decided_where_code_is_not_seen() -> None:
    kernel = Kernel(blind={"ptx": "f, called at PTX line 7, is not followed"})
    outcome = run_rules(kernel, [judging(judgement(Verdict.PROVED), judgement(Verdict.VIOLATED, 2))], Policy())
    assert [o.verdict for o in outcome.obligations] == [Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert {f.message for f in outcome.findings} == {"cannot be decided: f, called at PTX line 7, is not followed"}
    (idle,) = run_rules(kernel, [judging()], Policy()).ledger
    assert idle.missed
    assert idle.skipped == kernel.blind["ptx"]
    sass = make_rule(lambda kernel, policy: iter([judgement(Verdict.PROVED)]), isa=("sass",))
    both = Kernel(blind=kernel.blind, isas=frozenset({"ptx", "sass"}))
    assert run_rules(both, [sass], Policy()).ledger[0].proved == 1


def test_an_architecture_variant_belongs_to_its_family() -> None:
    rule = make_rule(lambda kernel, policy: iter(()), arch=("sm_100",))
    for arch in ("sm_100", "sm_100a", "sm_100f"):
        assert run_rules(Kernel(arch=arch), [rule], Policy()).ledger[0].skipped == ""


def test_the_policy_reaches_the_rule() -> None:
    def check(kernel: Subject, policy: Policy) -> Iterator[Judgement]:
        severity = Severity.ERROR if policy.profile is Profile.ISA else Severity.NOTE
        yield judgement(Verdict.VIOLATED, severity=severity)

    (finding,) = run_rules(Kernel(), [make_rule(check)], Policy(profile=Profile.ISA)).findings
    assert finding.severity is Severity.ERROR


def test_a_broken_rule_is_an_internal_error_that_names_it() -> None:
    def check(kernel: Subject, policy: Policy) -> Iterator[Judgement]:
        yield judgement(Verdict.PROVED)
        raise KeyError("bar")

    with pytest.raises(InternalError, match="XYZ001 failed on kernel gemm: KeyError") as caught:
        run_rules(Kernel(), [make_rule(check)], Policy())
    assert caught.value.exit_code == 2


def test_a_deliberate_error_passes_through() -> None:
    def check(kernel: Subject, policy: Policy) -> Iterator[Judgement]:
        yield judgement(Verdict.PROVED)
        raise InputError("not this")

    with pytest.raises(InputError, match="not this"):
        run_rules(Kernel(), [make_rule(check)], Policy())


class TestFingerprint:
    def prints(self, *judgements: Judgement, kernel: str = "gemm") -> list[str]:
        return [f.fingerprint for f in run_rules(Kernel(name=kernel), [judging(*judgements)], Policy()).findings]

    def test_ignores_lines_and_words(self) -> None:
        one = self.prints(judgement(Verdict.VIOLATED, line=10, message="a"))
        assert one == self.prints(judgement(Verdict.VIOLATED, line=99, message="b"))

    def test_ignores_what_is_proved(self) -> None:
        bad = judgement(Verdict.VIOLATED)
        assert self.prints(bad) == self.prints(judgement(Verdict.PROVED, line=2), bad)

    @pytest.mark.parametrize("changes", [{"role": "epilogue"}, {"shape": "arrive:bar1"}])
    def test_tells_places_apart(self, changes: dict[str, str]) -> None:
        assert self.prints(judgement(Verdict.VIOLATED)) != self.prints(judgement(Verdict.VIOLATED, **changes))

    def test_tells_kernels_apart(self) -> None:
        bad = judgement(Verdict.VIOLATED)
        assert self.prints(bad) != self.prints(bad, kernel="other")

    def test_tells_equal_shapes_apart_by_order(self) -> None:
        twice = self.prints(judgement(Verdict.VIOLATED, line=1), judgement(Verdict.VIOLATED, line=2))
        assert len(set(twice)) == 2
        assert twice[0] == self.prints(judgement(Verdict.VIOLATED))[0]
