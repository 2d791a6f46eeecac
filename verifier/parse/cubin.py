"""What a cubin says beside its code: kernels, their resources and launch attributes, the assembler, the PTX inside.

The layout of `.nv.info` was read off cubins of ptxas 12.9 and 13.5.37 beside `cuobjdump -elf` and `nvdisasm`: records
of (format byte, attribute byte, value), where format 1 has no value, 2 one byte, 3 two bytes, 4 a length and a payload.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from verifier.errors import InputError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

Dim3 = tuple[int, int, int]

_HELP = "give a whole file that ptxas wrote; fat binaries and host programs are taken apart first"
_EM_CUDA = 190
_HEADER = 64
_NO_BITS = "SHT_NOBITS"
_PTX_SECTION = ".nv_debug_ptx_txt"
_SYMBOL = struct.Struct("<IBB10xQ")
_FUNCTION = 2
_STO_CUDA_ENTRY = 0x10
_ABI = 8
_EF_CUDA_ACCELERATORS = 0x800  # as nvdisasm names it in `.headerflags`
_COMPAT_ACCELERATED = 0x09  # .nv.compat attribute: 1 for a target like sm_100a

_TABLE_BANKS = (2,)  # where ptxas puts the targets of a switch
_SIZED = 4  # format of a record with a length
_PARAM_CBANK = 0x0A
_MAX_THREADS = 0x05
_REQNTID = 0x10
_FRAME_SIZE = 0x11
_KPARAM_INFO = 0x17
_EXIT_OFFSETS = 0x1C
_REGCOUNT = 0x2F
_NUM_MBARRIERS = 0x38
_MBARRIER_OFFSETS = 0x39
_CTA_PER_CLUSTER = 0x3D
_NUM_BARRIERS = 0x4C

# EIATTR_MBARRIER_INSTR_OFFSETS, low byte of the fourth field; names by cuobjdump 13.5.
_BARRIER_KINDS = {
    0x0: "init",
    0x1: "arrive",
    0x2: "arrive_nocomplete",
    0x3: "arrive_drop",
    0x4: "arrive_drop_nocomplete",
    0x5: "test_wait",
    0x6: "test_wait_parity",
    0x7: "inval",
    0x8: "cp_async_arrive",
    0x9: "try_wait",
    0xA: "try_wait_parity",
}


class BarrierSite(msgspec.Struct, frozen=True, gc=False):
    """One mbarrier instruction that ptxas declares. The list is incomplete: it lacks arrive.expect_tx."""

    offset: int
    kind: str


class ParamSlot(msgspec.Struct, frozen=True, gc=False):
    """A kernel parameter: `offset` in bytes within constant bank 0, parameters' base included."""

    ordinal: int
    offset: int
    size: int


class KernelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel entry. Sizes are in bytes; `shared` is the static part (with the
    1024 bytes that the system keeps for itself), `frame` the stack of the entry itself."""

    name: str
    registers: int | None = None
    shared: int = 0
    frame: int = 0
    barriers: int = 0
    mbarriers: int = 0
    block: Dim3 | None = None
    max_block: Dim3 | None = None
    cluster: Dim3 | None = None
    params: tuple[ParamSlot, ...] = ()
    barrier_sites: tuple[BarrierSite, ...] = ()
    exits: tuple[int, ...] = ()
    code_size: int = 0
    constants: dict[int, tuple[int, ...]] = {}  # bank -> its 32-bit words, for the banks that hold tables of the code


class CubinInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One cubin. `assembler` is like "ptxas 13.5.37", "" when the file does not say; `ptx` is what -lineinfo keeps."""

    arch: str
    assembler: str
    options: str
    kernels: tuple[KernelInfo, ...]
    ptx: str | None = None


class _Section(msgspec.Struct, frozen=True, gc=False):
    size: int
    data: bytes


_Sections = dict[str, _Section]


class _Symbol(msgspec.Struct, frozen=True, gc=False):
    name: str
    kind: int
    other: int
    size: int


def read_cubin(data: bytes, name: str) -> CubinInfo:
    """Read a cubin. `name` is what messages call it. InputError when the bytes are not a whole cubin."""
    elf = _open(data, name)
    try:
        return _read(elf)
    except Exception as error:  # a damaged file makes pyelftools and struct fail in many ways
        raise InputError(f"a damaged cubin: {_reason(error)}", where=name, do=_HELP) from error


