"""What parsing and checking cost, next to what compiling and disassembling cost: all measured in one run.

    python benchmarks/cost.py [KERNEL] [--ptx FILE] [--arch sm_100a] [--rounds 5]

Prints CPU seconds (user + system, children included; the least of the rounds), parse speed in MB/s of plain Lark and of
the fast path with an empty and with a filled memo, and the ratios. Machines are noisy: compare within one run only.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernels import registry
from verifier.compile.artifacts import write_artifacts
from verifier.compile.build import compile_case
from verifier.compile.disassemble import disassemble
from verifier.parse.ptx import parse_ptx, parse_ptx_reference
from verifier.parse.ptx_shapes import PtxShapes
from verifier.parse.source import Source

LARGER = "grouped_gemm_dsrelu"  # what short statements and many registers make of the speed of parsing
PROTOCOL = "TCG103,TCG104,TCG108,MBR202,MBR203,MBR205,MBR207,CTL703,MEM401"


def cpu_of(action: Callable[[], object]) -> float:
    """CPU seconds of `action` in this process and its children."""
    gc.collect()
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    action()
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))


def least(action: Callable[[], object], rounds: int) -> float:
    return min(cpu_of(action) for _ in range(rounds))


def parse_speeds(text: str, rounds: int) -> None:
    megabytes = len(text) / 1e6
    parse_ptx_reference(Source("warm.ptx", text))  # Lark's tables are built once, before the clock runs
    plain = least(lambda: parse_ptx_reference(Source("a.ptx", text)), rounds)
    cold = least(lambda: parse_ptx(Source("a.ptx", text), PtxShapes()), rounds)
    filled = PtxShapes()
    parse_ptx(Source("a.ptx", text), filled)
    warm = least(lambda: parse_ptx(Source("a.ptx", text), filled), rounds)
    print(f"parse  {len(text):,} bytes of PTX")
    for name, seconds in (("plain Lark", plain), ("fast, empty memo", cold), ("fast, filled memo", warm)):
        print(
            f"  {name:18} {1000 * seconds:8.1f} ms  {megabytes / seconds:6.2f} MB/s  x{plain / seconds:.1f} plain Lark"
        )


def check(folder: Path, *options: str) -> Callable[[], object]:
    """`verifier check` as a whole process on an artifact folder that holds its listing."""
    command = [sys.executable, "-m", "verifier", "check", "--format", "json", str(folder), *options]
    # As an installed package runs: with the bytecode of its modules at hand.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        done = subprocess.run(command, capture_output=True, check=False, env=environment)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr.decode())

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", nargs="?", default="gemm_persistent")
    parser.add_argument("--ptx", type=Path, help="measure parsing on this file alone")
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    case = registry.case(options.kernel)
    started = time.perf_counter()
    compile_cpu = least(lambda: compile_case(case, options.arch, store=None), min(options.rounds, 2))
    artifacts = compile_case(case, options.arch, store=None)
    folder = Path(tempfile.mkdtemp()) / "kernel"
    write_artifacts(folder, artifacts)
    if options.ptx:
        parse_speeds(options.ptx.read_text(), options.rounds)
    else:
        larger = compile_case(registry.case(LARGER), "sm_100a", store=None)
        for text in (artifacts.ptx or "", larger.ptx or ""):
            parse_speeds(text, options.rounds)
    cubin = artifacts.cubin or b""
    check(folder)()  # writes the bytecode, if nothing has been run before
    nvdisasm = least(lambda: disassemble(cubin, name="kernel.cubin"), options.rounds)
    stored = least(check(folder), options.rounds)
    local = least(check(folder, "--ignore", PROTOCOL), options.rounds)
    print(f"cost   {case.name} {options.arch}, CPU seconds of whole processes")
    rows = (
        ("compile (DSL, ptxas, listing)", compile_cpu),
        ("nvdisasm alone", nvdisasm),
        ("verifier check, listing at hand", stored),
        ("  the same, no rule that runs the protocol", local),
    )
    for name, seconds in rows:
        print(f"  {name:42} {seconds:6.2f} s  {seconds / compile_cpu:5.2f} x compile")
    print(f"(measured in {time.perf_counter() - started:.0f} s)")


if __name__ == "__main__":
    main()
