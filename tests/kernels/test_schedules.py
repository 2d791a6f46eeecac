"""The arithmetic of the kernels that needs no GPU: which tiles, ranges, slots, columns and scale factors they choose.

These tests run the kernels' own functions on plain integers and NumPy arrays, against what the result must be.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cutlass")

from kernels import grouped_gemm_wgrad, mailbox, moe_gg1_nvfp4, overlap, registry, scaled, tile_queue
from kernels.hopper_splitk_mailbox import HopperSplitK
from kernels.splitk import SplitK
from kernels.walk import Walk

pytestmark = pytest.mark.toolchain


@pytest.mark.parametrize(("rows", "columns", "walkers"), [(1, 1, 4), (3, 5, 4), (64, 32, 148), (7, 7, 49)])
def test_walkers_visit_every_tile_once(rows: int, columns: int, walkers: int) -> None:
    seen = []
    for first in range(walkers):
        walk = Walk(first, walkers, rows * columns, columns)
        seen += [walk.coordinates(tile) for tile in range(walk.first, walk.count, walk.step)]
    assert sorted(seen) == [(row, column) for row in range(rows) for column in range(columns)]


@pytest.mark.parametrize("kind", [SplitK, HopperSplitK])
@pytest.mark.parametrize(("k_tiles", "split"), [(9, 4), (1, 2), (192, 8), (4, 4), (3, 8)])
def test_ranks_share_all_k_tiles_in_order(kind: type, k_tiles: int, split: int) -> None:
    kernel = kind.__new__(kind)
    kernel.split = split
    ranges = [kernel.k_range(rank, k_tiles) for rank in range(split)]
    assert [tile for first, last in ranges for tile in range(first, last)] == list(range(k_tiles))
    assert all(first <= last for first, last in ranges)


@pytest.mark.parametrize("split", [2, 4, 8])
def test_every_slot_has_one_sender_and_nobody_writes_to_itself(split: int) -> None:
    written = {}
    for rank in range(split):
        for slot in range(split - 1):
            owner = mailbox.owner_of(rank, slot, split)
            assert owner != rank
            assert mailbox.slot_at(owner, rank, split) == slot
            assert mailbox.sender_of(owner, slot, split) == rank
            assert (owner, slot) not in written
            written[owner, slot] = rank
    assert len(written) == split * (split - 1)


def scheduled(ends: list[int], rows: int, columns: int, cta: int, ctas: int) -> list[tuple[int, int, int]]:
    """(row tile, column, expert) that the scheduler warp of one CTA hands over before the one that is not valid."""
    handed = []

    def put(words: tuple[int, int, int, int], slot: int, parity: int) -> tuple[int, int]:
        handed.append(words)
        return slot, parity

    source = inspect.unwrap(tile_queue.TileQueue.schedule)
    arch = SimpleNamespace(block_idx=lambda: (cta, 0, 0), grid_dim=lambda: (ctas, 1, 1))
    names = {"cutlass": SimpleNamespace(Int32=int), "cute": SimpleNamespace(size=len, arch=arch)}
    original = {name: source.__globals__[name] for name in names}
    source.__globals__.update(names)
    try:
        source(SimpleNamespace(put=put), ends, rows, columns)
    finally:
        source.__globals__.update(original)
    *tiles, last = handed
    assert last[3] == 0
    assert all(words[3] == 1 for words in tiles)
    return [words[:3] for words in tiles]


@pytest.mark.parametrize("ends", [[128], [0, 0, 256], [256, 256, 384, 1024], [0, 0], [512, 512]])
@pytest.mark.parametrize("ctas", [1, 3, 148])
def test_scheduler_hands_over_every_tile_of_every_expert_once(ends: list[int], ctas: int) -> None:
    rows, columns = 128, 4
    expected = [
        (row, column, expert)
        for expert, end in enumerate(ends)
        for row in range(([0, *ends][expert]) // rows, end // rows)
        for column in range(columns)
    ]
    handed = [tile for cta in range(ctas) for tile in scheduled(ends, rows, columns, cta, ctas)]
    assert sorted(handed) == sorted(expected)


def test_runs_of_the_weight_gradient_cover_all_tiles_expert_by_expert() -> None:
    config = registry.case("grouped_gemm_wgrad").config
    rows, columns, experts, ctas = 8, 16, config["experts"], config["max_ctas"]
    assert isinstance(experts, int)
    assert isinstance(ctas, int)
    count = experts * rows * columns
    share = -(-count // ctas)
    seen = []
    for cta in range(ctas):
        run = grouped_gemm_wgrad.Run(min(cta * share, count), min(cta * share + share, count), rows, columns)
        tile = run.first
        while tile < run.last:
            expert, end = run.expert(tile)
            assert tile < end <= run.last
            seen += [(expert, *run.coordinates(one)) for one in range(tile, end)]
            tile = end
    assert seen == [(e, row, column) for e in range(experts) for row in range(rows) for column in range(columns)]


@pytest.mark.parametrize("reserved", [32, 48, 64, 0])
def test_release_stands_right_behind_the_last_shared_columns(reserved: int) -> None:
    columns, stride = 256, 256 - reserved
    shared = set(range(stride, columns))
    steps = columns // overlap.SUBTILE
    release = overlap.release_step(columns, stride)
    for region in (0, 1):
        order = range(steps) if region == 1 else range(steps - 1, -1, -1)
        start = region * stride
        read = [{start + s * overlap.SUBTILE + i for i in range(overlap.SUBTILE)} for s in order]
        before, after = set().union(*read[: release + 1]), set().union(*read[release + 1 :])
        assert shared <= before
        assert not shared & after
        assert release < 0 or not shared <= set().union(*read[:release])


def test_gathered_scale_factors_lie_as_the_tensor_core_takes_them() -> None:
    """PTX ISA 9.x, tcgen05.cp 32x128b.warpx4: 128 rows and 4 factors a block; row r at (r % 32) * 16 + r // 32 * 4."""
    made = {}

    def make_layout(shape: Any, stride: Any) -> None:
        made["layout"] = shape, stride

    source = inspect.unwrap(moe_gg1_nvfp4.MoeGg1Nvfp4.factors_of_rows)
    original = source.__globals__["cute"]
    source.__globals__["cute"] = SimpleNamespace(make_layout=make_layout, make_tensor=lambda *_: None)
    try:
        kernel = SimpleNamespace(tile=SimpleNamespace(m=128), words=4, stages=6)
        source(kernel, SimpleNamespace(iterator=None))
    finally:
        source.__globals__["cute"] = original
    ((rows, groups), (four, words), stages), ((row, group), (factor, word), stage) = made["layout"]
    places = {
        (r, k, s): r % rows * row + r // rows * group + k % four * factor + k // four * word + s * stage
        for r in range(rows * groups)
        for k in range(four * words)
        for s in range(stages)
    }
    assert sorted(places.values()) == list(range(128 * 16 * 6))
    assert all(at == r % 32 * 16 + r // 32 * 4 + k % 4 + k // 4 * 512 + s * 2048 for (r, k, s), at in places.items())


def test_quantization_uses_the_smallest_power_of_two_that_fits() -> None:
    generator = np.random.default_rng(7)
    values = generator.standard_normal((1000, scaled.VECTOR)).astype(np.float32)
    values *= np.exp2(generator.integers(-30, 30, (1000, 1))).astype(np.float32)
    values[0] = 0
    values[1] = np.float32(scaled.LARGEST)
    largest = np.abs(values).max(axis=1)
    exponent = scaled.exponent_of((largest * np.float32(1 / scaled.LARGEST)).view(np.int32))
    inverse = scaled.inverse_of(exponent).astype(np.int32).view(np.float32)
    assert ((exponent >= 0) & (exponent <= 254)).all()
    assert (inverse == np.exp2((scaled.EXPONENT_BIAS - exponent).astype(np.float64))).all()
    scaled_down = largest.astype(np.float64) * inverse
    assert (scaled_down <= scaled.LARGEST * (1 + 1e-6)).all()
    assert (scaled_down[1:] * 2 > scaled.LARGEST * (1 - 1e-6)).all()
