"""What orders accesses of shared memory by two warps, and what is said where it is not followed."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, judge
from verifier.findings import Verdict

HEAD = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry two(.param .u64 out, .param .u64 source, .param .u32 mode)
.reqntid 64
{
    .reg .pred %p<8>;
    .reg .b32 %r<20>;
    .reg .b64 %d<8>;
    .reg .f32 %f<4>;
    .shared .align 16 .b8 data[1024];
    .shared .align 8 .b64 full;
    .shared .align 4 .b32 flag;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [source];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, data;
    add.u32 %r5, %r4, %r3;
    mov.u32 %r6, flag;
    mov.u32 %r7, full;
    setp.ge.u32 %p1, %r1, 32;
    setp.eq.u32 %p2, %r2, 0;
"""


def verdicts(first: str, second: str, before: str = "", after: str = "", code: str = "MEM401") -> set[Verdict]:
    """Warp 0 runs `first`, warp 1 `second`, both `before` and `after`."""
    return {judged.verdict for judged in judge(facts(kernel(first, second, before, after)), code)}


def kernel(first: str, second: str, before: str = "", after: str = "") -> str:
    parts = ("@%p1 bra SECOND;", first, "bra.uni JOIN;", "SECOND:", second, "JOIN:")
    return "\n".join((HEAD, before, *parts, after, "st.global.u32 [%d1], %r8;", "ret;", "}"))


STORE = "st.shared.u32 [%r5], %r1;"
LOAD = "ld.shared.u32 %r8, [%r5];"


@pytest.mark.parametrize(
    "barrier",
    [
        "barrier.cta.red.popc.aligned.u32 %r9, 0, %p2;",
        "bar.red.or.pred %p3, 0, %p2;",
        "bar.red.and.pred %p3, 0, !%p2;",
        "barrier.cta.red.or.pred %p3, 0, 64, %p2;",
    ],
)
def test_bar_red_is_a_barrier_of_all_threads_unless_it_names_a_count(barrier: str) -> None:
    assert verdicts(STORE, "", after=f"{barrier} {LOAD}") == {Verdict.PROVED}
    assert verdicts(STORE, "", after=f"{barrier} {LOAD}", code="CTL703") == {Verdict.PROVED}


def test_result_of_bar_red_is_not_what_the_register_held_before() -> None:
    after = f"setp.ne.u32 %p3, %r4, %r4; bar.red.or.pred %p3, 0, %p2; @%p3 bra OUT; bar.sync 1, 32; OUT: {LOAD}"
    found = judge(facts(kernel(STORE, "", after=after)), "CTL703")
    assert {judged.verdict for judged in found} == {Verdict.UNKNOWN}
    assert "bar.red.or.pred" in found[0].reason


RELEASE = "bar.warp.sync -1; @%p2 st.release.cta.shared.u32 [%r6], 1;"
ACQUIRE = """
RETRY:
    ld.acquire.cta.shared.u32 %r9, [%r6];
    setp.ne.u32 %p3, %r9, 1;
    @%p3 bra RETRY;
"""


def test_flag_that_a_loop_acquires_leaves_the_data_open() -> None:
    found = judge(facts(kernel(STORE + RELEASE, ACQUIRE + LOAD)), "MEM401")
    assert {judged.verdict for judged in found} == {Verdict.UNKNOWN}
    assert "may hand over" in found[0].reason


def test_flag_without_data_is_no_race() -> None:
    assert verdicts(RELEASE, ACQUIRE) == set()


@pytest.mark.parametrize("store", ["st.shared.f32 [%r6], %f1;", "st.release.cta.shared.u16 [%r6+2], 1;"])
def test_flag_that_is_not_written_as_it_is_read_is_a_race(store: str) -> None:
    assert verdicts(store, ACQUIRE) == {Verdict.VIOLATED}


