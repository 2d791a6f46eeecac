"""Machine code: webs instead of registers, schedules instead of orders."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.diff.edits import SASS, machine_compared, machine_listing
from verifier.diff.hunks import HunkKind
from verifier.diff.skeleton import compare_skeletons

SOME = settings(max_examples=8, deadline=None)


def reallocate(text: str, seed: int) -> str:
    """Registers moved up by a multiple of four, predicates permuted, labels renamed, every address shifted."""
    chance = random.Random(seed)
    shift = {"R": 4 * chance.randrange(1, 20), "UR": 4 * chance.randrange(1, 4)}
    predicates = {kind: chance.sample(range(7), 7) for kind in ("P", "UP")}

    def register(found: re.Match[str]) -> str:
        kind, number = found[1], int(found[2])
        return f"{kind}{predicates[kind][number] if kind in predicates else number + shift[kind]}"

    code = re.compile(r"(/\*[0-9a-f]{4}\*/)([^;\n]*;)")
    text = code.sub(lambda found: found[1] + re.sub(r"\b(UR|UP|R|P)(\d+)\b", register, found[2]), text)
    return re.sub(r"\.L_x_(\d+)", lambda found: f".L_y_{int(found[1]) + 100}", text)


def code_lines(text: str) -> list[int]:
    return [number for number, line in enumerate(text.split("\n")) if re.match(r" +/\*[0-9a-f]{4}\*/", line)]


def without(text: str, number: int) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[:number], *lines[number + 1 :]])


@given(seed=st.integers(0, 10**9))
@SOME
def test_another_allocation_is_no_change(seed: int) -> None:
    comparison = machine_compared(SASS, reallocate(SASS, seed))
    assert comparison.hunks == ()
    assert comparison.renamed > 100


@given(seed=st.integers(0, 10**9), data=st.data())
@SOME
def test_a_deleted_instruction_is_always_a_hunk(seed: int, data: st.DataObject) -> None:
    lines = SASS.split("\n")
    # Padding behind the last exit, and branches to labels, whose loss would leave the listing without its shape.
    numbers = [
        n for n in code_lines(SASS) if "NOP" not in lines[n] and "BRA" not in lines[n] and "EXIT" not in lines[n]
    ]
    assert machine_compared(SASS, reallocate(without(SASS, data.draw(st.sampled_from(numbers))), seed)).hunks != ()


def test_reuse_flags_and_control_words_are_put_aside() -> None:
    lines = SASS.split("\n")
    at = next(n for n in code_lines(SASS) if re.search(r"IADD3 .*R\d+, R", lines[n]) or "LOP3.LUT R" in lines[n])
    edited = re.sub(r", R(\d+),", r", R\1.reuse,", lines[at], count=1)
    assert edited != lines[at]
    assert machine_compared(SASS, "\n".join([*lines[:at], edited, *lines[at + 1 :]])).hunks == ()


def test_a_rescheduled_instruction_is_counted() -> None:
    lines = SASS.split("\n")
    first = next(n for n in code_lines(SASS) if "S2R R0, SR_TID.X" in lines[n])
    second = next(n for n in code_lines(SASS) if "S2UR UR9, SR_CgaCtaId" in lines[n])
    lines[first], lines[second] = lines[second], lines[first]
    comparison = machine_compared(SASS, reallocate("\n".join(lines), 3))
    assert comparison.hunks == ()
    assert comparison.reorders == 1


def test_a_moved_arrive_is_a_change() -> None:
    lines = SASS.split("\n")
    load = next(n for n in code_lines(SASS) if "LDTM" in lines[n])
    arrive = next(n for n in reversed(code_lines(SASS)) if n < load and "SYNCS.ARRIVE" in lines[n])
    moved = [*lines[:arrive], *lines[arrive + 1 : load + 1], lines[arrive], *lines[load + 1 :]]
    assert any(hunk.kind is HunkKind.MOVED for hunk in machine_compared(SASS, "\n".join(moved)).hunks)


def test_the_skeleton_is_only_what_synchronizes() -> None:
    before = machine_listing(SASS)
    lines = SASS.split("\n")
    plain = next(n for n in code_lines(SASS) if "SHF.R.U32.HI" in lines[n])
    invalidate = next(n for n in code_lines(SASS) if "CCTL.IVALL" in lines[n])
    same = compare_skeletons(before, machine_listing(without(SASS, plain)))
    assert same.identical
    assert same.before == same.after == 91
    other = compare_skeletons(before, machine_listing(without(SASS, invalidate)))
    assert not other.identical
    assert other.removed == (("CCTL.IVALL", 1),)
    assert other.added == ()


def test_a_return_address_is_a_label() -> None:
    """`MOV R2, 0x60` before a call names the place behind the call, wherever that is."""
    text = """
\t.target\tsm_100a
\t.section\t.text.k,"ax",@progbits
        .global         k
        .type           k,@function
        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/                   MOV R2, {address} ;
{filler}        /*{call}*/                   CALL.REL.NOINC `(f) ;
        /*{behind}*/                   EXIT ;
        .type           f,@function
f:
        /*{inside}*/                   RET.REL.NODEC R2 `(k) ;
"""

    def build(fillers: int) -> str:
        offsets = [0x20 + 16 * number for number in range(fillers + 3)]
        filler = "".join(f"        /*{at:04x}*/                   NOP ;\n" for at in offsets[:fillers])
        call, behind, inside = (f"{at:04x}" for at in offsets[fillers:])
        return text.format(address=hex(int(behind, 16)), filler=filler, call=call, behind=behind, inside=inside)

    comparison = machine_compared(build(0), build(1))
    (hunk,) = comparison.hunks
    assert [line.opcode for line in hunk.added] == ["NOP"]
