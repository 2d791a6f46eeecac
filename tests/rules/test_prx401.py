"""When an acquire of a tensor map counts: same address, same warp, since the last change."""

from __future__ import annotations

import pytest

from tests.rules.fragments import judge
from verifier.findings import Verdict

USE = "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [{}, {{r1}}], [buf];"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [{}], 128;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
REPLACE = "tensormap.replace.tile.global_address.global.b1024.b64 [gmap], gp;"

# A loop over work items: r4 is the item's expert, read anew each time; the acquire is skipped while it stays the same.
SKIPPED = f"""warp 0:
ld.shared.b32 r4, [slot];
setp.lt.s32 p, r4, 0;
@p bra END;
mov.b32 r5, FIRST;
LOOP:
mov.b32 r6, r4;
mul.wide.s32 rd1, r6, 512;
add.s64 rd2, gmap, rd1;
add.s64 rd2, rd2, 127;
and.b64 rd2, rd2, -128;
setp.eq.s32 q, r6, r5;
@q bra SAME;
{ACQUIRE.format("rd2")}
SAME:
{USE.format("rd2")}
ld.shared.b32 r4, [slot];
setp.gt.s32 q2, r4, -1;
mov.b32 r5, LAST;
@q2 bra LOOP;
"""


def skipped(first: str, last: str) -> str:
    return SKIPPED.replace("FIRST", first).replace("LAST", last)


def verdicts(fragment: str) -> list[Verdict]:
    return judge("PRX401", fragment)[0]


@pytest.mark.parametrize("map_name", ["gm", "gm+128"])
def test_a_kernel_parameter_needs_no_acquire(map_name: str) -> None:
    assert verdicts(f"warp 0:\n{USE.format(map_name)}") == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("scope", "change", "expected"),
    [
        ("gpu", "", Verdict.PROVED),
        ("sys", "", Verdict.PROVED),
        ("cta", "", Verdict.VIOLATED),  # an earlier kernel wrote the map
        ("cluster", "", Verdict.VIOLATED),
        ("cta", f"{REPLACE} {RELEASE}", Verdict.PROVED),  # the thread itself did
    ],
)
def test_the_scope_of_an_acquire_reaches_the_writer(scope: str, change: str, expected: Verdict) -> None:
    acquire = ACQUIRE.format("gmap").replace(".gpu", f".{scope}")
    assert verdicts(f"warp 0:\n{change}\n{acquire}\n{USE.format('gmap')}") == [expected]


def test_an_acquire_skipped_while_the_map_is_the_same_counts() -> None:
    assert verdicts(skipped("-1", "r6")) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("0", "r6"),  # the first item may be expert 0, never acquired
        ("-1", "r1"),  # the comparison is not with the expert of the last item
    ],
)
def test_a_skip_that_proves_nothing_is_seen(first: str, last: str) -> None:
    assert verdicts(skipped(first, last)) == [Verdict.VIOLATED]


def test_a_change_after_the_acquire_needs_another() -> None:
    stale = f"warp 0:\n{ACQUIRE.format('gmap')}\n{REPLACE}\n{RELEASE}\n{USE.format('gmap')}"
    assert verdicts(stale) == [Verdict.VIOLATED]
    assert verdicts(f"warp 0:\n{REPLACE}\n{RELEASE}\n{ACQUIRE.format('gmap')}\n{USE.format('gmap')}") == [
        Verdict.PROVED
    ]


def test_a_change_by_another_warp_counts_once_it_is_signalled() -> None:
    wait = "L1: mbarrier.try_wait.parity.shared::cta.b64 q, [bar], 0; @!q bra L1;"
    writer = f"warp 1:\n{REPLACE}\n{RELEASE}\nmbarrier.arrive.shared::cta.b64 _, [bar];"
    before = f"warp 0:\n{ACQUIRE.format('gmap')}\n{wait}\n{USE.format('gmap')}\n{writer}"
    after = f"warp 0:\n{wait}\n{ACQUIRE.format('gmap')}\n{USE.format('gmap')}\n{writer}"
    assert verdicts(before) == [Verdict.VIOLATED]
    assert verdicts(after) == [Verdict.PROVED]


def test_another_warp_may_acquire_before_a_barrier_of_the_cta() -> None:
    guarded = "setp.ne.u32 p, warp, 1; @p bra PASS;\n{}\nPASS:\n{}\nsetp.ne.u32 p, warp, 0; @p bra END;\n{}\nwarp 1:\n"
    assert verdicts(guarded.format(ACQUIRE.format("gmap"), "bar.sync 1;", USE.format("gmap"))) == [Verdict.PROVED]
    assert verdicts(guarded.format(ACQUIRE.format("gmap"), "", USE.format("gmap"))) == [Verdict.VIOLATED]


def test_an_acquire_before_the_earlier_grid_is_complete_does_not_count() -> None:
    early = f"warp 0:\n{ACQUIRE.format('gmap')}\ngriddepcontrol.wait;\n{USE.format('gmap')}"
    late = f"warp 0:\ngriddepcontrol.wait;\n{ACQUIRE.format('gmap')}\n{USE.format('gmap')}"
    assert verdicts(early) == [Verdict.VIOLATED]
    assert verdicts(late) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("guard", "expected"), [("@q", Verdict.PROVED), ("@q2", Verdict.VIOLATED), ("", Verdict.VIOLATED)]
)
def test_an_acquire_under_a_guard_covers_uses_under_the_same(guard: str, expected: Verdict) -> None:
    head = "ld.shared.b32 r4, [slot]; setp.eq.s32 q, r4, 0; setp.eq.s32 q2, r4, 1;"
    assert verdicts(f"warp 0:\n{head}\n@q {ACQUIRE.format('gmap')}\n{guard} {USE.format('gmap')}") == [expected]


