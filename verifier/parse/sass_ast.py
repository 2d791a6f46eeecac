"""What an nvdisasm listing says: statements and operands, each statement with its span. No meaning is attached yet.

Prefixes are kept as written, outermost first: `-`, `!`, `~`, `+`, and `|` for the bars of an absolute value.
Suffixes are the dotted words behind an operand, without their dots: `R38.reuse.F32` has ("reuse", "F32").
"""

from __future__ import annotations

import msgspec

from verifier.parse.source import Source, Span


class Register(msgspec.Struct, frozen=True, gc=False, tag="reg", omit_defaults=True):
    """`R12`, `UR4`, `P0`, `UP3`, `B0`, and the constants `RZ`, `URZ`, `PT`, `UPT`."""

    name: str
    prefix: str = ""
    suffixes: tuple[str, ...] = ()


class Immediate(msgspec.Struct, frozen=True, gc=False, tag="imm", omit_defaults=True):
    """A number with its sign applied. nvdisasm prints integers in hexadecimal and floats in decimal."""

    value: int | float
    prefix: str = ""
    suffixes: tuple[str, ...] = ()


class Word(msgspec.Struct, frozen=True, gc=False, tag="word", omit_defaults=True):
    """Any other word: special registers (`SR_TID.X`), `SB0`, `gsb0`, `PR`, `INF`, `2D`."""

    text: str
    prefix: str = ""
    suffixes: tuple[str, ...] = ()


class Symbol(msgspec.Struct, frozen=True, gc=False, tag="sym", omit_defaults=True):
    """A label or a relocation: `` `(.L_x_0) `` is (".L_x_0", ""), `32@lo(table)` is ("table", "32@lo")."""

    text: str
    relocation: str = ""


class Indices(msgspec.Struct, frozen=True, gc=False, tag="set"):
    """`{5,4,3,2,1,0}`."""

    items: tuple[int, ...]


class Address(msgspec.Struct, frozen=True, tag="mem", omit_defaults=True):
    """A bracketed operand: `kind[head][terms+offset].suffixes`.

    `kind` is "", "c", "cx", "desc", "gdesc", "idesc", "tmem". `head` is what the first of two brackets holds: the
    constant bank, or the descriptor register.
    """

    kind: str
    terms: tuple[Register | Symbol, ...]
    offset: int = 0
    head: Register | Immediate | None = None
    prefix: str = ""
    suffixes: tuple[str, ...] = ()


Operand = Register | Immediate | Word | Symbol | Indices | Address


class Guard(msgspec.Struct, frozen=True, gc=False):
    """`@P0`, `@!UP1`, `@!PT`."""

    name: str
    negated: bool


class SassInstruction(msgspec.Struct, frozen=True):
    """`offset` in bytes from the start of its section. `words` are the two 64-bit words of the encoding, present
    when the listing was made with -hex. `note` is the text of a `(*"..."*)` comment."""

    span: Span
    offset: int
    guard: Guard | None
    opcode: str  # with all modifiers, as written: "SYNCS.ARRIVE.TRANS64.A1T0"
    operands: tuple[Operand, ...]
    note: str | None = None
    words: tuple[int, int] | None = None


class SassLabel(msgspec.Struct, frozen=True, gc=False):
    """`.L_x_12:`, `kernel:`, `.text.kernel:`."""

    span: Span
    name: str


class LineInfo(msgspec.Struct, frozen=True):
    """`//## File "a.py", line 12 inlined at "b.py", line 30`: holds for the instructions up to the next one.

    `file` starts with `.nv_debug_ptx_txt` when `line` is a line of the PTX.
    """

    span: Span
    file: str
    line: int
    inlined_at: tuple[str, int] | None = None


class SassDirective(msgspec.Struct, frozen=True):
    """`.section .text.k,"ax",@progbits`. Arguments as written, split at the commas outside quotes."""

    span: Span
    name: str  # with its dot
    args: tuple[str, ...]


class SassData(msgspec.Struct, frozen=True):
    """`/*0040*/ .byte 0x01, 0x02` in a section that holds no code."""

    span: Span
    offset: int
    name: str
    args: tuple[str, ...]


class Banner(msgspec.Struct, frozen=True, gc=False):
    """`//--------------------- .text.k ----` and the other comment lines."""

    span: Span
    text: str


SassStatement = SassInstruction | SassLabel | LineInfo | SassDirective | SassData | Banner


class SassFile(msgspec.Struct, frozen=True):
    """All statements of one listing, in order."""

    source: Source
    statements: tuple[SassStatement, ...]
