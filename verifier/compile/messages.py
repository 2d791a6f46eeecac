"""What an assembler prints, as values: its messages and what each entry function takes.

The lines, as ptxas 12.9 to 13.5 and nvJitLink 13.5 print them:

    ptxas info    : (C7510) Potential Performance Loss: ...
    ptxas kernel.ptx, line 4; error   : Unknown modifier '.bar'
    ptxas info    : Compiling entry function 'f' for 'sm_100a'
        0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem
"""

from __future__ import annotations

import re

import msgspec

from verifier.compile.artifacts import ToolMessage, Usage

_LINE = re.compile(
    r"^ptxas\s+(?:.*?,\s+line\s+(?P<line>\d+);\s+)?(?P<severity>info|warning|error|fatal)\s*:\s*"
    r"(?:\((?P<code>[A-Z]+\d+)\)\s*)?(?P<text>.*)$"
)
_ENTRY = re.compile(r"^Compiling entry function '(?P<entry>[^']+)'")
_PROPERTIES = re.compile(r"^Function properties for '?(?P<entry>[^']+?)'?$")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = {
    "registers": re.compile(r"\bUsed (\d+) registers"),
    "barriers": re.compile(r"\bused (\d+) barriers"),
    "shared": re.compile(r"\b(\d+) bytes smem"),
}


def parse_log(log: str) -> tuple[tuple[ToolMessage, ...], tuple[Usage, ...]]:
    """Messages worth showing (everything but uncoded infos, each once) and the usage of each entry function."""
    messages: dict[ToolMessage, None] = {}
    usage = _UsageReader()
    for line in log.splitlines():
        match = _LINE.match(line.strip())
        usage.take(match.group("text") if match else line)
        if match and (match.group("severity") != "info" or match.group("code")):
            messages[_message(match)] = None
    return tuple(messages), usage.entries()


def _message(match: re.Match[str]) -> ToolMessage:
    line = match.group("line")
    return ToolMessage(
        severity=match.group("severity"),
        text=match.group("text").strip(),
        code=match.group("code") or "",
        line=int(line) if line else None,
    )


class _UsageReader:
    """Assigns stack and register lines to the entry function that was announced last."""

    def __init__(self) -> None:
        self._entries: dict[str, Usage] = {}
        self._compiled = ""
        self._described = ""

    def take(self, text: str) -> None:
        if match := _ENTRY.match(text):
            self._compiled = self._described = match.group("entry")
            self._entries.setdefault(self._compiled, Usage(entry=self._compiled))
        elif match := _PROPERTIES.match(text):
            self._described = match.group("entry")
        elif match := _STACK.search(text):
            # Device functions are described between an entry and its registers: only the entry's own frame counts.
            if self._described == self._compiled:
                stack, stores, loads = map(int, match.groups())
                self._update(stack=stack, spill_stores=stores, spill_loads=loads)
        elif text.startswith("Used "):
            found = {field: pattern.search(text) for field, pattern in _USED.items()}
            self._update(**{field: int(hit.group(1)) for field, hit in found.items() if hit})

    def _update(self, **fields: int) -> None:
        if known := self._entries.get(self._compiled):
            self._entries[self._compiled] = msgspec.structs.replace(known, **fields)

    def entries(self) -> tuple[Usage, ...]:
        return tuple(self._entries.values())
