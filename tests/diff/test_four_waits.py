"""The case that the command exists for: four waits rewritten, everything renumbered."""

from __future__ import annotations

import pytest

from tests.diff.edits import (
    CLUSTER_WAIT,
    CTA_WAIT,
    PTX,
    RELAXED_WAIT,
    RESTRICTED_FENCE,
    compared,
    relax_waits,
    renumber,
)
from verifier.diff.claims import claims_of, sentence

BEFORE = PTX
AFTER = renumber(relax_waits(PTX))


def test_the_sentence_is_derived() -> None:
    comparison = compared(BEFORE, AFTER)
    assert sentence(comparison, claims_of(comparison)) == (
        "the generated code differs only at 4 waits, each now a relaxed cluster-scope try_wait followed by "
        "the sync_restrict acquire fence"
    )


def test_the_claim_has_the_right_numbers() -> None:
    comparison = compared(BEFORE, AFTER)
    (claim,) = claims_of(comparison)
    assert claim.count == 4
    assert claim.removed == (CTA_WAIT,)
    assert claim.added == (RELAXED_WAIT, RESTRICTED_FENCE)
    assert comparison.after.instructions == comparison.before.instructions + 4
    assert comparison.conflicts == 0
    assert comparison.reorders == 0
    assert comparison.renamed > 500


def test_the_claim_names_roles_and_python_lines() -> None:
    (claim,) = claims_of(compared(BEFORE, AFTER))
    assert [(place.role, place.location.file, place.location.line) for place in claim.places] == [
        ("tma-load", "kernels/gemm_splitk_mailbox.py", 199),
        ("tma-load", "kernels/gemm_splitk_mailbox.py", 207),
        ("mma", "kernels/gemm_splitk_mailbox.py", 222),
        ("mma", "kernels/gemm_splitk_mailbox.py", 233),
    ]


def test_the_other_direction_is_told_as_well() -> None:
    comparison = compared(AFTER, BEFORE)
    assert sentence(comparison, claims_of(comparison)) == (
        "the generated code differs only at 4 waits, each now an acquire CTA-scope try_wait"
    )


@pytest.mark.parametrize("count", [1, 2, 7])
def test_each_wait_is_a_place_of_its_own(count: int) -> None:
    (claim,) = claims_of(compared(BEFORE, renumber(relax_waits(PTX, count))))
    assert claim.count == count


def test_a_scope_alone_is_a_change() -> None:
    (claim,) = claims_of(compared(BEFORE, renumber(relax_waits(PTX, 1, CLUSTER_WAIT, ""))))
    assert claim.clause == "at 1 wait, now an acquire cluster-scope try_wait"


def test_one_deleted_fence_makes_two_claims() -> None:
    lines = relax_waits(PTX).split("\n")
    del lines[next(number for number, line in enumerate(lines) if RESTRICTED_FENCE in line)]
    claims = claims_of(compared(BEFORE, renumber("\n".join(lines))))
    assert sorted((claim.count, claim.added) for claim in claims) == [
        (1, (RELAXED_WAIT,)),
        (3, (RELAXED_WAIT, RESTRICTED_FENCE)),
    ]
