"""How much memory a `wmma.load` or `wmma.store` touches.

Source: PTX ISA 9.4, 9.7.16.4.1 "Matrix shape", 9.7.16.4.3 "wmma.load", 9.7.16.4.4 "wmma.store": without a stride, rows
(columns) lie side by side; the stride is in elements.
"""

from __future__ import annotations

from verifier.isa.ptx_ops import PtxOp

_BITS = {
    **dict.fromkeys(("b1",), 1),
    **dict.fromkeys(("s4", "u4"), 4),
    **dict.fromkeys(("s8", "u8"), 8),
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    **dict.fromkeys(("f64",), 64),
}
_SIDES = {"a": "mk", "b": "kn", "c": "mn", "d": "mn"}


def matrix_bytes(op: PtxOp, stride: int | None) -> int | None:
    """Bytes of a matrix without gaps; None when its rows lie apart. `stride` None: none is written."""
    shape = next((word for word in op.words if word[:1] == "m" and word[1:2].isdigit()), None)
    matrix = next((word for word in op.words if word in _SIDES), None)
    bits = next((_BITS[word] for word in reversed(op.words) if word in _BITS), None)
    if shape is None or matrix is None or bits is None:
        return None
    sizes = dict(zip("mnk", _numbers(shape), strict=True))
    rows, columns = (sizes[side] for side in _SIDES[matrix])
    if stride not in (None, rows if op.has("col") else columns):
        return None
    return rows * columns * bits // 8


def _numbers(shape: str) -> tuple[int, ...]:
    """The three numbers of `m16n8k32`."""
    first, _, rest = shape[1:].partition("n")
    second, _, third = rest.partition("k")
    return int(first), int(second), int(third)
