"""The author's claim: it holds, or says what it missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diff.conftest import Diff
from tests.diff.edits import PTX, RESTRICTED_FENCE, insert_before, relax_waits, renumber, replace_line
from verifier.cli.parts import LoadOptions
from verifier.cli.sides import load_sides
from verifier.diff.expect import check_expectation, load_expectation
from verifier.diff.kernels import Options, compare_kernel
from verifier.diff.results import DiffResults
from verifier.errors import ConfigError

AFTER = renumber(relax_waits(PTX))
CLAIM = """
[[expect]]
kernel = "other_name_*"
level = "ptx"
count = {count}
remove = ["mbarrier.try_wait.parity.acquire.cta.*"]
add = ["mbarrier.try_wait.parity.relaxed.cluster.*", "fence.acquire.sync_restrict::shared::cluster.cluster"]
others = "none"
[expect.metrics]
"{metric}" = {bound}
"""


def claim(folder: Path, text: str = "", **values: object) -> Path:
    file = folder / "claim.toml"
    defaults: dict[str, object] = {"count": 4, "metric": "PTX instructions", "bound": '"+4"'}
    file.write_text(text or CLAIM.format(**{**defaults, **values}))
    return file


def test_the_four_waits_are_as_claimed(diff: Diff, tmp_path: Path) -> None:
    ran = diff(PTX, AFTER, "--expect", claim(tmp_path))
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"the claim of {tmp_path}/claim.toml holds: 4 places as claimed"


def test_a_deleted_fence_breaks_the_claim(diff: Diff, tmp_path: Path) -> None:
    ran = diff(PTX, renumber(replace_line(relax_waits(PTX), RESTRICTED_FENCE, "")), "--expect", claim(tmp_path))
    assert ran.code == 1
    assert "3 places of - mbarrier.try_wait.parity.acquire.cta.* + mbarrier" in ran.out
    assert "claimed 4" in ran.out
    assert "that no entry claims: - mbarrier.try_wait" in ran.out


def test_anything_beside_the_claim_breaks_it(diff: Diff, tmp_path: Path) -> None:
    more = renumber(insert_before(relax_waits(PTX), "mov.b32 \t%r74, 1;", "mov.b32 \t%r0, 1;"))
    file = claim(tmp_path, metric="PTX instructions", bound='">= +4"')
    ran = diff(PTX, more, "--expect", file)
    assert ran.code == 1
    assert "1 place added that no entry claims: + mov.b32" in ran.out
    file.write_text(file.read_text().replace('others = "none"', 'others = "any"'))
    assert diff(PTX, more, "--expect", file).code == 0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> DiffResults:
    """The four waits, compared once; no rule is run."""
    sides = []
    for name, text in (("before", PTX), ("after", AFTER)):
        file = tmp_path_factory.mktemp("waits") / f"{name}.ptx"
        file.write_text(text)
        sides += load_sides(file, LoadOptions(assemble=False))
    return DiffResults(before="before", after="after", kernels=(compare_kernel(*sides, Options(rules=())),))


@pytest.mark.parametrize(
    ("metric", "bound", "holds"),
    [
        ("PTX instructions", '"+4"', True),
        ("PTX instructions", '"<= +4"', True),
        ("PTX instructions", '"<= +3"', False),
        ("PTX instructions", '"="', False),
        ("PTX instructions", "553", True),
        ("PTX instructions", '"< 553"', False),
        ("fence.acquire", '"+4"', True),
        ("fence.acquire in loops", '"+3"', True),
        ("fence.acq_rel.cluster", '"="', True),
    ],
)
def test_metrics_are_held_to_their_bounds(
    results: DiffResults, tmp_path: Path, metric: str, bound: str, holds: bool
) -> None:
    file = claim(tmp_path, metric=metric, bound=bound)
    assert check_expectation(load_expectation(file), results, "claim").holds is holds


@pytest.mark.parametrize(
    ("metric", "bound"), [("PTX instrs", '"="'), ("CCTL.IVALL", '"="'), ("PTX instructions", '"about 4"')]
)
def test_metrics_that_make_no_sense_are_refused(results: DiffResults, tmp_path: Path, metric: str, bound: str) -> None:
    with pytest.raises(ConfigError):
        check_expectation(load_expectation(claim(tmp_path, metric=metric, bound=bound)), results, "claim")


def test_an_empty_claim_says_that_nothing_changes(diff: Diff, tmp_path: Path) -> None:
    file = claim(tmp_path, "# no entry\n")
    assert diff(PTX, renumber(PTX), "--expect", file).code == 0
    ran = diff(PTX, AFTER, "--expect", file)
    assert ran.code == 1
    assert "which no entry claims" in ran.out
    file.write_text('unlisted = "any"\n')
    assert diff(PTX, AFTER, "--expect", file).code == 0


def test_a_claim_about_another_kernel_fails(diff: Diff, tmp_path: Path) -> None:
    ran = diff(
        PTX,
        AFTER,
        "--expect",
        claim(tmp_path, CLAIM.replace("other_name_*", "gemm").format(count=4, metric="x", bound=1)),
    )
    assert ran.code == 1
    assert "no kernel gemm (*) was compared" in ran.out


def test_verdicts_are_part_of_a_claim(diff: Diff, tmp_path: Path) -> None:
    text = CLAIM.format(count=4, metric="PTX instructions", bound='"+4"')
    assert diff(PTX, AFTER, "--expect", claim(tmp_path, text + "[expect.verdicts]\nnew = []\nfixed = []\n")).code == 0
    ran = diff(PTX, AFTER, "--expect", claim(tmp_path, text + '[expect.verdicts]\nfixed = ["SCP301"]\n'))
    assert ran.code == 1
    assert "fixed findings are of no rule, claimed SCP301" in ran.out


def test_a_draft_holds(diff: Diff, tmp_path: Path) -> None:
    file = tmp_path / "draft.toml"
    for after in (AFTER, renumber(PTX), replace_line(AFTER, ".reqntid 192", ".reqntid 224")):
        assert diff(PTX, after, "--write-expect", file).code == 0
        assert diff(PTX, after, "--expect", file).code == 0
    assert diff(PTX, PTX.replace("acquire.cta", "acquire.cluster"), "--expect", file).code == 1


def test_a_draft_goes_to_standard_output_as_well(diff: Diff) -> None:
    ran = diff(PTX, AFTER, "--write-expect")
    assert ran.code == 0
    assert "count = 4\n" in ran.out
    assert f'"{RESTRICTED_FENCE}"]\n' in ran.out


@pytest.mark.parametrize("text", ["[[expect]\n", "[[expect]]\nkernels = 'x'\n", "[[expect]]\ncount = 'four'\n"])
def test_a_claim_that_makes_no_sense_is_refused(diff: Diff, tmp_path: Path, text: str) -> None:
    ran = diff(PTX, AFTER, "--expect", claim(tmp_path, text))
    assert ran.code == 2
    assert "is not a claim" in ran.err


def test_a_missing_claim_is_refused(diff: Diff, tmp_path: Path) -> None:
    ran = diff(PTX, AFTER, "--expect", tmp_path / "none.toml")
    assert ran.code == 2
    assert "none.toml" in ran.err
