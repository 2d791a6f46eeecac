"""How many registers SASS operands span, what special registers and constant-bank words are called in PTX.

Source: listings of ptxas 13.5.37 for kernels whose PTX states the shape (tcgen05.ld .xN, ldmatrix .xN, vector loads,
wgmma .mMnNkK) or reads one special register.
"""

from __future__ import annotations

from verifier.isa.sass_ops import Part, Results, SassOp

_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "16": 2, "U32": 4, "32": 4, "64": 8, "128": 16, "256": 32}
_TMEM_REGISTERS = {"16dp128bit": 2, "16dp256bit": 4}  # 32-bit registers per repetition; 1 for every other shape
_DOUBLE = frozenset({"DADD", "DFMA", "DMUL"})
_PACKED = frozenset({"FADD2", "FFMA2", "FMUL2"})
_WHOLE_VALUE = frozenset({"64", "WIDE"})
_MEMORY = frozenset({Part.LOAD, Part.STORE, Part.ATOMIC, Part.REDUCTION, Part.ASYNC_STORE, Part.ASYNC_REDUCE})


def access_bytes(op: SassOp) -> int:
    """Bytes that one lane moves in a load, store, atomic or asynchronous copy."""
    if op.root in ("LDSM", "STSM"):
        return 4 * matrix_registers(op)
    sizes = [_BYTES[word] for word in op.words if word in _BYTES and not (op.part is Part.ATOMIC and word == "U32")]
    vector = 4 if op.has("F32x4") else 2 if op.has("F32x2") else 1
    return (sizes[-1] if sizes else 4) * vector


def matrix_registers(op: SassOp) -> int:
    """Registers of LDSM and STSM: the trailing count, twice as many for 16x16 matrices of bytes."""
    count = int(op.words[-1]) if op.words and op.words[-1] in ("2", "4") else 1
    return count * (2 if any(word.endswith("1616") for word in op.words) else 1)


def tmem_registers(op: SassOp) -> int:
    """Registers of LDTM and STTM: the repetition times those of one repetition of the shape."""
    each = next((_TMEM_REGISTERS[word] for word in op.words if word in _TMEM_REGISTERS), 1)
    count = next((int(word[1:]) for word in op.words if word[:1] == "x" and word[1:].isdigit()), 1)
    return each * count


def result_registers(op: SassOp) -> int:
    """Consecutive registers that the first register result spans."""
    if op.part is Part.TMEM_LOAD:
        return tmem_registers(op)
    if op.part is Part.WGMMA_MMA:
        return _wgmma_registers(op)
    if op.part in _MEMORY and op.row.space in ("texture", "surface"):
        return 4
    if op.root == "LDSM":
        return matrix_registers(op)
    if op.part in _MEMORY:
        return _vector_registers(op)
    if op.root.endswith("MMA"):
        return 2 if op.words[1:2] == ("F16",) else 4
    return _arithmetic_registers(op)


