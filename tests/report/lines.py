"""Excerpts for reports that are rendered in tests."""

from __future__ import annotations

from verifier.rules import KernelOutcome

PTX = [
    "// gemm",
    "    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];",
    "\tmbarrier.arrive.shared.b64 _, [%r3]; // free",
]
PYTHON = {7: "    acc = tmem.load()", 9: "    pipeline.release()"}


class Lines:
    def ptx_line(self, kernel: KernelOutcome, line: int) -> str:
        return PTX[line - 1] if line <= len(PTX) else ""

    def python_line(self, file: str, line: int) -> str:
        return PYTHON.get(line, "")
