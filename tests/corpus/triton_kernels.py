"""Kernels written here in Triton: another compiler's PTX, with its own order of modifiers and its own barrier code.

Runs inside a virtual environment that has Triton; `build.py` does that. The launch facts come from Triton's own
metadata.
"""

from __future__ import annotations

import argparse
import traceback
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from verifier.compile.artifacts import Artifacts, Meta, write_artifacts
from verifier.compile.elf import assemblers_of, describe_assemblers
from verifier.compile.toolchain import Fingerprint
from verifier.launch import LaunchFacts


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Persistent matrix product through tensor descriptors, with or without warp specialization."""
    left = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    columns = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * columns
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=SPECIALIZE):
        row, column = tile // columns * BM, tile % columns * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(k, BK)):
            total = tl.dot(left.load([row, step * BK]), right.load([column, step * BK]).T, total)
        out.store([row, column], total.to(tl.float16))


@triton.jit
def locked_sum(x, out, lock, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Blocks add their part to one place, one after the other, under a spin lock."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0))
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") == 1:
        pass
    tl.store(out, tl.load(out) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release", scope="gpu")


@triton.jit
def flag_wait(flag, data, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Waits on a flag of another block before it reads that block's data."""
    while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") == 0:
        pass
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(data + offsets))


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row a block."""
    offsets = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + offsets, mask=offsets < columns, other=-float("inf"))
    top = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + tl.program_id(0) * columns + offsets, top / tl.sum(top, axis=0), mask=offsets < columns)


_TILE = {"BM": 128, "BN": 128, "BK": 64}
_OPERANDS = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"}

#: Name -> function, signature, compile-time constants, compiler options.
_KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, Any], dict[str, int]]] = {
    "matmul": (matmul, _OPERANDS, {**_TILE, "SPECIALIZE": False}, {"num_warps": 4, "num_stages": 3}),
    "matmul-specialized": (matmul, _OPERANDS, {**_TILE, "SPECIALIZE": True}, {"num_warps": 4, "num_stages": 3}),
    "locked-sum": (locked_sum, {"x": "*fp32", "out": "*fp32", "lock": "*i32", "n": "i32"}, {"BLOCK": 1024}, {}),
    "flag-wait": (flag_wait, {"flag": "*i32", "data": "*fp32", "out": "*fp32"}, {"BLOCK": 1024}, {}),
    "softmax": (softmax, {"x": "*fp32", "out": "*fp32", "columns": "i32"}, {"BLOCK": 2048}, {"num_warps": 8}),
}


def _compile(name: str, arch: str, out: Path) -> None:
    """Compile one kernel and write its artifact folder."""
    function, signature, constants, options = _KERNELS[name]
    digits = int("".join(filter(str.isdigit, arch)))
    source = triton.compiler.ASTSource(
        fn=function,
        signature={**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        # Pointers and sizes are multiples of 16, as PyTorch's are: the descriptors need it.
        attrs={(index,): [["tt.divisibility", 16]] for index in range(len(signature))},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", digits, 32), options=options)
    cubin = compiled.asm["cubin"]
    metadata = compiled.metadata
    launch = LaunchFacts(
        block=(32 * metadata.num_warps, 1, 1), cluster=(metadata.num_ctas, 1, 1), dynamic_smem=metadata.shared
    )
    meta = Meta(
        name=name,
        arch=arch,
        entry=metadata.name,
        launch=launch,
        launches={metadata.name: launch},
        source=f"tests/corpus/triton_kernels.py, triton {triton.__version__}",
        config={**constants, **options},
        toolchain=Fingerprint(assembler=describe_assemblers(assemblers_of(cubin))),
    )
    write_artifacts(out / name, Artifacts(meta=meta, ptx=compiled.asm["ptx"], cubin=cubin))


def main() -> int:
    """Compile every kernel; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(description="Compile Triton kernels on the CPU.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="sm_100a")
    options = parser.parse_args()
    failed = 0
    for name in _KERNELS:
        try:
            _compile(name, options.arch, options.out)
        except Exception as error:  # one kernel's error must not stop the others
            traceback.print_exc()
            print(f"FAILED triton {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
