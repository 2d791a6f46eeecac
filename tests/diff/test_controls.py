"""Negative controls: what is no change is not told, what is one is never missed."""

from __future__ import annotations

from tests.diff.edits import PTX, compared, insert_before, relax_waits, renumber, replace_line
from verifier.diff.claims import claims_of, sentence
from verifier.diff.hunks import HunkKind

COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 \t[%r11]"


def exchange(text: str, first: str, second: str) -> str:
    """Two lines exchanged, of which the second follows the first."""
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if first in line)
    to = next(n for n, line in enumerate(lines) if n > at and second in line)
    lines[at], lines[to] = lines[to], lines[at]
    return "\n".join(lines)


def test_a_renumbering_alone_is_no_change() -> None:
    comparison = compared(PTX, renumber(PTX))
    assert comparison.hunks == ()
    assert comparison.matching.is_identity
    assert comparison.renamed > 500
    assert sentence(comparison, ()) == "the generated code is the same"


def test_positions_counts_and_comments_are_no_change() -> None:
    other = replace_line(PTX, ".reg .b32 \t%r<420>", ".reg .b32 \t%r<999>")
    other = insert_before(replace_line(other, ".loc\t1 199 12", ".loc\t1 777 3"), "ret;", "// a comment")
    other = insert_before(other, "ret;", "$unused:")
    assert compared(PTX, other).hunks == ()


def test_a_swapped_operand_is_caught_among_hundreds_of_renames() -> None:
    edited = renumber(
        replace_line(relax_waits(PTX), "mbarrier.init.shared.b64 \t[%r7]", "mbarrier.init.shared.b64 \t[%r6]")
    )
    comparison = compared(PTX, edited)
    claims = claims_of(comparison)
    assert sorted((claim.kind, claim.count) for claim in claims) == [(HunkKind.CHANGED, 4), (HunkKind.OPERAND, 1)]
    assert comparison.conflicts == 1
    (operand,) = (claim for claim in claims if claim.kind is HunkKind.OPERAND)
    assert operand.clause == "at 1 `mbarrier.init.shared.b64`, where an operand now comes from another definition"


def test_one_inserted_move_is_one_hunk() -> None:
    edited = insert_before(PTX, "mov.b32 \t%r74, 1;", "mov.b32 \t%r0, 1;")
    comparison = compared(PTX, renumber(edited))
    (hunk,) = comparison.hunks
    assert hunk.kind is HunkKind.ADDED
    assert [line.opcode for line in hunk.added] == ["mov.b32"]
    assert comparison.conflicts == 0


def test_exchanged_independent_instructions_are_a_reorder() -> None:
    edited = exchange(PTX, "add.s32 \t%r6, %r1, 64", "add.s32 \t%r417, %r1, 80")
    comparison = compared(PTX, renumber(edited))
    assert comparison.hunks == ()
    assert comparison.reorders > 0
    assert not comparison.matching.is_identity


def test_exchanged_dependent_instructions_are_a_change() -> None:
    edited = exchange(PTX, "shl.b32 \t%r396, %r409, 3", "add.s32 \t%r11, %r1, %r396")
    comparison = compared(PTX, renumber(edited))
    assert comparison.hunks != ()
    assert comparison.reorders == 0


def test_exchanged_stores_are_a_change() -> None:
    edited = exchange(PTX, "mbarrier.init.shared.b64 \t[%r6], %r74", "mbarrier.init.shared.b64 \t[%r7], %r75")
    # The constant that the second one needs stands between them, so only one of the two orders is even valid code.
    comparison = compared(PTX, edited)
    assert any(hunk.kind in (HunkKind.MOVED, HunkKind.OPERAND, HunkKind.CHANGED) for hunk in comparison.hunks)


def test_a_load_moved_above_a_release_is_told_as_such() -> None:
    lines = PTX.split("\n")
    load = next(n for n, line in enumerate(lines) if "tcgen05.ld" in line)
    arrive = "\tmbarrier.arrive.shared.b64 \t%rd0, [%r7];"
    before = "\n".join([*lines[:load], arrive, *lines[load:]])
    after = "\n".join([*lines[: load + 1], arrive, *lines[load + 1 :]])
    comparison = compared(before, renumber(after))
    claims = claims_of(comparison)
    assert sentence(comparison, claims) == (
        "the generated code differs only in order: the TMEM load moved above the release (`mbarrier.arrive`) "
        "in the epilogue role"
    )


def test_a_changed_immediate_is_shown() -> None:
    (claim,) = claims_of(compared(PTX, renumber(replace_line(PTX, "mov.b32 \t%r75, 160", "mov.b32 \t%r75, 128"))))
    assert claim.clause == "at 1 `mov.b32`: `mov.b32 %r, 160` is now `mov.b32 %r, 128`"


def test_a_moved_label_is_a_change() -> None:
    lines = PTX.split("\n")
    label = lines.index("$L__BB0_7:")
    moved = [*lines[: label - 1], lines[label], lines[label - 1], *lines[label + 1 :]]
    assert compared(PTX, renumber("\n".join(moved))).hunks != ()


def test_a_declaration_is_a_change() -> None:
    (claim,) = claims_of(compared(PTX, renumber(replace_line(PTX, ".reqntid 192, 1, 1", ".reqntid 224, 1, 1"))))
    assert claim.kind is HunkKind.DECLARATION
    assert claim.clause == "in what is declared: `.reqntid 224, 1, 1` in place of `.reqntid 192, 1, 1`"


def test_a_pragma_is_a_change() -> None:
    assert compared(PTX, replace_line(PTX, ".pragma", "")).hunks != ()


def test_negative_zero_is_not_zero() -> None:
    text = insert_before(PTX, "ret;", "mov.f32 \t%r0, 0f00000000;")
    other = text.replace("0f00000000", "0f80000000")
    assert other != text
    assert len(compared(text, other).hunks) == 1
