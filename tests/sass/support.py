"""PTX texts and listings as kernels that rules can check, assembled by the pinned ptxas."""

from __future__ import annotations

import re

from verifier.analyses.facts import KernelFacts
from verifier.cli.inputs import Bundle
from verifier.cli.loading import load_kernels
from verifier.cli.parts import LoadOptions
from verifier.compile.artifacts import Artifacts, Meta
from verifier.compile.assemble import assemble
from verifier.compile.disassemble import disassemble
from verifier.compile.toolchain import Tool
from verifier.config import Policy
from verifier.errors import VerifierError
from verifier.findings import Judgement, Profile, Verdict
from verifier.rules import find_rule, run_rules
from verifier.rules.engine import KernelOutcome, one_per_place

WAIT_BITS = 0x3F << 52  # of the second word of an encoding


def artifacts_of(ptx: str, arch: str = "sm_100a", tool: Tool | None = None) -> Artifacts:
    """PTX with the cubin and the listing that the pinned tools make of it."""
    made = assemble(ptx, arch, tool=tool)
    listing = disassemble(made.cubin).text
    meta = Meta(name="kernel", arch=arch, messages=made.messages, usage=made.usage)
    return Artifacts(meta=meta, ptx=ptx, cubin=made.cubin, sass=listing)


def facts_of(artifacts: Artifacts) -> KernelFacts:
    """The only kernel of some artifacts."""
    (item,) = load_kernels([Bundle(source="test", compiled=artifacts)], LoadOptions(assemble=False))
    if isinstance(item, VerifierError):
        raise item
    return item.kernel


def build(ptx: str, arch: str = "sm_100a", tool: Tool | None = None) -> KernelFacts:
    return facts_of(artifacts_of(ptx, arch, tool))


def check(kernel: KernelFacts, code: str, profile: Profile = Profile.DEFAULT) -> KernelOutcome:
    return run_rules(kernel, [find_rule(code)], Policy(profile=profile))


def judgements(kernel: KernelFacts, code: str, profile: Profile = Profile.DEFAULT) -> list[Judgement]:
    return one_per_place(find_rule(code).check(kernel, Policy(profile=profile)))


def verdicts(kernel: KernelFacts, code: str) -> list[Verdict]:
    return sorted((judgement.verdict for judgement in judgements(kernel, code)), key=lambda v: v.value)


def clear_wait(listing: str, offset: int, scoreboard: int) -> str:
    """The listing in which the instruction at `offset` does not wait for `scoreboard`."""
    pattern = re.compile(rf"(/\*{offset:04x}\*/[^\n]*/\* 0x[0-9a-f]{{16}} \*/[ \t]*\n[ \t]*/\* 0x)([0-9a-f]{{16}})")
    found = pattern.search(listing)
    assert found, hex(offset)
    word = int(found[2], 16)
    bit = 1 << 52 + scoreboard
    assert word & bit, "the instruction does not wait for this scoreboard"
    return f"{listing[: found.start(2)]}{word & ~bit:016x}{listing[found.end(2) :]}"
