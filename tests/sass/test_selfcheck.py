"""The self-check of control data: passes where fields are read where they are, fails some bits off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from benchmarks.wait_bits import cleared, proving_bits, verdicts
from tests.sass.support import check, facts_of, judgements
from verifier.analyses.sass.controls import Controls
from verifier.analyses.sass.selfcheck import SelfCheck, self_check
from verifier.analyses.sass.side import Cubin
from verifier.compile.artifacts import Artifacts
from verifier.findings import Severity, Verdict
from verifier.parse import control

pytestmark = pytest.mark.toolchain

KERNELS = (("gemm_persistent", "sm_100a"), ("gemm_splitk_mailbox", "sm_103a"), ("hopper_gemm_persistent", "sm_90a"))


def checked(artifacts: Artifacts) -> SelfCheck:
    sass = facts_of(artifacts).sass
    assert sass is not None
    return self_check(sass.function, sass.cfg, Controls(sass.function))


@pytest.mark.parametrize(("name", "arch"), KERNELS)
def test_right_positions(compiled: Callable[..., Artifacts], name: str, arch: str) -> None:
    result = checked(compiled(name, arch))
    assert result.passed
    assert result.producers > 10
    assert not result.misses
    assert result.idle <= result.waits * 0.15


@pytest.mark.parametrize("shift", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("fields", [("_WAIT",), ("_WRITE",), ("_WAIT", "_WRITE", "_READ")])
@pytest.mark.parametrize(("name", "arch"), KERNELS)
def test_wrong_positions(
    compiled: Callable[..., Artifacts],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    arch: str,
    fields: tuple[str, ...],
    shift: int,
) -> None:
    artifacts = compiled(name, arch)
    for field in fields:
        monkeypatch.setattr(control, field, getattr(control, field) + shift)
    assert not checked(artifacts).passed


def test_what_is_not_understood_is_unknown_and_loud(
    compiled: Callable[..., Artifacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_WAIT", control._WAIT + 1)
    kernel = facts_of(compiled("gemm_persistent"))
    outcome = check(kernel, "SAS801")
    assert [o.verdict for o in outcome.obligations] == [Verdict.UNKNOWN]
    assert "control data fails its self-check" in outcome.findings[0].message
    evidence = [s.fact for j in judgements(kernel, "TCG101") for s in j.witness if "in this build" in s.fact]
    assert not evidence, "nothing violates TCG101 here"


def test_distrust_is_shared_by_all_functions_of_a_cubin(
    compiled: Callable[..., Artifacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = facts_of(compiled("gemm_persistent")).sass
    bad = facts_of(compiled("gemm_splitk_mailbox")).sass
    assert good is not None
    assert bad is not None
    assert not Cubin([good.function, bad.function]).distrust
    cubin = Cubin([good.function, bad.function])
    failing = SelfCheck(producers=1, waits=100, idle=100)
    monkeypatch.setitem(cubin.checks, bad.function.name, failing)
    assert bad.function.name in cubin.distrust


def test_a_contract_finding_without_trusted_sass_stays_an_error(
    compiled: Callable[..., Artifacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = compiled("gemm_persistent", "sm_100a", "no-wait-ld")
    monkeypatch.setattr(control, "_WAIT", control._WAIT + 1)
    found = [j for j in judgements(facts_of(artifacts), "TCG101") if j.verdict is Verdict.VIOLATED]
    assert found
    assert all(j.severity is Severity.ERROR for j in found)
    assert all(any("not known (control data" in s.fact for s in j.witness) for j in found)


@pytest.mark.parametrize("name", ["gemm_persistent", "gemm_splitk_mailbox"])
def test_every_proving_bit_matters(compiled: Callable[..., Artifacts], name: str) -> None:
    artifacts = compiled(name)
    bits = proving_bits(artifacts)
    assert bits
    assert set(verdicts(artifacts)) == {Verdict.PROVED}
    for bit in bits:
        assert artifacts.sass is not None
        mutant = structs.replace(artifacts, sass=cleared(artifacts.sass, bit))
        assert Verdict.VIOLATED in verdicts(mutant), bit


def test_a_single_lost_wait_is_told(compiled: Callable[..., Artifacts]) -> None:
    """One miss does not discredit the encoding, and is not passed over either."""
    artifacts = compiled("gemm_persistent")
    (bit,) = proving_bits(artifacts)
    assert artifacts.sass is not None
    found = judgements(facts_of(structs.replace(artifacts, sass=cleared(artifacts.sass, bit))), "SAS801")
    assert any("uses a register without a wait" in j.reason for j in found if j.verdict is Verdict.UNKNOWN)


def test_a_listing_without_encodings(compiled: Callable[..., Artifacts]) -> None:
    artifacts = compiled("gemm_persistent")
    assert artifacts.sass is not None
    bare = "\n".join(line.partition("/* 0x")[0] for line in artifacts.sass.splitlines())
    kernel = facts_of(structs.replace(artifacts, cubin=None, sass=bare))
    (found,) = judgements(kernel, "SAS801")
    assert found.verdict is Verdict.UNKNOWN
    assert "no encodings" in found.reason
    assert {j.verdict for j in judgements(kernel, "PRF601")} == {Verdict.PROVED}
