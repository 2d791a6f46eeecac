"""Calls of PTX functions: what a callee does stands in the caller, and what is not followed is said."""

from __future__ import annotations

import pytest

from verifier.launch import LaunchFacts
from verifier.model.events import Kind
from verifier.model.kernel import KernelModel
from verifier.model.lift_ptx import lift_ptx
from verifier.model.lower_ptx import lower_ptx
from verifier.model.program import Reg
from verifier.parse.ptx import parse_ptx
from verifier.parse.source import Source

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
REGS = ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;"


def model_of(functions: str, body: str, block: int = 64) -> KernelModel:
    entry = f".visible .entry k(.param .b64 a, .param .b32 n)\n.reqntid {block}\n{{\n{REGS}\n{body}\nret;\n}}\n"
    function = next(f for f in lower_ptx(parse_ptx(Source("k.ptx", f"{HEAD}{functions}\n{entry}"))) if f.name == "k")
    return KernelModel(function, lift_ptx, LaunchFacts())


def kinds(model: KernelModel) -> list[Kind]:
    plain = (Kind.EXIT, Kind.LOAD)
    return [e.kind for e in model.events if e.kind not in plain and any(s.runs(e) for s in model.streams)]


def stored(model: KernelModel, which: int = 0) -> object:
    """The value that the which-th store writes, as the first stream knows it."""
    store = [e for e in model.events if e.kind is Kind.STORE and e.space == "global"][which]
    value = model.streams[0].value(store.instr, Reg(store.registers[0]))
    return value.constant if value.constant is not None else value


ADD = f"""
.func (.param .b32 out) add(.param .b32 left, .param .b32 right)
{{
{REGS}
ld.param.b32 %r1, [left];
ld.param.b32 %r2, [right+0];
add.s32 %r3, %r1, %r2;
st.param.b32 [out+0], %r3;
ret;
}}
"""


def call(function: str, result: str, *passed: str) -> str:
    """A call as compilers write it."""
    names = [f"param{i}" for i in range(len(passed))]
    lines = [
        f".param .b32 {name};\nst.param.b32 [{name}+0], {value};" for name, value in zip(names, passed, strict=True)
    ]
    lines += [".param .b32 retval0;", f"call.uni (retval0), {function}, ({', '.join(names)});"]
    return "\n".join(["{", *lines, f"ld.param.b32 {result}, [retval0+0];", "}"])


def test_values_go_in_and_come_back() -> None:
    body = f"mov.u32 %r1, 5;\n{call('add', '%r2', '%r1', '7')}\nst.global.b32 [%rd1], %r2;"
    assert stored(model_of(ADD, body)) == 12


def test_each_call_has_its_own_registers() -> None:
    body = f"{call('add', '%r2', '1', '2')}\n{call('add', '%r3', '10', '20')}\nst.global.b32 [%rd1], %r2;"
    body += "\nst.global.b32 [%rd1], %r3;\nst.global.b32 [%rd1], %r1;"
    model = model_of(ADD, body)
    assert (stored(model, 0), stored(model, 1)) == (3, 30)
    assert stored(model, 2) not in (1, 2, 10, 20)  # the caller's %r1 is not the callee's


def test_calls_within_calls() -> None:
    twice = f"""
.func (.param .b32 out) twice(.param .b32 value)
{{
{REGS}
ld.param.b32 %r1, [value];
{call("add", "%r2", "%r1", "%r1")}
st.param.b32 [out], %r2;
ret;
}}
"""
    body = f"{call('twice', '%r2', '21')}\nst.global.b32 [%rd1], %r2;"
    assert stored(model_of(ADD + twice, body)) == 42


def test_register_parameters() -> None:
    old = f".func (.reg .u32 out) old(.reg .u32 in)\n{{\n{REGS}\nadd.u32 out, in, 1;\nret;\n}}\n"
    assert stored(model_of(old, "call (%r2), old, (4);\nst.global.b32 [%rd1], %r2;")) == 5


def test_fields_of_a_structure() -> None:
    pair = f"""
.func (.param .b32 out) second(.param .align 8 .b8 pair[8])
{{
{REGS}
ld.param.v2.b32 {{%r1, %r2}}, [pair];
st.param.b32 [out], %r2;
ret;
}}
"""
    passed = ".param .align 8 .b8 p[8];\nst.param.b32 [p], 3;\nst.param.b32 [p+4], 4;\n.param .b32 o;"
    body = f"{{\n{passed}\ncall (o), second, (p);\nld.param.b32 %r2, [o];\n}}\nst.global.b32 [%rd1], %r2;"
    assert stored(model_of(pair, body)) == 4


