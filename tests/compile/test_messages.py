"""Logs of assemblers, as they were printed, become values."""

from __future__ import annotations

from verifier.compile.artifacts import ToolMessage, Usage
from verifier.compile.messages import parse_log


def test_information_of_every_build_is_no_message() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_100a'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 70 registers, used 2 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 7.375 ms
"""
    messages, usage = parse_log(log)
    assert messages == ()
    assert usage == (
        Usage(entry="gemm", registers=70, barriers=2, stack=16, spill_stores=8, spill_loads=4, shared=1024),
    )


def test_performance_notes_have_a_code() -> None:
    log = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
    (message,) = parse_log(log)[0]
    text = "Potential Performance Loss: wgmma.mma_async instructions are serialized"
    assert message == ToolMessage(severity="info", code="C7510", text=text)


def test_errors_have_a_line_and_are_listed_once() -> None:
    log = """\
ptxas /tmp/a, b/input.ptx, line 4; error   : Unknown modifier '.bar'
ptxas application ptx input, line 17; warning : odd
ptxas /tmp/a, b/input.ptx, line 4; error   : Unknown modifier '.bar'
ptxas fatal   : Ptx assembly aborted due to errors
"""
    assert parse_log(log)[0] == (
        ToolMessage(severity="error", text="Unknown modifier '.bar'", line=4),
        ToolMessage(severity="warning", text="odd", line=17),
        ToolMessage(severity="fatal", text="Ptx assembly aborted due to errors"),
    )


def test_each_entry_has_its_own_usage_and_device_functions_do_not_count() -> None:
    log = """\
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for helper
    96 bytes stack frame, 64 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 40 registers
"""
    first, second = parse_log(log)[1]
    assert (first.entry, first.registers, first.barriers, first.stack) == ("first", 12, 1, 0)
    assert (second.entry, second.registers, second.barriers, second.stack) == ("second", 40, None, 8)
    assert second.spill_stores == 0


def test_noise_is_ignored() -> None:
    assert parse_log("\nwarning: something else\nUsed 3 registers\n\0") == ((), ())
