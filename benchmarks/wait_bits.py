"""Does SAS801 notice every single lost wait? Clears, one at a time, each wait bit that a proof rests on.

    python benchmarks/wait_bits.py [KERNEL ...] [--arch sm_100a ...]

A bit counts when clearing it in the listing must matter: the instruction completes a TMEM load, and on some path it is
the last to do so before a release that gives away what the load reads. (A wait for a younger load behind it would
complete this one, too: loads complete in order.) Prints killed / total for each kernel and in all; a survivor is
printed with its offset. Exit code 1 when a bit survives or a kernel is not proved to begin with.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

import msgspec

from kernels import registry
from verifier.analyses.facts import KernelFacts
from verifier.analyses.releases import releases
from verifier.analyses.sass_evidence import SassLoads, sass_loads
from verifier.cli.inputs import Bundle
from verifier.cli.loading import load_kernels
from verifier.cli.parts import LoadOptions
from verifier.compile.artifacts import Artifacts
from verifier.compile.build import compile_case
from verifier.compile.disassemble import disassemble
from verifier.compile.store import default_store
from verifier.config import Policy
from verifier.errors import VerifierError
from verifier.findings import Verdict
from verifier.model.events import Event, Kind
from verifier.model.streams import Stream
from verifier.rules import find_rule

RULE = "SAS801"
KERNELS = ("gemm_persistent", "gemm_splitk_mailbox")
_FIRST_WAIT_BIT = 52  # in the second word of an encoding


class WaitBit(msgspec.Struct, frozen=True, order=True):
    """The instruction at `offset` (bytes) waits for `scoreboard`."""

    offset: int
    scoreboard: int


def facts_of(artifacts: Artifacts) -> KernelFacts:
    (item,) = load_kernels([Bundle(source="bench", compiled=artifacts)], LoadOptions(assemble=False))
    if isinstance(item, VerifierError):
        raise item
    return item.kernel


def verdicts(artifacts: Artifacts) -> list[Verdict]:
    """What SAS801 says of each obligation."""
    return [judgement.verdict for judgement in find_rule(RULE).check(facts_of(artifacts), Policy())]


def proving_bits(artifacts: Artifacts) -> list[WaitBit]:
    """Wait bits that complete a load before a release that gives it away."""
    kernel = facts_of(artifacts)
    loads = sass_loads(kernel)
    assert loads is not None
    return sorted(set(_bits(kernel, loads)))


def _bits(kernel: KernelFacts, loads: SassLoads) -> Iterator[WaitBit]:
    side = loads.side
    assert side.ptx is not None
    for release in releases(kernel, side.ptx, Kind.TMEM_LOAD, Kind.TMEM_WAIT_LOAD):
        targets = {load for load, _ in release.given}
        for stream, sink in loads.sinks_of(release.stream, release.signal):
            flight = loads.flight(stream)
            given = [load for load in flight.before(sink) if targets & set(side.join.sources(load))]
            yield from _last(loads, stream, given, sink)


def _last(loads: SassLoads, stream: Stream, given: list[Event], sink: Event) -> Iterator[WaitBit]:
    """Wait bits of the instructions that complete one of `given`, with none of their kind between them and `sink`."""
    masks: dict[int, int] = {}
    for load in given:
        for completion in loads.flight(stream).completions(load):
            masks[completion.instr] = masks.get(completion.instr, 0) | completion.mask
    for instr, mask in masks.items():
        if _leads_to(stream, instr, sink.instr, frozenset(masks)):
            offset = loads.side.model.function.instrs[instr].location.sass_offset or 0
            yield from (WaitBit(offset, n) for n in range(6) if mask >> n & 1)


def _leads_to(stream: Stream, start: int, sink: int, others: frozenset[int]) -> bool:
    """Whether a path leads from instruction `start` to `sink` without another one of `others`."""
    cfg = stream.cfg
    work = [(cfg.block_of[start], start)]
    seen: set[int] = set()
    while work:
        block, first = work.pop()
        for index in range(first, cfg.blocks[block].end):
            if index == sink:
                return True
            if index in others and index != start:
                break
        else:
            following = [edge.dst for edge in cfg.successors[block] if edge.dst not in seen]
            seen.update(following)
            work += [(block, cfg.blocks[block].start) for block in following]
    return False


def cleared(listing: str, bit: WaitBit) -> str:
    """The listing in which one instruction does not wait for one scoreboard."""
    pattern = rf"/\*{bit.offset:04x}\*/[^\n]*/\* 0x[0-9a-f]{{16}} \*/[ \t]*\n[ \t]*/\* 0x([0-9a-f]{{16}})"
    found = re.search(pattern, listing)
    assert found is not None
    word = int(found[1], 16) & ~(1 << _FIRST_WAIT_BIT + bit.scoreboard)
    return f"{listing[: found.start(1)]}{word:016x}{listing[found.end(1) :]}"


def survivors(artifacts: Artifacts, bits: list[WaitBit]) -> list[WaitBit]:
    """Bits that can be cleared without a violation."""
    assert artifacts.sass is not None
    left = []
    for bit in bits:
        mutant = msgspec.structs.replace(artifacts, sass=cleared(artifacts.sass, bit))
        if Verdict.VIOLATED not in verdicts(mutant):
            left.append(bit)
    return left


def compiled(name: str, arch: str) -> Artifacts:
    artifacts = compile_case(registry.case(name), arch, None, store=default_store())
    if artifacts.sass is None:
        assert artifacts.cubin is not None
        artifacts = msgspec.structs.replace(artifacts, sass=disassemble(artifacts.cubin).text)
    return artifacts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--arch", action="append")
    options = parser.parse_args()
    killed = total = 0
    sound = True
    for name in options.kernels:
        for arch in options.arch or ("sm_100a", "sm_103a"):
            artifacts = compiled(name, arch)
            proved = set(verdicts(artifacts)) == {Verdict.PROVED}
            bits = proving_bits(artifacts)
            left = survivors(artifacts, bits)
            sound &= proved and bool(bits)
            killed, total = killed + len(bits) - len(left), total + len(bits)
            print(
                f"{name} {arch}: {'proved' if proved else 'NOT PROVED'}; {len(bits) - len(left)} / {len(bits)} killed"
            )
            for bit in left:
                print(f"  survives: SB{bit.scoreboard} at {bit.offset:#x}")
    print(f"{killed} / {total} killed")
    return 0 if sound and killed == total else 1


if __name__ == "__main__":
    sys.exit(main())