def test_volatile_flag_that_a_loop_reads_leaves_the_data_open() -> None:
    volatile = ACQUIRE.replace("acquire.cta", "volatile")
    raised = RELEASE.replace("release.cta", "volatile")
    assert verdicts(STORE + raised, volatile + LOAD) == {Verdict.UNKNOWN}


def test_volatile_load_that_nothing_retries_is_a_race() -> None:
    store, load = STORE.replace("st.", "st.volatile."), LOAD.replace("ld.", "ld.volatile.")
    assert verdicts(store, load) == {Verdict.VIOLATED}


LOCK = """
NAME:
    atom.acquire.cta.shared.cas.b32 %r9, [%r6], 0, 1;
    setp.ne.u32 %p3, %r9, 0;
    @%p3 bra NAME;
"""
UNLOCK = "st.release.cta.shared.u32 [%r6], 0;"


def test_lock_leaves_what_it_guards_open() -> None:
    first, second = LOCK.replace("NAME", "ONE"), LOCK.replace("NAME", "TWO")
    assert verdicts(first + STORE + UNLOCK, second + LOAD + UNLOCK) == {Verdict.UNKNOWN}


ADD = "red.shared.add.u32 [%r5], %r1;"


def test_atomics_race_with_all_but_atomics() -> None:
    assert verdicts(ADD, ADD) == set()
    assert verdicts(ADD, LOAD) == {Verdict.VIOLATED}
    assert verdicts("atom.shared.add.u32 %r9, [%r5], 1;", STORE) == {Verdict.VIOLATED}
    assert verdicts(ADD, ADD, after="bar.sync 0;" + LOAD) == {Verdict.PROVED}


def test_what_an_atomic_leaves_behind_is_not_known() -> None:
    before = "@%p2 st.shared.u32 [%r6], 0; bar.sync 0;"
    after = "bar.sync 0; ld.shared.u32 %r9, [%r6]; setp.eq.u32 %p3, %r9, 0; @%p3 bra OUT; bar.sync 1, 32; OUT:"
    assert verdicts("red.shared.add.u32 [%r6], 1;", "", before, after, "CTL703") == {Verdict.UNKNOWN}


COPY = """
    cvt.u64.u32 %d3, %r3;
    add.u64 %d4, %d2, %d3;
    cp.async.ca.shared.global [%r5], [%d4], 4;
    cp.async.commit_group;
"""
COPIED = "cp.async.wait_group 0;"


def test_copies_that_nobody_waits_for() -> None:
    assert verdicts(COPY, "", after="bar.sync 0;" + LOAD) == {Verdict.VIOLATED}
    assert verdicts(COPY + LOAD, "") == {Verdict.VIOLATED}
    assert verdicts(COPY + COPIED, "", after="bar.sync 0;" + LOAD) == {Verdict.PROVED}
    assert Verdict.VIOLATED not in verdicts(COPY + COPIED + LOAD, "")


@pytest.mark.parametrize(
    "skip",
    [
        "ld.param.u32 %r9, [mode]; setp.ne.u32 %p3, %r9, 4711;",
        "ld.global.u32 %r9, [%d2]; setp.ne.u32 %p3, %r9, 4711;",
    ],
)
@pytest.mark.parametrize("access", ["@%p3 bra JOIN; ACCESS", "@!%p3 ACCESS"])
def test_access_that_no_run_makes_is_named(skip: str, access: str) -> None:
    found = judge(
        facts(kernel(skip + access.replace("ACCESS", STORE), LOAD + "st.shared.u32 [%r5+512], %r1;")), "MEM401"
    )
    assert [judged.verdict for judged in found] == [Verdict.UNKNOWN]
    assert found[0].reason == "no run comes to this store"


def test_accesses_behind_an_attempt_that_may_succeed_are_named() -> None:
    before = """
        @%p2 mbarrier.init.shared::cta.b64 [%r7], 64;
        bar.sync 0;
        mbarrier.arrive.shared::cta.b64 %d7, [%r7];
    """
    attempt = "mbarrier.test_wait.shared::cta.b64 %p3, [%r7], %d7; @!%p3 bra JOIN; st.shared.u32 [%r5], %r1;"
    assert Verdict.UNKNOWN in verdicts(LOAD, attempt, before.replace("@%p2 ", "setp.eq.u32 %p4, %r1, 0; @%p4 "))