def _open(data: bytes, name: str) -> ELFFile:
    from elftools.elf.elffile import ELFFile  # costs 40 ms, only needed when there is a cubin

    if data[:4] != b"\x7fELF":
        raise InputError("not a cubin: it does not begin as an ELF file", where=name, do=_HELP)
    if len(data) < _HEADER or _end_of_tables(data) > len(data):
        raise InputError("truncated: its tables lie beyond its end", where=name, do=_HELP)
    try:
        elf = ELFFile(io.BytesIO(data))
        machine = elf["e_machine"]
        ends = [s["sh_offset"] + s["sh_size"] for s in elf.iter_sections() if s["sh_type"] != _NO_BITS]
    except Exception as error:
        raise InputError(f"a damaged ELF file: {_reason(error)}", where=name, do=_HELP) from error
    if machine not in ("EM_CUDA", _EM_CUDA):
        raise InputError(f"an ELF file, but not for CUDA ({machine})", where=name, do=_HELP)
    if not ends or max(ends) > len(data):
        raise InputError("truncated: a section ends beyond the file", where=name, do=_HELP)
    return elf


def _end_of_tables(data: bytes) -> int:
    """Where the tables of program headers and of sections, which may close the file, end."""
    programs, sections, program_size, program_count, size, count = struct.unpack_from("<QQ6xHHHH", data, 0x20)
    return max(int(programs) + int(program_size) * int(program_count), int(sections) + int(size) * int(count))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read(elf: ELFFile) -> CubinInfo:
    sections = {
        s.name: _Section(s["sh_size"], b"" if s["sh_type"] == _NO_BITS else s.data()) for s in elf.iter_sections()
    }
    tool, version, options = _assembler(sections)
    symbols = _symbols(sections)
    totals = _per_symbol(_data(sections, ".nv.info"), [symbol.name for symbol in symbols])
    kernels = tuple(
        _kernel(symbol.name, symbol.size, sections, totals.get(symbol.name, {}))
        for symbol in symbols
        if symbol.kind == _FUNCTION and symbol.other & _STO_CUDA_ENTRY
    )
    return CubinInfo(
        arch=_arch(elf, options, _data(sections, ".nv.compat")),
        assembler=f"{tool} {version}".strip(),
        options=options,
        kernels=kernels,
        ptx=_ptx(sections),
    )


def _symbols(sections: _Sections) -> list[_Symbol]:
    """The symbol table, read here because pyelftools drops the bit of st_other that marks an entry."""
    names = _data(sections, ".strtab")
    return [
        _Symbol(_text(names, name), info & 0xF, other, size)
        for name, info, other, size in _SYMBOL.iter_unpack(_data(sections, ".symtab"))
    ]


