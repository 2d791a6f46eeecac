"""A kernel whose block size is not known: what rests on which warp runs what is unknown, and nobody is accused."""

from __future__ import annotations

import re

import pytest

from tests.rules.example_kernel import complete
from tests.rules.fragments import kernel_of
from verifier.config import Policy
from verifier.findings import Obligation, Verdict
from verifier.rules import all_rules, find_rule, run_rules
from verifier.rules.docs import code_blocks
from verifier.rules.registry import Rule


def judged(code: str, fragment: str, arch: str = "sm_100a") -> list[Obligation]:
    text, _ = complete(fragment, arch, init="mbarrier.init" not in fragment)
    text = re.sub(r"\.reqntid \d+, 1, 1", "", text)
    return list(run_rules(kernel_of(text, arch), [find_rule(code)], Policy()).obligations)


PTX_RULES = [rule for rule in all_rules() if rule.isa == ("ptx",)]


@pytest.mark.parametrize("rule", PTX_RULES, ids=lambda rule: rule.code)
def test_good_code_is_not_accused(rule: Rule) -> None:
    for block in code_blocks(rule.doc.sections["Good"]):
        found = judged(rule.code, block, "sm_90a" if rule.arch == ("sm_90",) else "sm_100a")
        assert found
        assert not [o for o in found if o.verdict is Verdict.VIOLATED]


INIT = """
warp 0:
mbarrier.init.shared::cta.b64 [bar], 1;
{}
warp 1:
{}
mbarrier.arrive.shared::cta.b64 _, [bar];
"""


@pytest.mark.parametrize("sync", ["bar.sync 0;", "bar.warp.sync -1;"])
def test_whether_an_init_is_published_needs_the_block_size(sync: str) -> None:
    found = judged("MBR204", INIT.format(sync, sync))
    assert {o.verdict for o in found} == {Verdict.UNKNOWN}
    assert all("--block" in o.reason for o in found)


def test_program_order_of_one_stream_orders_no_warps() -> None:
    """Without the block size the one stream stands for all warps: the init of one is not before the use of another."""
    both = "mbarrier.init.shared::cta.b64 [bar], 1;\nmbarrier.arrive.shared::cta.b64 _, [bar];"
    assert {o.verdict for o in judged("MBR204", both)} == {Verdict.UNKNOWN}
