"""Tensor-memory footprints that an opcode states by itself.

Source: PTX ISA 9.4, 9.7.18.8 "tcgen05.ld / tcgen05.st": columns touched by one repetition of each shape; `.pack::16b`
puts two 16-bit elements of adjacent columns into one register, `.unpack::16b` takes them apart, with as many registers
as without: each reaches twice the columns; 9.7.18.4.2 "Instruction descriptor" for the size of an MMA's accumulator;
9.7.18.9 "tcgen05.cp"; 9.7.18.2.3 "data movement shape" for the implicit 31x256b of `tcgen05.shift`.
"""

from __future__ import annotations

from verifier.isa.ptx_ops import PtxOp

COLUMN_MASK = 0xFFFF  # a TMEM address holds the lane in its upper half, the column in its lower half

_COLUMNS = {"32x32b": 1, "16x32bx2": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8}


def load_store_columns(op: PtxOp) -> int | None:
    """32-bit columns that one `tcgen05.ld`/`st` touches; None when the opcode does not say."""
    shape = next((word for word in op.words if word in _COLUMNS), None)
    repeat = next((word for word in op.words if word.startswith("x") and word[1:].isdigit()), None)
    if shape is None or repeat is None:
        return None
    halves = 2 if op.has("pack::16b") or op.has("unpack::16b") else 1
    return _COLUMNS[shape] * int(repeat[1:]) * halves


def accumulator_columns(descriptor: int) -> int:
    """Upper bound of the columns of D: N of the instruction descriptor (bits 17-22, in units of 8).

    The M=128 layout of a CTA pair uses half of them; a bound is what a disjointness proof needs.
    """
    return (descriptor >> 17 & 0x3F) * 8


def accumulator_footprint(descriptor: int, cta_group: int) -> int | None:
    """Columns of D that an MMA writes in each CTA, on all its lanes; None for layouts that are not modelled.

    M is in bits 24-28 in units of 16. A CTA pair with M=128 splits N over the two halves of the lanes.
    """
    rows = (descriptor >> 24 & 0x1F) * 16
    columns = accumulator_columns(descriptor)
    if not columns or rows not in (64, 128, 256):
        return None
    return columns // 2 if cta_group == 2 and rows == 128 else columns


_ROW_KINDS = frozenset({"kind::f16", "kind::tf32", "kind::f8f6f4", "kind::i8", "kind::mxf8f6f4"})
_ROW_COLUMNS = 8  # a step of K is 32 bytes of each row in all of these kinds (PTX ISA 9.4, 9.7.18.2.1)


def operand_columns(op: PtxOp) -> int | None:
    """Columns of an A matrix in tensor memory that one MMA reads; None for layouts that are not modelled."""
    if op.has("sp") or op.has("ws"):
        return None
    return _ROW_COLUMNS if op.modifiers & _ROW_KINDS else None


def scale_columns(op: PtxOp, descriptor: int, cta_group: int) -> tuple[int, int] | None:
    """Columns of the scale factors of A and of B that an MMA reads in each CTA; None where that is not modelled.

    A word holds the factors of one row of A (column of B) for a step of K; 32 of them lie in one column (PTX ISA 9.4,
    9.7.18.10.7). Longer steps of K, bit 31 of the descriptor, take more than a word.
    """
    rows = (descriptor >> 24 & 0x1F) * 16
    longer = descriptor >> 31 & 1 and not op.has("kind::mxf8f6f4")
    if op.has("sp") or longer or not rows:
        return None
    return _columns_of(rows // cta_group), _columns_of(accumulator_columns(descriptor))


def _columns_of(rows: int) -> int:
    return (rows + 31) // 32


SHIFTED_COLUMNS = 8  # the 32 bytes of each row that one `tcgen05.shift` moves
_LANE_SHIFT = 16
_QUARTER_LANES = 32
_COPIED = {"128x256b": 8, "4x256b": 8, "128x128b": 4, "64x128b": 4, "32x128b": 4}


def copy_columns(op: PtxOp) -> int | None:
    """Columns that one `tcgen05.cp` writes."""
    return next((_COPIED[word] for word in op.words if word in _COPIED), None)


def copied_bytes(op: PtxOp) -> int | None:
    """Bytes of shared memory that one `tcgen05.cp` reads: rows times bits of its shape, less if it decompresses."""
    shape = next((word for word in op.words if word in _COPIED), None)
    if shape is None or op.has("b8x16"):
        return None
    rows, bits = shape.removesuffix("b").split("x")
    return int(rows) * int(bits) // 8


def shifted_quarters(address: int) -> int:
    """Quarters of the lanes (a bit each) that a `tcgen05.shift` from `address` may move rows of.

    It begins at a lane that is a multiple of 32 and moves all rows but the last: an upper bound.
    """
    return 0b1111 << (address >> _LANE_SHIFT) // _QUARTER_LANES & 0b1111