def _data(sections: _Sections, name: str) -> bytes:
    section = sections.get(name)
    return section.data if section is not None else b""


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of an attribute section."""
    at = 0
    while at + 4 <= len(data):
        size = struct.unpack_from("<H", data, at + 2)[0] if data[at] == _SIZED else 0
        start = at + 4 if data[at] == _SIZED else at + 2
        end = at + 4 + size
        yield data[at + 1], data[start:end]
        at = end


def _words(value: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])


def _per_symbol(data: bytes, names: list[str]) -> dict[str, dict[int, int]]:
    """Attributes that name a function by its symbol index and give it one number."""
    result: dict[str, dict[int, int]] = {}
    for attribute, value in _records(data):
        words = _words(value)
        if len(words) == 2 and words[0] < len(names):
            result.setdefault(names[words[0]], {})[attribute] = words[1]
    return result


def _kernel(name: str, code_size: int, sections: _Sections, totals: dict[int, int]) -> KernelInfo:
    records = list(_records(_data(sections, f".nv.info.{name}")))
    attributes = dict(records)
    shared = sections.get(f".nv.shared.{name}")
    base = _words(attributes.get(_PARAM_CBANK, b""))
    return KernelInfo(
        name=name,
        registers=totals.get(_REGCOUNT),
        shared=shared.size if shared is not None else 0,
        frame=totals.get(_FRAME_SIZE, 0),
        barriers=int.from_bytes(attributes.get(_NUM_BARRIERS, b""), "little"),
        mbarriers=int.from_bytes(attributes.get(_NUM_MBARRIERS, b""), "little"),
        block=_dim3(attributes.get(_REQNTID)),
        max_block=_dim3(attributes.get(_MAX_THREADS)),
        cluster=_dim3(attributes.get(_CTA_PER_CLUSTER)),
        params=_params(records, base[1] & 0xFFFF if len(base) == 2 else 0),
        barrier_sites=tuple(_barrier_sites(attributes.get(_MBARRIER_OFFSETS, b""))),
        exits=_words(attributes.get(_EXIT_OFFSETS, b"")),
        code_size=code_size,
        constants={
            bank: _words(_data(sections, f".nv.constant{bank}.{name}"))
            for bank in _TABLE_BANKS
            if f".nv.constant{bank}.{name}" in sections
        },
    )


def _dim3(value: bytes | None) -> Dim3 | None:
    words = _words(value) if value else ()
    return (words[0], words[1], words[2]) if len(words) == 3 else None


def _params(records: list[tuple[int, bytes]], base: int) -> tuple[ParamSlot, ...]:
    slots = []
    for attribute, value in records:
        if attribute == _KPARAM_INFO and len(value) >= 12:
            ordinal, offset, bits = struct.unpack_from("<4xHHI", value)
            slots.append(ParamSlot(ordinal, base + offset, bits >> 18))
    return tuple(sorted(slots, key=lambda slot: slot.ordinal))


def _barrier_sites(value: bytes) -> Iterator[BarrierSite]:
    for at in range(0, len(value) - 15, 16):
        offset, kind = struct.unpack_from("<I8xB", value, at)
        yield BarrierSite(offset, _BARRIER_KINDS.get(kind, "other"))


def _assembler(sections: _Sections) -> tuple[str, str, str]:
    """(tool, version, options) of ptxas by its note in `.note.nv.tkinfo`, of another tool when ptxas left none.

    A note holds a version, five offsets and NUL-terminated strings: object, tool, tool version, branch, options.
    """
    result = ("", "", "")
    for description in _notes(_data(sections, ".note.nv.tkinfo")):
        offsets = struct.unpack_from("<6I", description)[1:]
        _, tool, version, _, options = (_text(description[24:], offset) for offset in offsets)
        if result[0] != "ptxas":
            result = (tool, version.rpartition("V")[2], " ".join(options.split()))
    return result


def _notes(data: bytes) -> Iterator[bytes]:
    """Descriptions of the notes of a section: sizes of owner and description, a type, owner, description, 4-aligned."""
    at = 0
    while at + 12 <= len(data):
        owner, size = struct.unpack_from("<II", data, at)
        start = at + 12 + (owner + 3 & ~3)
        yield data[start : start + size]
        at = start + (size + 3 & ~3)


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode("utf-8", "replace")


def _arch(elf: ELFFile, options: str, compat: bytes) -> str:
    """The number is in the header flags, the letter in the assembler's options or, without them, in `.nv.compat`.

    Before ABI version 8 (ptxas 12.9 still writes 7 for sm_90a) number and letter are other bits of the flags.
    """
    flags = elf["e_flags"]
    if elf["e_ident"]["EI_ABIVERSION"] < _ABI:
        return f"sm_{flags & 0xFF}{'a' if flags & _EF_CUDA_ACCELERATORS else ''}"
    number = flags >> 8 & 0xFF
    words = options.split()
    for option, value in itertools.pairwise(words):
        if option in ("-arch", "--gpu-name") and value.startswith(f"sm_{number}"):
            return value
    return f"sm_{number}a" if (_COMPAT_ACCELERATED, 1) in {(a, v[0]) for a, v in _records(compat)} else f"sm_{number}"


def _ptx(sections: _Sections) -> str | None:
    """Lines of the PTX, kept by -lineinfo as NUL-terminated strings."""
    texts = [_data(sections, name) for name in sections if name.startswith(_PTX_SECTION)]
    if not texts:
        return None
    return "\n".join(text.rstrip(b"\0").replace(b"\0", b"\n").decode("utf-8", "replace") for text in texts) + "\n"
