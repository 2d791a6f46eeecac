"""Dominators of control flow."""

from __future__ import annotations

import pytest

from tests.protocol.support import facts, stored
from verifier.model.cfg import Cfg


def climbs(cfg: Cfg, above: int, below: int) -> bool:
    """Whether `above` lies on the way from `below` up the dominator tree."""
    while below != above:
        parent = cfg.dominator.get(below, below)
        if parent == below:
            return False
        below = parent
    return True


@pytest.mark.parametrize("name", ["gemm_persistent", "gemm_splitk_mailbox"])
def test_dominance_is_that_of_the_dominator_tree(name: str) -> None:
    model = facts(stored(name)).ptx
    assert model is not None
    for cfg in (model.cfg, *(stream.cfg for stream in model.streams)):
        blocks = range(len(cfg.blocks))
        assert len(cfg.reachable) < len(cfg.blocks) or cfg is model.cfg
        assert all(cfg.dominates(a, b) == climbs(cfg, a, b) for a in blocks for b in blocks)
