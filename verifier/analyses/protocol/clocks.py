"""Vector clocks: what an agent knows of the progress of others.

A clock maps a component to a count. Components are small ints handed out by `Components`: one for each warp's program
order, one for each warp and site of asynchronous work (completed loads, MMAs of a pipe, bulk copies), and one for each
barrier (how many of its phases are known to be complete).
"""

from __future__ import annotations

Clock = dict[int, int]


class Components:
    """Numbers for components, by name."""

    def __init__(self) -> None:
        self._ids: dict[tuple[object, ...], int] = {}
        self.names: list[tuple[object, ...]] = []

    def get(self, *name: object) -> int:
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self.names)
            self.names.append(name)
        return found


def join(into: Clock, other: Clock) -> None:
    """`into` learns what `other` knows."""
    get = into.get
    for component, count in other.items():
        if get(component, -1) < count:
            into[component] = count
