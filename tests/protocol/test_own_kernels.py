"""The project's persistent GEMM and split-K GEMM: proved as they are, violated under the right rule when broken."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.protocol.support import facts, judge, stored, swapped, verdicts, violated, without
from verifier.findings import Verdict

GEMM = stored("gemm_persistent")
SPLIT_K = stored("gemm_splitk_mailbox")
CLUSTER = (1, 1, 4)


def test_the_persistent_gemm_is_proved_for_any_number_of_tiles() -> None:
    kernel = facts(GEMM)
    assert all(seen == {Verdict.PROVED} for seen in verdicts(kernel).values())
    protocol = kernel.protocol
    assert protocol is not None
    assert protocol.recurrence is not None
    assert protocol.recurrence.period == 2
    assert protocol.drained
    (judgement,) = judge(kernel, "TCG103")
    assert "any number of rounds" in judgement.reason


def move_release_before_load(text: str) -> str:
    """The release (fence and arrive) of the last shared subtile ahead of the load of that subtile."""
    lines = text.split("\n")
    load = next(i for i, line in enumerate(lines) if "tcgen05.ld" in line)
    wait = next(i for i in range(load, len(lines)) if "tcgen05.wait::ld" in lines[i])
    arrive = next(i for i in range(wait, len(lines)) if "mbarrier.arrive" in lines[i])
    branch = next(i for i in range(wait, arrive) if "bra" in lines[i])
    label = next(i for i in range(arrive, len(lines)) if lines[i].startswith("$"))
    release = lines[branch : label + 1]
    return "\n".join([*lines[:load], *release, *lines[load:branch], *lines[label + 1 :]])


def test_a_release_before_the_last_shared_load_names_the_unread_columns() -> None:
    kernel = facts(move_release_before_load(GEMM))
    (judgement,) = judge(kernel, "TCG103")
    assert judgement.verdict is Verdict.VIOLATED
    assert "[208, 224) in phase 0, [240, 256) in phase 1" in judgement.message
    assert judgement.role == "epilogue"
    assert "mbarrier.arrive" in line_of(kernel, judgement.location.ptx_line)
    roles = [step.role for step in judgement.witness]
    assert roles == ["epilogue", "epilogue", "mma", "mma", "epilogue"]
    assert violated(kernel) == {"TCG103"}


def line_of(kernel: object, line: int | None) -> str:
    assert line is not None
    return move_release_before_load(GEMM).split("\n")[line - 1]


MUTANTS = {
    "store buffer not waited for": (without(GEMM, r"wait_group\.read\s+1"), {"MEM401"}),
    "no barrier before the store": (without(GEMM, r"bar\.sync\s+1, 128"), {"MEM401"}),
    "no barrier after the store": (without(GEMM, r"bar\.sync\s+1, 128", 1), {"MEM401"}),
    "no handshake before dealloc": (
        without(without(GEMM, r"bar\.sync\s+2, 160", 1), r"bar\.sync\s+2, 160", 2),
        {"TCG104"},
    ),
    "no dealloc": (without(GEMM, r"tcgen05\.dealloc"), {"TCG104"}),
    "half of the arrivals expected": (re.sub(r"(mov\.b32\s+%r\d+), 128;", r"\1, 64;", GEMM), {"CTL703", "MBR203"}),
    "one arrival too many expected": (re.sub(r"(mov\.b32\s+%r\d+), 128;", r"\1, 129;", GEMM), {"CTL703", "MBR203"}),
    "16 bytes too few announced": (swapped(GEMM, "49152", "49136"), {"MBR205"}),
    "16 bytes too many announced": (swapped(GEMM, "49152", "49168"), {"MBR205"}),
    "operand stages not given back": (without(GEMM, r"tcgen05\.commit"), {"CTL703", "MBR203"}),
    "accumulator not announced": (without(GEMM, r"tcgen05\.commit", 1), {"CTL703", "MBR203"}),
    "accumulator not given back": (without(GEMM, r"mbarrier\.arrive\.relaxed"), {"CTL703", "MBR203"}),
    "full stage not announced": (without(GEMM, r"mbarrier\.arrive\.expect_tx"), {"CTL703", "MBR203", "MBR205"}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_gemm_is_reported_under_the_right_rule(name: str) -> None:
    text, expected = MUTANTS[name]
    assert violated(facts(text)) == expected


def drop_wait(text: str, which: int) -> str:
    """The `which`-th wait becomes a constant: true."""
    lines = text.split("\n")
    index = [i for i, line in enumerate(lines) if "mbarrier.try_wait" in line][which]
    predicate = re.search(r"(%p\d+), \[", lines[index])
    assert predicate is not None
    lines[index] = f"mov.pred {predicate[1]}, -1;"
    return "\n".join(lines)


@pytest.mark.parametrize(("which", "expected"), [(0, "MBR203"), (2, "MBR202"), (3, "MBR203"), (4, "MBR203")])
def test_a_missing_wait_is_reported(which: int, expected: str) -> None:
    assert expected in violated(facts(drop_wait(GEMM, which)))


def test_nothing_is_proved_when_signals_may_land_in_other_phases() -> None:
    seen = verdicts(facts(drop_wait(GEMM, 2)))
    assert Verdict.PROVED not in set().union(*(seen[code] for code in ("MBR202", "MBR203", "MEM401", "TCG104")))


def test_split_k_is_proved_with_a_rank_that_has_no_work() -> None:
    kernel = facts(SPLIT_K, CLUSTER)
    seen = verdicts(kernel)
    assert seen.pop("TCG103") == set(), "the accumulator is never handed back: there is nothing to judge"
    assert all(verdict == {Verdict.PROVED} for verdict in seen.values())
    run = kernel.protocol.base if kernel.protocol is not None else None
    assert run is not None
    idle = [b for b in run.signals.mbarriers.values() if b.address >> 24 == 3 and not b.current]
    assert idle, "the last rank's operand ring is never used"


def missing_phase0_wait(text: str) -> str:
    """Without the MMA warp's wait for phase 0 of the tmem barrier (count 160): its second arrival is not behind it."""
    lines = text.split("\n")
    dealloc = next(i for i, line in enumerate(lines) if "tcgen05.dealloc" in line)
    waits = [i for i in range(dealloc) if "mbarrier.try_wait" in lines[i]]
    predicate = re.search(r"(%p\d+), \[", lines[waits[-2]])
    assert predicate is not None
    lines[waits[-2]] = f"mov.pred {predicate[1]}, -1;"
    return "\n".join(lines)