def test_a_map_through_a_loaded_pointer_is_in_memory() -> None:
    assert verdicts(f"warp 0:\nld.global.b64 rd1, [gp];\n{USE.format('rd1')}") == [Verdict.VIOLATED]
    assert verdicts(f"warp 0:\nld.global.b64 rd1, [gp];\n{ACQUIRE.format('rd1')}\n{USE.format('rd1')}") == [
        Verdict.PROVED
    ]


def test_the_witness_names_the_acquire_of_a_neighbour() -> None:
    _, found = judge("PRX401", f"warp 0:\n{ACQUIRE.format('gmap')}\n{USE.format('gmap+128')}")
    assert [step.fact.split()[0] for step in found[0].witness] == ["acquires", "goes"]


# The same loop with nothing said about the expert: ITEM reads it into r4, GUARD may say something of its range.
SENTINEL = f"""warp 0:
mov.b32 r5, FIRST;
mov.b32 r9, 0;
mov.b32 r10, 0;
LOOP:
ITEM
GUARD
mul.wide.s32 rd1, r4, 128;
add.s64 rd2, gmap, rd1;
setp.eq.s32 q, r4, r5;
@q bra SAME;
{ACQUIRE.format("rd2")}
SAME:
{USE.format("rd2")}
mov.b32 r5, LAST;
add.u32 r9, r9, 1;
setp.lt.u32 q2, r9, 8;
@q2 bra LOOP;
"""
WORD = "ld.shared.b32 r4, [slot];"
# r10 goes on to the next expert when the tiles of one are used up
COUNTER = "ld.shared.b32 r11, [slot]; setp.eq.s32 p, r11, 0; @p bra STAY; add.u32 r10, r10, 1; STAY: mov.b32 r4, r10;"


def sentinel(item: str, guard: str = "", first: str = "-1", last: str = "r4") -> list[Verdict]:
    text = SENTINEL.replace("ITEM", item).replace("GUARD", guard).replace("FIRST", first).replace("LAST", last)
    return verdicts(text)


@pytest.mark.parametrize("first", ["-1", "0xffffffff", "-2", "0x7fffffff"])
def test_a_number_that_is_no_index_accuses_nobody(first: str) -> None:
    assert sentinel(WORD, first=first) == [Verdict.UNKNOWN]


@pytest.mark.parametrize("first", ["0", "5"])
def test_a_number_that_may_be_an_index_does(first: str) -> None:
    assert sentinel(WORD, first=first) == [Verdict.VIOLATED]


@pytest.mark.parametrize(
    "item",
    [
        "{ .reg .b16 h; ld.shared.u16 h, [slot]; cvt.u32.u16 r4, h; }",
        "ld.shared.u8 r4, [slot];",
        "ld.shared.b32 r4, [slot]; and.b32 r4, r4, 255;",
        "ld.shared.b32 r4, [slot]; shr.u32 r4, r4, 4;",
        "mov.u32 r4, %ctaid.y;",
        "mov.u32 r4, r9;",
        COUNTER,
    ],
)
def test_an_index_that_is_never_negative_is_proved(item: str) -> None:
    assert sentinel(item) == [Verdict.PROVED]


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("setp.lt.s32 p, r4, 0; @p bra END;", Verdict.PROVED),
        ("setp.ge.u32 p, r4, r2; @p bra END;", Verdict.PROVED),  # nothing unsigned is above -1
        ("setp.ge.s32 p, r4, r2; @p bra END;", Verdict.UNKNOWN),
    ],
)
def test_a_guard_may_say_that_an_index_is_not_negative(guard: str, expected: Verdict) -> None:
    assert sentinel(WORD, f"ld.shared.b32 r2, [buf]; {guard}") == [expected]


@pytest.mark.parametrize(
    "item",
    [
        "{ .reg .b16 h; ld.shared.s16 h, [slot]; cvt.s32.s16 r4, h; }",
        COUNTER.replace("add.u32 r10, r10, 1", "shl.b32 r10, r10, 1; add.u32 r10, r10, 1"),  # wraps after 32 rounds
        COUNTER.replace("add.u32 r10, r10, 1", "sub.u32 r10, r10, 1"),
    ],
)
def test_an_index_that_may_be_negative_is_not(item: str) -> None:
    assert sentinel(item) == [Verdict.UNKNOWN]


def test_a_stale_acquire_behind_a_sentinel_is_still_seen() -> None:
    assert sentinel(WORD, last="r1") == [Verdict.VIOLATED]


def test_a_flag_that_is_no_index_is_no_sentinel() -> None:
    skip = f"ld.shared.b32 r4, [slot]; setp.eq.s32 q, r4, -1; @q bra PASS; {ACQUIRE.format('gmap')} PASS:"
    assert verdicts(f"warp 0:\n{skip}\n{USE.format('gmap')}") == [Verdict.VIOLATED]


@pytest.mark.parametrize(
    ("where", "acquire", "expected"),
    [
        ("gmap", "", Verdict.VIOLATED),
        ("gmap", ACQUIRE.format("gmap+128"), Verdict.VIOLATED),
        ("gmap", ACQUIRE.format("gmap"), Verdict.PROVED),
        ("gm", "", Verdict.PROVED),
    ],
)
def test_a_prefetch_goes_through_the_map_too(where: str, acquire: str, expected: Verdict) -> None:
    prefetch = f"cp.async.bulk.prefetch.tensor.1d.L2.global.tile [{where}, {{r1}}];"
    assert verdicts(f"warp 0:\n{acquire}\n{prefetch}") == [expected]


def test_a_prefetch_of_bytes_has_no_map() -> None:
    assert verdicts("warp 0:\ncp.async.bulk.prefetch.L2.global [data], 64;") == []
