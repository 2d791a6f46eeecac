"""What assemblers make of the PTX that the rules on machine code speak of: the table of docs/facts.md.

    python benchmarks/sass_facts.py [--ptxas PATH ...] [--arch sm_90a ...]

Each row is one piece of PTX in a kernel of its own; each cell the instructions of its SASS that synchronize, order or
invalidate, in order, with `*n` for the number of times. Without --ptxas the pinned one is asked. A cell is `-` where
the assembler refuses the PTX, `=` where all columns agree.
"""

from __future__ import annotations

import argparse
import itertools
import re
from pathlib import Path

from verifier.compile.assemble import LIMITS, assemble
from verifier.compile.disassemble import disassemble
from verifier.compile.process import run_limited
from verifier.compile.toolchain import Tool, find_tool
from verifier.errors import CompileError
from verifier.isa.sass_ops import Part, decode
from verifier.parse.control import control_of
from verifier.parse.sass import parse_sass
from verifier.parse.sass_ast import SassInstruction
from verifier.parse.source import Source

_HEAD = """.version {version}
.target {arch}
.address_size 64
.shared .align 128 .b8 buf[1024];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 p_g, .param .u32 p_t, .param .u32 p_peer)
.reqntid 128, 1, 1
.explicitcluster
.reqnctapercluster 2, 1, 1
{{
.reg .b32 %r<16>; .reg .b64 %d<4>; .reg .pred %p<4>;
ld.param.u64 %d0, [p_g]; cvta.to.global.u64 %d0, %d0; ld.param.u32 %r0, [p_t]; ld.param.u32 %r1, [p_peer];
"""
_TAIL = "\nret;\n}\n"
_LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r0];\n"
_STORE = "\nst.global.b32 [%d0], %r2;"
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar];"
_LOOP = "L: mbarrier.{wait}.parity.{sem}.shared::cta.b64 %p0, [bar], 0;\n@!%p0 bra L;"

SNIPPETS = {
    "tcgen05.ld; wait::ld; arrive": f"{_LOAD}tcgen05.wait::ld.sync.aligned;\n{_ARRIVE}{_STORE}",
    "tcgen05.ld; arrive": f"{_LOAD}{_ARRIVE}{_STORE}",
    "tcgen05.st; wait::st": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r0], {%r1};\ntcgen05.wait::st.sync.aligned;",
    "mbarrier.arrive.release.cta": "mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];",
    "mbarrier.arrive.relaxed.cta": "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];",
    "mbarrier.arrive.release.cluster": "mbarrier.arrive.release.cluster.shared::cta.b64 _, [bar];",
    "mbarrier.arrive, count 3": "mbarrier.arrive.shared::cta.b64 _, [bar], 3;",
    "mbarrier.arrive.expect_tx": "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;",
    "mbarrier.arrive, remote": "mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r1];",
    "try_wait.acquire.cta in a loop": _LOOP.format(wait="try_wait", sem="acquire.cta"),
    "try_wait.acquire.cluster in a loop": _LOOP.format(wait="try_wait", sem="acquire.cluster"),
    "try_wait.relaxed.cluster in a loop": _LOOP.format(wait="try_wait", sem="relaxed.cluster"),
    "test_wait.acquire.cluster in a loop": _LOOP.format(wait="test_wait", sem="acquire.cluster"),
    "fence.acquire.sync_restrict": "fence.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.release.sync_restrict": "fence.release.sync_restrict::shared::cta.cluster;",
    "fence.acq_rel.cta": "fence.acq_rel.cta;",
    "fence.acq_rel.cluster": "fence.acq_rel.cluster;",
    "fence.acq_rel.gpu": "fence.acq_rel.gpu;",
    "fence.sc.gpu": "fence.sc.gpu;",
    "membar.gl": "membar.gl;",
    "fence.proxy.async": "fence.proxy.async;",
    "fence.proxy.async.shared::cta": "fence.proxy.async.shared::cta;",
    "fence.proxy.async.global": "fence.proxy.async.global;",
    "fence.proxy.tensormap acquire.gpu": "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128;",
    "fence.mbarrier_init": "fence.mbarrier_init.release.cluster;",
    "barrier.cluster.arrive.relaxed": "barrier.cluster.arrive.relaxed.aligned;",
    "barrier.cluster.arrive": "barrier.cluster.arrive.aligned;",
    "barrier.cluster.wait": "barrier.cluster.wait.aligned;",
    "ld.relaxed.gpu": f"ld.relaxed.gpu.global.b32 %r2, [%d0];{_STORE}",
    "ld.acquire.gpu": f"ld.acquire.gpu.global.b32 %r2, [%d0];{_STORE}",
    "st.release.gpu": "st.release.gpu.global.b32 [%d0], %r1;",
    "cp.async.bulk.wait_group 0": "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
    "cp.async.bulk.wait_group.read 0": "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;",
    "st.async": "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r0, [%r1+64];",
    "griddepcontrol.wait": "griddepcontrol.wait;",
}
_PLAIN = frozenset({Part.PLAIN, Part.CONTROL, Part.COLLECTIVE, Part.SLEEP})
_VERSIONS = {12: "8.8", 13: "9.0"}


