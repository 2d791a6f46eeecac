"""Where the results of TMEM loads are first used: such a use completes the load, with or without `wait::ld`.

PTX ISA 9.4, 9.7.18.6.4.5: consumers of the destination registers are ordered after the load by the dependency.
"""

from __future__ import annotations

from collections import defaultdict

from verifier.model.cfg import Cfg
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.ssa import SsaValue


def load_uses(model: KernelModel, cfg: Cfg) -> dict[int, tuple[int, ...]]:
    """First reader in each block -> the TMEM loads whose results it reads."""
    loads = [e.instr for e in model.events if e.kind is Kind.TMEM_LOAD]
    if not loads:
        return {}
    merges = _merges(model)
    found: dict[int, list[int]] = {}
    for load in loads:
        seen: set[int] = set()
        for user in sorted(_readers(model, merges, load)):
            block = cfg.block_of[user]
            if block not in seen:
                seen.add(block)
                found.setdefault(user, []).append(load)
    return {user: tuple(sites) for user, sites in found.items()}


def _merges(model: KernelModel) -> dict[int, list[SsaValue]]:
    """SSA value id -> the phis that it goes into."""
    merges: dict[int, list[SsaValue]] = defaultdict(list)
    for block in model.cfg.reachable:
        for phi in model.ssa.phis(block).values():
            for value in (phi.incoming or {}).values():
                merges[value.id].append(phi)
    return merges


def _readers(model: KernelModel, merges: dict[int, list[SsaValue]], load: int) -> set[int]:
    """Instructions that do something with a result of a load; moving it somewhere else is nothing yet."""
    ssa, instrs = model.ssa, model.function.instrs
    readers: set[int] = set()
    work = list(ssa.writes[load].values())
    seen = {value.id for value in work}
    while work:
        value = work.pop()
        following = list(merges.get(value.id, ()))
        for user in ssa.users[value.id]:
            if instrs[user].opcode.startswith("mov."):
                following += ssa.writes[user].values()
            else:
                readers.add(user)
        for item in following:
            if item.id not in seen:
                seen.add(item.id)
                work.append(item)
    return readers
