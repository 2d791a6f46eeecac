"""How a cluster starts: its CTAs and warps, special registers, and where shared objects lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from verifier.analyses.protocol.alu import OFFSET_MASK, RANK_SHIFT
from verifier.analyses.protocol.fiber import Fiber, Warp
from verifier.analyses.protocol.layout import Layout
from verifier.analyses.protocol.scripts import Script
from verifier.analyses.protocol.values import ALL_LANES, WARP, LaneValue, Unknown, collapse
from verifier.model.program import Function, ObjectDecl

if TYPE_CHECKING:
    from verifier.analyses.protocol.machine import Machine

Dims = tuple[int, int, int]
_FIRST_BYTE = 1024  # where shared variables start; the system keeps what lies below
_PARAM_BASE = 1 << 60
_GLOBAL_BASE = 1 << 59


class Start:
    """Launch shape of the cluster under test."""

    def __init__(self, function: Function, block: Dims, cluster: Dims) -> None:
        self.block = block
        self.cluster = cluster
        self.ranks = cluster[0] * cluster[1] * cluster[2]
        self.objects = _place_shared(function.objects)
        self._params = {o.name: i for i, o in enumerate(o for o in function.objects if o.space == "param")}
        self._globals = {o.name: i for i, o in enumerate(o for o in function.objects if o.space in ("global", "const"))}

    def label(self, address: int) -> str:
        """Name of a shared address: the object it lies in, and the CTA where there are several."""
        offset = address & OFFSET_MASK
        name, start = "shared memory", 0
        for candidate, (low, _) in self.objects.items():
            if low <= offset and low >= start:
                name, start = candidate, low
        text = f"{name}+{offset - start}" if offset != start else name
        return f"{text} of CTA {address >> RANK_SHIFT}" if self.ranks > 1 else text

    def first_cta(self, request: int) -> Dims:
        """Coordinates of the first CTA of the cluster that the request-th answer hands over."""
        return (0, 0, request * self.cluster[2])

    def fibers(self, machine: Machine, layout: Layout, script: Script) -> Iterator[Fiber]:
        threads = self.block[0] * self.block[1] * self.block[2]
        shared = self._inputs(layout, script)
        for rank in range(self.ranks):
            per_cta = self._cta_registers(rank, script)
            for index in range(-(-threads // WARP)):
                warp = Warp(rank, index, machine.components.get("warp", rank, index))
                warp.writes = machine.components.get("writes", rank, index)
                machine.traffic.shadow.published[warp.component] = warp.writes
                machine.signals.knows_writes(warp.writes)
                warp.load_component = machine.components.get("ld", rank, index)
                warp.bulk.component = machine.components.get("bulk", rank, index)
                warp.wgmma.component = machine.components.get("wgmma", rank, index)
                warp.copies.component = machine.components.get("cp.async", rank, index)
                regs = shared.copy()
                known = {**per_cta, **self._warp_registers(index)}
                for name, slot in layout.sregs.items():
                    if name in known:
                        regs[slot] = known[name]
                for (space, name), slot in layout.symbols.items():
                    regs[slot] = self._symbol(space, name, rank)
                lanes = ALL_LANES[: min(WARP, threads - index * WARP)]
                yield Fiber(machine, warp, regs, lanes)

    def _inputs(self, layout: Layout, script: Script) -> list[LaneValue]:
        regs = layout.initial.copy()
        for (name, offset, width), slot in layout.params.items():
            ordinal = self._params.get(name, len(self._params)) * 64 + offset // 8
            regs[slot] = script.parameter(name, offset, width, ordinal)
        return regs

    def _symbol(self, space: str, name: str, rank: int) -> LaneValue:
        if space == "shared" and name in self.objects:
            return rank << RANK_SHIFT | self.objects[name][0]
        if space == "param":
            return _PARAM_BASE + (self._params.get(name, 0) << 16)
        if name in self._globals:
            return _GLOBAL_BASE + (self._globals[name] << 32)
        return Unknown(f"the address of {name}")

    def _cta_registers(self, rank: int, script: Script) -> dict[str, LaneValue]:
        cx, cy, _cz = self.cluster
        position = (rank % cx, rank // cx % cy, rank // (cx * cy))
        regs: dict[str, LaneValue] = {"cluster_ctarank": rank, "cluster_nctarank": self.ranks, "is_explicit_cluster": 1}
        for axis, own, extent, clusters in zip("xyz", position, self.cluster, script.grid, strict=True):
            regs[f"cluster_ctaid.{axis}"] = own
            regs[f"cluster_nctaid.{axis}"] = extent
            cluster = clusters - 1 if script.last else 0
            regs[f"ctaid.{axis}"] = cluster * extent + own
            regs[f"clusterid.{axis}"] = cluster
            regs[f"nctaid.{axis}"] = clusters * extent
            regs[f"nclusterid.{axis}"] = clusters
        return regs

    def _warp_registers(self, index: int) -> dict[str, LaneValue]:
        x, y, _ = self.block
        threads = [index * WARP + lane for lane in range(WARP)]
        regs: dict[str, LaneValue] = {
            "laneid": ALL_LANES,
            "warpid": index,
            "tid.x": collapse(tuple(t % x for t in threads), ALL_LANES),
            "tid.y": collapse(tuple(t // x % y for t in threads), ALL_LANES),
            "tid.z": collapse(tuple(t // (x * y) for t in threads), ALL_LANES),
            "lanemask_lt": tuple((1 << lane) - 1 for lane in range(WARP)),
            "lanemask_le": tuple((2 << lane) - 1 for lane in range(WARP)),
            "lanemask_eq": tuple(1 << lane for lane in range(WARP)),
        }
        for axis, extent in zip("xyz", self.block, strict=True):
            regs[f"ntid.{axis}"] = extent
        return regs


def _place_shared(objects: tuple[ObjectDecl, ...]) -> dict[str, tuple[int, int | None]]:
    """Name -> (offset, size) of shared variables, one after the other; those of open size come last."""
    placed: dict[str, tuple[int, int | None]] = {}
    offset = _FIRST_BYTE
    shared = [o for o in objects if o.space == "shared"]
    for item in sorted(shared, key=lambda o: o.size is None):
        offset = -(-offset // item.align) * item.align
        placed[item.name] = (offset, item.size)
        offset += item.size or 0
    return placed