@pytest.mark.parametrize("store", ["st.param.b64 [p], 3;", "st.param.b32 [p], 3;\nst.param.b16 [p+2], %rs1;"])
def test_what_both_sides_access_in_two_ways_is_not_known(store: str) -> None:
    read = f"""
.func (.param .b32 out) read(.param .align 8 .b8 value[8])
{{
{REGS}
ld.param.b32 %r1, [value];
st.param.b32 [out], %r1;
ret;
}}
"""
    passed = f".param .align 8 .b8 p[8];\n{store}\n.param .b32 o;"
    body = f"{{\n{passed}\ncall (o), read, (p);\nld.param.b32 %r2, [o];\n}}\nst.global.b32 [%rd1], %r2;"
    assert not isinstance(stored(model_of(read, body)), int)


def test_a_result_that_some_path_does_not_give_is_not_known() -> None:
    maybe = f"""
.func (.param .b32 out) maybe(.param .b32 value)
{{
{REGS}
ld.param.b32 %r1, [value];
setp.eq.s32 %p1, %r1, 0;
@%p1 ret;
st.param.b32 [out], 7;
ret;
}}
"""
    body = f"ld.param.b32 %r1, [n];\n{call('maybe', '%r2', '%r1')}\nst.global.b32 [%rd1], %r2;"
    assert not isinstance(stored(model_of(maybe, body)), int)


BARRIER = f".func barrier()\n{{\n{REGS}\nbar.sync 0;\nret;\n}}\n"


def test_synchronization_of_a_callee_is_seen() -> None:
    model = model_of(BARRIER, "call barrier;\nst.shared.b32 [%r1], %r2;\ncall barrier, ();")
    assert kinds(model) == [Kind.CTA_SYNC, Kind.STORE, Kind.CTA_SYNC]
    assert model.unfollowed is None


def test_a_guarded_call_may_be_skipped() -> None:
    warp = "mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 5;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 call barrier;"
    model = model_of(BARRIER, f"{warp}\nst.shared.b32 [%r1], %r2;")
    sync = next(e for e in model.events if e.kind is Kind.CTA_SYNC)
    assert [stream.runs(sync) for stream in model.streams] == [True, False]


def test_labels_tables_and_variables_of_a_callee_are_its_own() -> None:
    jump = f"""
.func jump()
{{
.shared .align 4 .b8 slot[4];
{REGS}
ts: .branchtargets L1, L2;
mov.u32 %r1, 1;
brx.idx %r1, ts;
L1: bar.sync 1;
L2: st.shared.b32 [slot], 5;
ret;
}}
"""
    own = ".shared .align 4 .b8 slot[4];\nts: .branchtargets L2, L1;\nmov.u32 %r1, 1;\nbrx.idx %r1, ts;"
    model = model_of(jump, f"{own}\nL1: st.shared.b32 [slot], 6;\ncall jump;\nret;\nL2: bar.sync 2;")
    assert kinds(model) == [Kind.STORE, Kind.STORE]
    mine, callees = (e.address for e in model.events if e.kind is Kind.STORE)
    assert mine != callees


UNSEEN = {
    "prototype": (
        ".extern .func other(.param .b32 x);",
        "{\n.param .b32 p;\nst.param.b32 [p], 1;\ncall other, (p);\n}",
    ),
    "recursion": (".func f()\n{\ncall f;\nret;\n}\n", "call f;"),
    "indirect": (BARRIER, "mov.u64 %rd2, barrier;\nts: .calltargets barrier;\ncall %rd2, (), ts;"),
    "any function": ("", "proto: .callprototype _ ();\ncall %rd2, (), proto;"),
    "a name alike": (".extern .func my_vprintf();", "call my_vprintf;"),
}


@pytest.mark.parametrize("how", UNSEEN)
def test_what_is_not_followed_is_said(how: str) -> None:
    functions, body = UNSEEN[how]
    unfollowed = model_of(functions, body).unfollowed
    assert unfollowed is not None
    assert unfollowed.opcode == "call"


def test_a_call_that_no_warp_comes_to_does_not_matter() -> None:
    body = "mov.u32 %r1, 1;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 call other;"
    assert model_of(".extern .func other();", body).unfollowed is None


PRINT = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);"


def test_system_calls_are_known_but_not_what_they_return() -> None:
    use = "{\n.param .b64 f;\n.param .b64 v;\n.param .b32 r;\ncall (r), vprintf, (f, v);\nld.param.b32 %r2, [r];\n}"
    again = use.replace("%r2", "%r3")
    model = model_of(PRINT, f"{use}\n{again}\nst.global.b32 [%rd1], %r2;\nst.global.b32 [%rd1], %r3;")
    assert model.unfollowed is None
    assert stored(model, 0) != stored(model, 1)


def test_nothing_runs_after_a_failed_assertion() -> None:
    body = "@%p1 bra GOOD;\ncall __assertfail;\nbar.sync 1;\nGOOD: bar.sync 0;"
    model = model_of(".extern .func __assertfail();", body)
    (only,) = model.streams
    first, _ = (e for e in model.events if e.kind is Kind.CTA_SYNC)
    assert not only.runs(first)
