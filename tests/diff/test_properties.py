"""Renaming is never a change, an edit always is: over random renamings and random edits."""

from __future__ import annotations

import random
import re
from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.diff.edits import PTX, compared, instruction_lines, listing, renumber

REGISTER = re.compile(r"%(?:r|rd|p|rs)\d+\b")
# What the example budget costs is a matter of the machine: no deadline.
SOME = settings(max_examples=15, deadline=None)


@given(seed=st.integers(0, 10**9))
@SOME
def test_a_renaming_is_never_a_hunk(seed: int) -> None:
    comparison = compared(PTX, renumber(PTX, seed))
    assert comparison.hunks == ()
    assert comparison.conflicts == 0


@given(seed=st.integers(0, 10**9), data=st.data())
@SOME
def test_deleting_or_repeating_a_line_is_always_a_hunk(seed: int, data: st.DataObject) -> None:
    lines = PTX.split("\n")
    at = data.draw(st.sampled_from(instruction_lines(PTX)))
    edited = [*lines[:at], *data.draw(st.sampled_from([[], [lines[at]] * 2])), *lines[at + 1 :]]
    comparison = compared(PTX, renumber("\n".join(edited), seed))
    assert comparison.hunks != ()
    assert len(comparison.hunks) <= 2


@given(seed=st.integers(0, 10**9), data=st.data())
@SOME
def test_another_register_in_one_place_is_always_a_hunk(seed: int, data: st.DataObject) -> None:
    lines = PTX.split("\n")
    at = data.draw(st.sampled_from([n for n in instruction_lines(PTX) if REGISTER.search(lines[n])]))
    place = data.draw(st.sampled_from(list(REGISTER.finditer(lines[at]))))
    kind = place[0].rstrip("0123456789")
    uses = Counter(name for n in instruction_lines(PTX) if n != at for name in REGISTER.findall(lines[n]))
    other = data.draw(st.sampled_from(sorted(name for name in uses if name.rstrip("0123456789") == kind)))
    assume(other != place[0])
    lines[at] = lines[at][: place.start()] + other + lines[at][place.end() :]
    assert compared(PTX, renumber("\n".join(lines), seed)).hunks != ()


@given(seed=st.integers(0, 10**9), data=st.data())
@SOME
def test_another_number_in_one_place_is_always_a_hunk(seed: int, data: st.DataObject) -> None:
    lines = PTX.split("\n")
    number = re.compile(r"(?<=[ +])\d+(?=[,;\]])")
    at = data.draw(st.sampled_from([n for n in instruction_lines(PTX) if number.search(lines[n])]))
    lines[at] = number.sub(lambda found: str(int(found[0]) + 1), lines[at], count=1)
    assert compared(PTX, renumber("\n".join(lines), seed)).hunks != ()


@given(seed=st.integers(0, 10**9))
@SOME
def test_neighbours_are_exchanged_for_free_only_where_nothing_depends(seed: int) -> None:
    """A reorder keeps every definition before its uses and the order of all that touches memory."""
    lines = PTX.split("\n")
    pairs = [(x, y) for x, y in zip(instruction_lines(PTX), instruction_lines(PTX)[1:], strict=False) if y == x + 1]
    first, second = random.Random(seed).choice(pairs)
    swapped = [*lines]
    swapped[first], swapped[second] = lines[second], lines[first]
    comparison = compared(PTX, renumber("\n".join(swapped), seed))
    if comparison.hunks or lines[first] == lines[second]:
        return
    written = set(REGISTER.findall(lines[first].partition(",")[0]))
    assert "bra" not in lines[first] + lines[second]
    assert not written & set(REGISTER.findall(lines[second].partition(",")[2]))


def test_a_long_kernel_against_itself_is_the_same() -> None:
    """The kernel's body eight times over: 4,300 instructions, every key many times."""
    head, _, rest = PTX.partition("{\n")
    body, _, end = rest.rpartition("\tret;\n")
    copies = [re.sub(r"\$L__BB0_", f"$L__BB{number}_", body) for number in range(1, 9)]
    declarations = "".join(line + "\n" for line in body.split("\n") if ".reg" in line)
    text = head + "{\n" + declarations + "".join(c.replace("\t.reg", "\t//") for c in copies) + "\tret;\n" + end
    before, after = listing(text), listing(renumber(text))
    assert before.instructions > 4_300
    assert compared(text, renumber(text)).hunks == ()
    edited = text.split("\n")
    del edited[instruction_lines(text)[3000]]
    assert 1 <= len(compared(text, renumber("\n".join(edited))).hunks) <= 2
    assert after.instructions == before.instructions
