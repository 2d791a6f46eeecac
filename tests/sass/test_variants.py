"""Variants of the GEMM's epilogue, assembled by the pinned ptxas: what SAS801 says of its release."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec import structs

from tests.sass.support import artifacts_of, build, clear_wait, facts_of, judgements
from verifier.analyses.facts import KernelFacts
from verifier.analyses.sass_evidence import sass_loads
from verifier.findings import Judgement, Location, Profile, Severity, Verdict
from verifier.model.events import Kind

pytestmark = pytest.mark.toolchain

WAIT = "\ttcgen05.wait::ld.sync.aligned;\n"
USE = "\tsetp.eq.b32 %use, %r{0}, 2147483647;\n\t@%use trap;\n"
_LOAD = re.compile(r"\ttcgen05\.ld\.sync\.aligned\.32x32b\.x32\.b32 \{([^}]*)\}, \[(%r\d+)\];\n")
_ARRIVE = re.compile(r"\tmbarrier\.arrive\.relaxed\.cluster\.shared\.b64 [^\n]*\n")
_SKIP = re.compile(r"\t@(%p\d+) bra\s+\$L__BB\d+_\d+;\n(?:\t\.loc[^\n]*\n)*\ttcgen05\.fence::before_thread_sync;\n")


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def load_of(ptx: str) -> tuple[str, list[str], str]:
    """(the TMEM load of the epilogue, its registers, its address)."""
    (found,) = _LOAD.finditer(ptx)
    return found[0], [register.strip() for register in found[1].split(",")], found[2]


def declared(ptx: str) -> str:
    """Registers that the variants use."""
    head, entry, body = ptx.partition("{\n")
    return head + entry + "\t.reg .pred %use;\n\t.reg .b32 %ahead;\n" + body


def waited(ptx: str) -> str:
    return ptx


def used_before_release(ptx: str) -> str:
    """No wait::ld; a register of the load decides a branch before the release."""
    return replaced(declared(ptx), WAIT, USE.format(load_of(ptx)[1][0][2:]))


def used_after_release(ptx: str) -> str:
    return replaced(ptx, WAIT, "")


def released_first(ptx: str) -> str:
    """The relaxed arrive of a trip stands before its load."""
    load = load_of(ptx)[0]
    (arrive,) = _ARRIVE.findall(ptx)
    (skip,) = _SKIP.findall(ptx)
    moved = f"\t@!{skip} mbarrier.arrive.relaxed.cluster.shared.b64 _, {arrive.split(', ', 1)[1].rsplit(',', 1)[0]};\n"
    return replaced(replaced(ptx, arrive, ""), load, moved + load)


def eight_loads(ptx: str) -> str:
    """The 32 columns come by eight loads of four."""
    load, registers, address = load_of(ptx)
    small = "".join(
        f"\ttcgen05.ld.sync.aligned.32x32b.x4.b32 {{{', '.join(registers[i : i + 4])}}}, [{address}+{i}];\n"
        for i in range(0, 32, 4)
    )
    return replaced(ptx, load, small)


def eight_loads_no_wait(ptx: str) -> str:
    return used_after_release(eight_loads(ptx))


def loads_ahead(ptx: str) -> str:
    """The release stands first in a trip; at the end of the trip before it a load was issued, and nobody waits."""
    text = declared(released_first(ptx))
    load, _, address = load_of(ptx)
    loop = re.search(r"\$L__BB0_\d+:\n\t\.pragma \"nounroll\";\n(?=[^$]*?" + re.escape(load) + ")", text)
    assert loop is not None
    label = loop[0].partition(":")[0]
    (back,) = re.findall(rf"\t@%p\d+ bra\s+{re.escape(label)};\n", text)
    kept = "\tst.volatile.shared.b32 [%r1], %ahead;\n"
    ahead = f"{kept}\ttcgen05.ld.sync.aligned.32x32b.x1.b32 {{%ahead}}, [{address}];\n"
    text = replaced(text, back, ahead + back)
    return replaced(text, loop[0], "\tmov.b32 %ahead, 0;\n" + loop[0])


def loads_ahead_waited(ptx: str) -> str:
    """The same with a wait::ld before the release."""
    text = loads_ahead(ptx)
    arrive = re.search(r"\t@!%p\d+ mbarrier\.arrive\.relaxed\.cluster\.shared\.b64 _,[^\n]*\n", text)
    assert arrive is not None
    return replaced(text, arrive[0], WAIT + arrive[0])


def release(kernel: KernelFacts, code: str = "SAS801", profile: Profile = Profile.DEFAULT) -> Judgement:
    """What a rule says of the release of the accumulator."""
    assert kernel.ptx is not None
    arrives = {
        e.location.ptx_line
        for e in kernel.ptx.events
        if e.opcode.startswith("mbarrier.arrive.relaxed.cluster.shared") and e.kind is Kind.BARRIER_ARRIVE
    }
    (found,) = [j for j in judgements(kernel, code, profile) if j.location.ptx_line in arrives]
    return found


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        (waited, Verdict.PROVED),
        (used_before_release, Verdict.PROVED),
        (used_after_release, Verdict.VIOLATED),
        (released_first, Verdict.PROVED),
        (eight_loads, Verdict.PROVED),
        (eight_loads_no_wait, Verdict.VIOLATED),
        (loads_ahead, Verdict.PROVED),  # ptxas waits on the branch back
        (loads_ahead_waited, Verdict.PROVED),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_release(gemm_ptx: str, variant: Callable[[str], str], expected: Verdict, arch: str) -> None:
    kernel = build(variant(gemm_ptx).replace("sm_100a", arch), arch)
    found = release(kernel)
    assert found.verdict is expected, found.reason
    if expected is Verdict.VIOLATED:
        load, sink = (step.location.sass_offset for step in found.witness[:2])
        assert load is not None
        assert sink == found.location.sass_offset
        assert "SB" in found.message


def test_eight_loads_share_a_scoreboard(gemm_ptx: str) -> None:
    """Fewer scoreboards than loads, as one LDTM has none: only the in-order criterion can prove this variant."""
    kernel = build(eight_loads(gemm_ptx))
    loads = sass_loads(kernel)
    assert loads is not None
    issued = [e.instr for e in loads.side.model.events if e.kind is Kind.TMEM_LOAD]
    assert len(issued) == 8
    own = [loads.side.controls.writes[instr] for instr in issued]
    assert None in own
    assert len(set(own)) < len(own)


def test_a_load_in_flight_across_a_back_edge(gemm_ptx: str) -> None:
    """Without the wait on the branch back, the load of one trip is in flight at the release of the next."""
    artifacts = artifacts_of(loads_ahead(gemm_ptx))
    loads = sass_loads(facts_of(artifacts))
    assert loads is not None
    (ahead,) = [e for e in loads.side.model.events if e.opcode == "LDTM"]
    (stream,) = {s for s in loads.side.model.streams if s.runs(ahead) and s.warps[0] == 0}
    listing = artifacts.sass
    for completion in loads.flight(stream).completions(ahead):
        offset = loads.side.model.function.instrs[completion.instr].location.sass_offset
        for scoreboard in (n for n in range(6) if completion.mask >> n & 1):
            assert listing is not None
            assert offset is not None
            listing = clear_wait(listing, offset, scoreboard)
    found = release(facts_of(structs.replace(artifacts, sass=listing)))
    assert found.verdict is Verdict.VIOLATED
    assert found.witness[0].location == ahead.location


@pytest.mark.parametrize(
    ("variant", "default", "isa"),
    [
        (used_before_release, Severity.WARNING, Severity.ERROR),
        (used_after_release, Severity.ERROR, Severity.ERROR),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_contract_finding_tells_what_this_build_does(
    gemm_ptx: str, variant: Callable[[str], str], default: Severity, isa: Severity
) -> None:
    kernel = build(variant(gemm_ptx))
    found = release(kernel, "TCG101")
    assert found.verdict is Verdict.VIOLATED
    assert found.severity is default
    assert release(kernel, "TCG101", Profile.ISA).severity is isa
    (evidence,) = [step for step in found.witness if "in this build" in step.fact]
    assert ("still in flight" in evidence.fact) == (default is Severity.ERROR)
    assert re.search(r"SB\d", evidence.fact)
    assert re.search(r" at 0x[0-9a-f]+", evidence.fact)


def test_without_sass_the_contract_finding_stays_an_error(gemm_ptx: str) -> None:
    artifacts = artifacts_of(used_before_release(gemm_ptx))
    kernel = facts_of(structs.replace(artifacts, cubin=None, sass=None))
    found = release(kernel, "TCG101")
    assert found.severity is Severity.ERROR
    assert any("no SASS is at hand" in step.fact and step.location == Location() for step in found.witness)