def test_split_k_without_the_phase0_wait_shows_the_schedule() -> None:
    kernel = facts(missing_phase0_wait(SPLIT_K), CLUSTER)
    assert violated(kernel) == {"MBR202", "TCG104"}
    (wait,) = [j for j in judge(kernel, "MBR202") if j.verdict is Verdict.VIOLATED]
    assert "parity 1" in wait.message
    assert "has not seen phase 0" in wait.message
    told = [step.fact for step in wait.witness]
    assert any("knowing 0 phases complete" in fact for fact in told)
    assert any("one of warps 0, 1, 2, 3 may be late" in fact for fact in told)


def test_a_store_to_a_peer_that_signals_the_own_cta_is_waited_for_by_nobody() -> None:
    barrier = "mapa.shared::cluster.u32 \t%r122, %r402, "
    kernel = facts(swapped(SPLIT_K, f"{barrier}%r403;", f"{barrier}%r5;"), CLUSTER)
    assert violated(kernel) == {"MEM401"}


def test_the_cluster_is_inferred_when_nobody_says_it() -> None:
    protocol = facts(SPLIT_K).protocol
    assert protocol is not None
    assert protocol.base is not None
    assert protocol.base.start.ranks == 4
    assert protocol.guessed_cluster
    assert "(inferred)" in protocol.claim


@pytest.mark.parametrize(("edit", "expected"), [(str, Verdict.PROVED), (missing_phase0_wait, Verdict.VIOLATED)])
def test_ctas_at_the_end_of_the_grid_have_little_work_or_none(edit: Callable[[str], str], expected: Verdict) -> None:
    """With tiles enough, the wait for a free accumulator stands in for the wait for phase 0; at the end it does not."""
    seen = {j.verdict for j in judge(facts(edit(stored("grouped_gemm_wgrad"))), "MBR202")}
    assert expected in seen
    assert (Verdict.VIOLATED in seen) == (expected is Verdict.VIOLATED)
