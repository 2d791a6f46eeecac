"""Compiles the Hopper kernels and their variants into build/hopper/NAME[.DEFECT]/, to be carried to a GPU machine.

python -m benchmarks.hardware.pack [--out build/hopper]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from kernels import registry
from verifier.compile.artifacts import write_artifacts
from verifier.compile.build import compile_case

ARCH = "sm_90a"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/hopper"))
    out: Path = parser.parse_args().out
    for case in registry.CASES:
        for defect in (None, *(defect.name for defect in case.defects)) if ARCH in case.archs else ():
            folder = out / (f"{case.name}.{defect}" if defect else case.name)
            shutil.rmtree(folder, ignore_errors=True)
            write_artifacts(folder, compile_case(case, ARCH, defect))
            print(folder)


if __name__ == "__main__":
    main()
