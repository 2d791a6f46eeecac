"""What the toolchain needs to know of a cubin before it uses it: is it whole, and who assembled it."""

from __future__ import annotations

import io
import re
import struct
from typing import TYPE_CHECKING

import msgspec

from verifier.errors import InputError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_HELP = "give a file that ptxas wrote, all of it; fat binaries are taken apart first"
_HEADER_BYTES = 64
_EM_CUDA = ("EM_CUDA", 190)

# `.note.nv.tkinfo`, read off cubins of ptxas 12.9, 13.4, 13.5 and of nvJitLink 13.5: note type 2000, owner
# "NVIDIA Corp", description = u32 version (2), then five u32 offsets into the NUL-terminated strings that follow at
# byte 24: object name, tool name, tool version, tool branch, options. A linked cubin has one note for each tool.
_TKINFO_SECTION = ".note.nv.tkinfo"
_TKINFO_TYPE = "2000"
_TKINFO_HEADER = struct.Struct("<6I")
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)\b")


class Assembler(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that wrote its note into a cubin: its name, its version (like 13.4.59) and its options."""

    tool: str
    version: str
    options: str = ""


def check_cubin(cubin: bytes, *, name: str = "cubin") -> None:
    """Raise InputError unless the bytes are a whole ELF file for the CUDA machine, every section inside the file."""
    elf = _open(cubin, name)
    try:
        machine = elf["e_machine"]
        sections = [(s.name, s["sh_type"], s["sh_offset"] + s["sh_size"]) for s in elf.iter_sections()]
    except Exception as error:  # pyelftools raises anything from IndexError to MemoryError on bad bytes
        raise InputError(f"a damaged ELF file: {_reason(error)}", where=name, do=_HELP) from error
    if machine not in _EM_CUDA:
        raise InputError(f"an ELF file, but not for CUDA ({machine})", where=name, do=_HELP)
    if not sections:
        raise InputError("truncated: it has no sections", where=name, do=_HELP)
    for section, kind, end in sections:
        if kind != "SHT_NOBITS" and end > len(cubin):
            raise InputError(f"truncated: section {section} ends beyond the file", where=name, do=_HELP)


def assemblers_of(cubin: bytes, *, name: str = "cubin") -> tuple[Assembler, ...]:
    """The tools that made a cubin, in the order of its notes; empty where it has none (CUDA 11 and before).

    Raises InputError when the bytes are no readable ELF file.
    """
    from elftools.elf.sections import NoteSection

    elf = _open(cubin, name)
    try:
        section = elf.get_section_by_name(_TKINFO_SECTION)
        notes = list(section.iter_notes()) if isinstance(section, NoteSection) else []
        return tuple(_assembler_from(note["n_descdata"]) for note in notes if str(note["n_type"]) == _TKINFO_TYPE)
    except Exception as error:
        raise InputError(f"its note about the assembler is damaged: {_reason(error)}", where=name, do=_HELP) from error


def describe_assemblers(assemblers: tuple[Assembler, ...]) -> str | None:
    """One line for reports: "ptxas 13.4.59", or "ptxas 13.5.37 + nvJIT API 13.5.37" for a linked cubin."""
    return " + ".join(f"{a.tool} {a.version}" for a in sorted(assemblers, key=lambda a: a.tool != "ptxas")) or None


def _open(cubin: bytes, name: str) -> ELFFile:
    from elftools.elf.elffile import ELFFile

    if cubin[:4] != b"\x7fELF":
        raise InputError("not a cubin: it does not begin as an ELF file", where=name, do=_HELP)
    if len(cubin) < _HEADER_BYTES or _tables_end(cubin) > len(cubin):
        raise InputError(f"truncated: its tables are not within its {len(cubin)} bytes", where=name, do=_HELP)
    try:
        return ELFFile(io.BytesIO(cubin))
    except Exception as error:
        raise InputError(f"not a cubin: {_reason(error)}", where=name, do=_HELP) from error


def _tables_end(cubin: bytes) -> int:
    """Where the later of section table and segment table ends by the ELF header; ptxas puts them at the end."""
    segments, sections = struct.unpack_from("<QQ", cubin, 0x20)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<4H", cubin, 0x36)
    return max(int(segments + segment_size * segment_count), int(sections + section_size * section_count))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _assembler_from(description: bytes) -> Assembler:
    header = _TKINFO_HEADER.unpack_from(description)
    texts = description[_TKINFO_HEADER.size :]
    _, tool, version, _, options = (texts[start : texts.index(b"\0", start)].decode() for start in header[1:])
    match = _VERSION.search(version)
    return Assembler(tool=tool, version=match.group(1) if match else version, options=" ".join(options.split()))