def _vector_registers(op: SassOp) -> int:
    """A 256-bit access names two groups of four registers."""
    return 4 if op.has("256") else max(1, access_bytes(op) // 4)


def _wgmma_registers(op: SassOp) -> int:
    shape = next((word.split("x") for word in op.words if word.startswith("64x")), ["64", "256"])
    columns = int(shape[1])
    return columns // 4 if op.words[1:2] == ("F16",) else columns // 2


def _arithmetic_registers(op: SassOp) -> int:
    first = op.words[0] if op.words else ""
    if op.root in _DOUBLE or op.root in _PACKED or op.root == "LEPC":
        return 2
    if op.root in ("CS2R", "CS2UR"):
        return 1 if first == "32" else 2
    if op.root in ("I2F", "F2F"):
        return 2 if first == "F64" else 1
    if op.root == "F2I":
        return 2 if first.endswith("64") else 1
    if op.root in ("SYNCS", "USYNCS"):
        return 2
    if op.root in ("LDC", "LDCU", "ULDC"):
        return max(1, access_bytes_of_words(op) // 4)
    return 2 if _WHOLE_VALUE.intersection(op.words) else 1


def access_bytes_of_words(op: SassOp) -> int:
    return next((_BYTES[word] for word in op.words if word in _BYTES), 4)


def source_registers(op: SassOp, position: int) -> int:
    """Consecutive registers that source operand `position` spans; predicates, addresses and words are not counted."""
    if op.part in (Part.STORE, Part.ATOMIC, Part.REDUCTION, Part.ASYNC_STORE, Part.ASYNC_REDUCE):
        if op.row.space in ("texture", "surface"):
            return 1
        return matrix_registers(op) if op.root == "STSM" else _vector_registers(op)
    if op.part is Part.TMEM_STORE:
        return tmem_registers(op)
    if op.part is Part.BARRIER_INIT:
        return 2
    if op.part is Part.WGMMA_MMA:
        return 4 if position == 0 else 1  # A in registers; the accumulator is read as it is written
    if op.root.endswith("MMA"):
        return _fragment_registers(op, position)
    if op.root in _DOUBLE or op.root in _PACKED or op.root == "DSETP":
        return 2
    if op.has("WIDE"):
        return 2 if position == 2 else 1
    return 2 if op.has("64") and op.part is Part.PLAIN else 1


def _fragment_registers(op: SassOp, position: int) -> int:
    """Fragments of the warp-wide matrix instructions: A, B, C of 16x8xK; a lower bound where the shape is smaller."""
    if position == 0:
        return 4 if op.words and op.words[0] in ("16816", "16832", "16864", "168128", "168256") else 2
    if position == 1:
        return 2 if op.words and op.words[0] in ("16816", "16832", "16864", "168128", "168256") else 1
    return result_registers(op) if position == 2 else 1


# Special registers by their PTX names.
SPECIAL_REGISTERS = {
    "SR_TID.X": "tid.x",
    "SR_TID.Y": "tid.y",
    "SR_TID.Z": "tid.z",
    "SR_CTAID.X": "ctaid.x",
    "SR_CTAID.Y": "ctaid.y",
    "SR_CTAID.Z": "ctaid.z",
    "SR_LANEID": "laneid",
    "SR_CgaCtaId": "cluster_ctarank",
    "SR_EQMASK": "lanemask_eq",
    "SR_LTMASK": "lanemask_lt",
    "SR_LEMASK": "lanemask_le",
    "SR_GTMASK": "lanemask_gt",
    "SR_GEMASK": "lanemask_ge",
    "SR_VIRTID": "warpid",
    "SR_VIRTUALSMID": "smid",
}

# Words of constant bank 0 that hold launch facts: (first architecture, last architecture) -> offset -> PTX name.
_LAUNCH_WORDS = {
    (90, 99): {
        0x0: "ntid.x",
        0x4: "ntid.y",
        0x8: "ntid.z",
        0xC: "nctaid.x",
        0x10: "nctaid.y",
        0x14: "nctaid.z",
        0x144: "cluster_nctaid.x",
        0x148: "cluster_nctaid.y",
        0x14C: "cluster_nctaid.z",
        0x188: "cluster_nctarank",
        0x15C: "nclusterid.x",
        0x160: "nclusterid.y",
        0x164: "nclusterid.z",
    },
    (100, 121): {
        0x360: "ntid.x",
        0x364: "ntid.y",
        0x368: "ntid.z",
        0x370: "nctaid.x",
        0x374: "nctaid.y",
        0x378: "nctaid.z",
    },
}

# From sm_100 on these stand at an offset that depends on SR_CgaSize: c[0x0][R0+0x2a0].
INDEXED_LAUNCH_WORDS = {
    0x2A0: "cluster_nctaid.x",
    0x2A4: "cluster_nctaid.y",
    0x2A8: "cluster_nctaid.z",
    0x2C0: "nclusterid.x",
    0x2C4: "nclusterid.y",
    0x2C8: "nclusterid.z",
    0x2CC: "cluster_nctarank",
}


def launch_word(arch: int, offset: int) -> str | None:
    """PTX name of a word of c[0x0] on architecture number `arch`, or None."""
    for (first, last), words in _LAUNCH_WORDS.items():
        if first <= arch <= last:
            return words.get(offset)
    return None


def writes_flags(op: SassOp) -> tuple[str, ...]:
    """Predicate registers that an instruction with a mask of predicates may write."""
    if op.row.results is not Results.FLAGS:
        return ()
    return tuple(f"UP{n}" for n in range(7)) if op.root == "UR2UP" else tuple(f"P{n}" for n in range(7))


def bundle_registers(op: SassOp, place: int) -> int:
    """Consecutive uniform registers that bracketed operand `place` of a bulk copy stands for.

    Tensor loads: shared address, barrier, coordinates; tensor stores: shared address, coordinates; bulk copies to
    shared memory: shared address, barrier. Global addresses and tensor maps are 64-bit.
    """
    rank = next((int(word[0]) for word in op.words if word in ("1D", "2D", "3D", "4D", "5D")), 0)
    if op.root in ("UTMALDG", "UTMAPF"):
        return 2 + rank if place == 0 else 2
    if op.root in ("UTMASTG", "UTMAREDG"):
        return 1 + rank if place == 0 else 2
    if op.root in ("UBLKCP", "UBLKRED"):
        return 2 if place == 0 or op.words[:2] == ("S", "G") else 1
    return 2 if op.root in ("UTMACCTL", "UBLKPF") else 1
