"""The docstring of a rule, taken apart: it is the only documentation a rule has.

The first line says in one sentence what is wrong. Then come six sections, in this order; a heading is one of the
words of `SECTIONS` alone on an unindented line, its text is indented by four blanks.
"""

from __future__ import annotations

import inspect

import msgspec

SECTIONS = ("What", "Why", "ISA", "Bad", "Good", "Limits")


class RuleDoc(msgspec.Struct, frozen=True):
    """`summary` is the first line; `sections` has the text of each of `SECTIONS`, dedented."""

    summary: str
    sections: dict[str, str]


def parse_doc(docstring: str | None) -> RuleDoc:
    """Take a rule's docstring apart. Raises `ValueError` when a section is missing, empty or out of order."""
    if not docstring:
        raise ValueError("a rule needs a docstring")
    summary, _, rest = inspect.cleandoc(docstring).partition("\n")
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in rest.splitlines():
        if line in SECTIONS:
            if line in found:
                raise ValueError(f"section {line!r} stands twice")
            lines = found[line] = []
        elif lines is not None:
            lines.append(line)
        elif line.strip():
            raise ValueError(f"text before the first section: {line.strip()!r}")
    sections = {name: inspect.cleandoc("\n" + "\n".join(text)) for name, text in found.items()}
    if tuple(sections) != SECTIONS or not all(sections.values()):
        raise ValueError(f"sections must be {', '.join(SECTIONS)}, none empty; found: {', '.join(sections) or 'none'}")
    return RuleDoc(summary=summary, sections=sections)


def code_blocks(text: str) -> list[str]:
    """The fenced code blocks of a section, without the fences."""
    blocks: list[str] = []
    inside: list[str] | None = None
    for line in text.splitlines():
        if line.startswith("```"):
            if inside is not None:
                blocks.append("\n".join(inside))
            inside = [] if inside is None else None
        elif inside is not None:
            inside.append(line)
    return blocks
