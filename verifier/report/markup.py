"""Text that comes from kernels, made safe for Markdown: nothing in it is markup, HTML or a mention."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&@:-])")


def words(text: str) -> str:
    """Running text on one line: every character that Markdown or GitHub gives a meaning is escaped."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", " ".join(text.split()))


def code(text: str) -> str:
    """Text in a code span, which holds back quotes and bars, too."""
    flat = " ".join(text.split()).replace("|", "\\|")
    if not flat:
        return ""
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"