INDEX = "mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %d2, %d3; ld.global.u32 %r9, [%d3];"
SCATTER = "and.b32 %r10, %r9, 63; shl.b32 %r10, %r10, 2; add.u32 %r10, %r4, %r10; st.shared.u32 [%r10], %r1;"


@pytest.mark.parametrize("reader", [LOAD, "ld.shared.u32 %r8, [%r5+512];"])
def test_place_that_a_word_of_global_memory_names_is_not_known(reader: str) -> None:
    found = judge(facts(kernel(INDEX + SCATTER, reader)), "MEM401")
    assert [judged.verdict for judged in found] == [Verdict.UNKNOWN]
    assert "depends on what PTX line" in found[0].reason


def test_place_that_comes_through_shared_memory_is_not_known() -> None:
    handed = "bar.sync 0; ld.shared.u32 %r9, [%r6]; bar.sync 0;"
    store = "ld.global.u32 %r9, [%d2]; @%p2 st.shared.u32 [%r6], %r9;"
    assert Verdict.UNKNOWN in verdicts(store + handed + SCATTER, handed + LOAD)


def test_trip_count_from_global_memory_names_no_place() -> None:
    before = "ld.global.u32 %r9, [%d2]; mov.u32 %r11, 0; shl.b32 %r10, %r1, 2; add.u32 %r10, %r4, %r10;"
    loop = """
    AGAIN:
        and.b32 %r12, %r11, 1;
        shl.b32 %r12, %r12, 8;
        add.u32 %r12, %r10, %r12;
        st.shared.u32 [%r12], %r11;
        bar.sync 0;
        xor.b32 %r13, %r12, 128;
        ld.shared.u32 %r8, [%r13];
        add.u32 %r11, %r11, 1;
        setp.lt.u32 %p3, %r11, %r9;
        @%p3 bra AGAIN;
    """
    assert verdicts("", "", before, loop) == {Verdict.PROVED}


FULL = "setp.eq.u32 %p4, %r1, 0; @%p4 mbarrier.init.shared::cta.b64 [%r7], 1; bar.sync 0;"
OTHER = "@%p2 st.shared.u32 [%r4+256], %r1;"
BYTES = {
    "st.async": "@%p2 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r1, [%r7];",
    "bulk": "@%p2 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%d2], SIZE, [%r7];",
    "complete_tx": "@%p2 mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [%r7], SIZE;",
}
EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], SIZE;"
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r7], 0; @!%p3 bra WAIT;"


def handed(first: str, second: str, size: int) -> set[Verdict]:
    return verdicts(first.replace("SIZE", str(size)), second.replace("SIZE", str(size)), FULL)


@pytest.mark.parametrize(("how", "size"), [("st.async", 4), ("bulk", 64), ("complete_tx", 64)])
def test_bytes_publish_nothing_that_threads_wrote(how: str, size: int) -> None:
    read = "ld.shared.u32 %r8, [%r4+256];"
    found = handed(OTHER + BYTES[how], EXPECT + WAIT + read, size)
    assert Verdict.UNKNOWN in found
    assert Verdict.VIOLATED not in found
    assert handed(OTHER + EXPECT + BYTES[how], WAIT + read, size) == {Verdict.PROVED}


@pytest.mark.parametrize(("how", "size"), [("st.async", 4), ("bulk", 64)])
def test_bytes_publish_themselves_and_that_reads_are_over(how: str, size: int) -> None:
    first = "ld.shared.u32 %r8, [%r4+256];" + BYTES[how]
    assert handed(first, EXPECT + WAIT + "ld.shared.u32 %r8, [%r4]; st.shared.u32 [%r4+256], %r8;", size) == {
        Verdict.PROVED
    }
