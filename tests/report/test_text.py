"""The report for people."""

from __future__ import annotations

import pytest

from tests.report.lines import Lines
from tests.report.samples import TOOLS, finding, outcome
from verifier.findings import Location, WitnessStep
from verifier.report import text
from verifier.report.results import Results, Tools


def render(results: Results) -> list[str]:
    rendered = text.render(results, Lines())
    assert rendered.endswith("\n")
    return rendered.splitlines()


def test_a_violation_in_full(results: Results) -> None:
    assert render(results)[:17] == [
        "error[TCG101 release-before-tmem-load-completes]: the stage is released while a load of it may be in flight",
        "  in kernel gemm (sm_100a), role epilogue; gemm.ptx",
        "  --> PTX line 3 at SASS 0x0340",
        "   | mbarrier.arrive.shared.b64 _, [%r3]; // free",
        "   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  --> gemm.py:9",
        "   | pipeline.release()",
        "  how it happens:",
        "   1. epilogue: the load starts  [PTX 2, SASS 0x0100, gemm.py:7]",
        "        tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];",
        "   2. epilogue: the stage is released; no wait::ld stands between  [PTX 3, SASS 0x0340, gemm.py:9]",
        "  = contract: the PTX memory model does not order it",
        "  = help: wait for the load before the arrive",
        "  = `verifier explain TCG101` tells more",
        "",
        "unknown[MBR201] 5 x the address of the barrier is not resolved",
        "  in kernel gemm (sm_100a), gemm.ptx; mma: PTX 11; mma: PTX 12; mma: PTX 13; mma: PTX 14; and 1 more",
    ]


def test_the_ledger_tells_proved_idle_and_not_run_apart(results: Results) -> None:
    assert render(results)[-2] == (
        "gemm (sm_100a, assembled by ptxas 13.4.59): TCG101 1 proved, 1 VIOLATED; MBR201 5 unknown; "
        "nothing to check for SCP301; not run: PRF601 (needs SASS)"
    )


def test_the_last_line_sums_up(results: Results, clean: Results) -> None:
    assert render(results)[-1] == (
        "1 kernel (sm_100a): 1 obligation proved, 1 violated, 5 unknown; 1 error, 0 warnings, 0 notes; "
        "0 unparsed lines; assembled by ptxas 13.4.59; tools here: ptxas 13.5.37, nvdisasm 13.5.37, dsl 4.8.1"
    )
    assert render(clean)[-1].startswith("2 kernels (sm_100a, sm_103a): 8 obligations proved, 0 violated, 0 unknown;")


def test_the_assemblers_of_the_builds_are_told_from_the_tools_here() -> None:
    names = ("ptxas 13.4.59", "", "ptxas 9", "ptxas 9 for this check")
    kernels = tuple(outcome(toolchain={"assembler": name} if name else {}) for name in names)
    last = render(Results(kernels, (), Tools(version="1", nvdisasm="13.5.37")))[-1]
    expected = (
        "assembled by ptxas 13.4.59, ptxas 9; tools here: ptxas not installed, nvdisasm 13.5.37, dsl not installed"
    )
    assert last.endswith(expected)


def test_kernels_of_several_inputs_name_them() -> None:
    kernels = tuple(outcome(source=source) for source in ("a/gemm.ptx", "b/gemm.ptx"))
    lines = render(Results(kernels, (), TOOLS))
    for source in ("a/gemm.ptx", "b/gemm.ptx"):
        assert f"  in kernel gemm (sm_100a), role epilogue; {source}" in lines
        assert any(line.startswith(f"  in kernel gemm (sm_100a), {source}; mma: PTX 11;") for line in lines)
        assert any(line.startswith(f"gemm (sm_100a, {source}, assembled by ptxas 13.4.59): ") for line in lines)


def test_incomplete_is_said_first_and_last(incomplete: Results) -> None:
    lines = render(incomplete)
    assert lines[0].startswith("INCOMPLETE, 2 inputs could not be checked")
    assert lines[-1].startswith("INCOMPLETE, 2 inputs could not be checked: 1 kernel ")
    assert "1 unparsed line;" in lines[-1]


def test_a_long_witness_is_shortened_and_says_so() -> None:
    steps = tuple(WitnessStep(role="mma", fact=f"step {n}", location=Location(ptx_line=2)) for n in range(1, 301))
    lines = render(Results((outcome(findings=(finding(witness=steps),), obligations=()),), (), TOOLS))
    body = lines[: lines.index("")]
    assert len(body) <= 40
    assert "     ... 292 more steps (--format json has them all)" in body
    assert any("step 1 " in line for line in body)
    assert any("300. mma: step 300 " in line for line in body)


def test_instructions_that_no_table_knows_are_named() -> None:
    strange = {"frob.b32": 2, "zap": 1, "a": 1, "b": 1, "c": 1}
    lines = render(Results((outcome(findings=(), unknown_opcodes=strange),), (), TOOLS))
    assert "  unknown to the tables: 6 instructions, frob.b32 x2, a x1, b x1, c x1, and 1 more opcode" in lines
    assert "; 6 unknown instructions; assembled by ptxas" in lines[-1]


def test_a_finding_without_a_place_still_renders() -> None:
    bare = finding(location=Location(), witness=(), fix="")
    lines = render(Results((outcome(findings=(bare,)),), (), TOOLS))
    assert lines[1] == "  in kernel gemm (sm_100a), role epilogue; gemm.ptx"
    assert lines[2].startswith("  = contract")


def test_colours_change_no_word(results: Results) -> None:
    painted = text.render(results, Lines(), lambda words, style: f"<{style}>{words}</>")
    for style in ("error", "warning", "note", "unknown", "good", "help", "rule", "strong", "quote"):
        painted = painted.replace(f"<{style}>", "")
    assert painted.replace("</>", "") == text.render(results, Lines())


@pytest.mark.parametrize("name", ["k" * 300])
def test_a_mangled_name_does_not_flood_the_report(name: str) -> None:
    lines = render(Results((outcome(name=name, findings=()),), (), TOOLS))
    assert all(len(line) < 250 for line in lines)