def table(tools: list[Tool], archs: list[str]) -> None:
    """Print the Markdown table, a column for each tool and architecture."""
    columns = [(tool, arch) for tool in tools for arch in archs]
    print("| PTX | " + " | ".join(f"{arch}, {tool.version}" for tool, arch in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    empty = {column: instructions(*column, "") or [] for column in columns}
    for name, snippet in SNIPPETS.items():
        cells = []
        for column in columns:
            found = instructions(*column, snippet)
            cells.append("-" if found is None else text_of(without(found, empty[column])))
        same = cells[1:] == cells[:-1] and len(cells) > 1
        print(f"| `{name}` | " + (f"{cells[0]} |" + " = |" * (len(cells) - 1) if same else " | ".join(cells) + " |"))


def instructions(tool: Tool, arch: str, snippet: str) -> list[str] | None:
    """Opcodes that matter, with the wait mask of those NOPs that drain; None when ptxas refuses the PTX."""
    version = _VERSIONS[int(tool.version.split(".")[0])]
    try:
        made = assemble(_HEAD.format(version=version, arch=arch) + snippet + _TAIL, arch, tool=tool)
    except CompileError:
        return None
    listing = parse_sass(Source("facts", disassemble(made.cubin).text))
    return [text for s in listing.statements if isinstance(s, SassInstruction) and (text := _name(s))]


def _name(statement: SassInstruction) -> str:
    op = decode(statement.opcode)
    control = control_of(statement)
    if op.part is Part.NOP and control is not None:
        return "NOP, drains" if control.wait == 0x3F else ""
    if op.part in _PLAIN or op.root in ("LDC", "LDCU", "S2R", "S2UR"):
        return ""
    guard = f"@{'!' if statement.guard.negated else ''}{statement.guard.name[:-1]} " if statement.guard else ""
    waits = " (waits)" if op.part is Part.BARRIER_ARRIVE and control is not None and control.wait else ""
    return f"{guard}{statement.opcode}{waits}"


def without(found: list[str], usual: list[str]) -> list[str]:
    left = list(found)
    for name in usual:
        if name in left:
            left.remove(name)
    return left


def text_of(names: list[str]) -> str:
    parts = []
    for name, group in itertools.groupby(names):
        number = len(list(group))
        parts.append(f"`{name}`" + (f" *{number}" if number > 1 else ""))
    return "; ".join(parts) or "nothing"


def tool_at(path: Path) -> Tool:
    found = re.search(r"V(\d+\.\d+\.\d+)", run_limited([str(path), "--version"], limits=LIMITS).out.decode())
    assert found is not None
    return Tool(name="ptxas", path=str(path), version=found[1], origin="environment")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", action="append", type=Path, default=[])
    parser.add_argument("--arch", action="append")
    options = parser.parse_args()
    tools = [tool_at(path) for path in options.ptxas] or [find_tool("ptxas")]
    table(tools, options.arch or ["sm_100a"])


if __name__ == "__main__":
    main()
