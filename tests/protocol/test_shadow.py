"""Which accesses a shadow names, and how many it looks at."""

from __future__ import annotations

from verifier.analyses.protocol.clocks import Clock
from verifier.analyses.protocol.shadow import Access, ByteShadow, TmemShadow


class Counting(ByteShadow):
    met = 0

    def _meet(self, a: Access, b: Access) -> bool:
        self.met += 1
        return super()._meet(a, b)


def access(warp: int, done: int, low: int, instr: int, *, write: bool = True) -> Access:
    return Access(0, low, low + 4, write, warp, done, warp, done, (0, warp), instr, None, done)


def test_an_agent_is_not_compared_with_itself() -> None:
    shadow = Counting()
    for number in range(1000):
        shadow.touch(access(1, number, 4 * (number % 8), number), {1: number})
    assert shadow.met == 0


def test_of_an_agent_that_is_known_only_the_latest_access_to_a_place_is_looked_at() -> None:
    shadow = Counting()
    for number in range(1, 501):
        shadow.touch(access(1, number, 0, number), {1: number})
    clock: Clock = {1: 500}
    for number in range(1, 501):
        ordered, conflicts = shadow.touch(access(2, number, 0, 1000 + number), {**clock, 2: number})
        assert [other.instr for other in ordered] == [500]
        assert not conflicts
    assert shadow.met == 500


def test_of_accesses_to_one_place_that_are_not_ordered_some_are_named_the_newest_first() -> None:
    shadow = Counting()
    for number in range(1, 501):
        shadow.touch(access(1, number, 0, number), {1: number})
    _, conflicts = shadow.touch(access(2, 1, 0, 1000), {1: 400, 2: 1})
    assert [c.earlier.instr for c in conflicts] == list(range(500, 492, -1))
    _, conflicts = shadow.touch(access(2, 2, 0, 1001), {1: 498, 2: 2})
    assert [c.earlier.instr for c in conflicts] == [500, 499]


def test_other_places_of_the_agent_are_looked_at_when_its_latest_is_known() -> None:
    shadow = ByteShadow()
    shadow.touch(access(1, 1, 0, 10), {1: 1})
    shadow.touch(access(1, 2, 4, 11), {1: 2})
    wide = Access(0, 0, 8, True, 2, 1, 2, 1, (0, 2), 12, None, 3)
    ordered, conflicts = shadow.touch(wide, {1: 1, 2: 1})
    assert [o.instr for o in ordered] == [10]
    assert [c.earlier.instr for c in conflicts] == [11]


def test_tensor_memory_names_every_access_that_is_ordered() -> None:
    shadow = TmemShadow()
    for number in (1, 2, 3):
        load = Access(0, 0, 8, False, 1, number, 5, number, (0, 1), number, 1, number)
        shadow.touch(load, {1: number})
    ordered, _ = shadow.touch(Access(0, 0, 8, True, 2, 1, 2, 1, (0, 2), 9, 1, 4), {5: 3})
    assert [o.instr for o in ordered] == [3, 2, 1]
