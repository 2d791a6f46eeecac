"""Waivers in the source of a kernel: `# verifier: ignore[TCG102, PRF] reason`, in CUDA C++ after `//`.

A waiver covers the statement that it stands in or, alone on a line, the statement below it. Only the line map leads
from PTX to a Python line, so a waiver belongs on the line that the finding names.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping

import msgspec

_WAIVER = re.compile(r"verifier:\s*ignore\[([^\]]*)\]\s*(.*)")
_MENTION = re.compile(r"verifier:\s*ignore")
_CODE = re.compile(r"[A-Za-z]{3}\d{0,3}|[a-z0-9]+(-[a-z0-9]+)+")


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """One waiver. `first` and `last` are the lines that it covers; `problem` says why it covers nothing, if so."""

    line: int
    first: int
    last: int
    codes: tuple[str, ...] = ()
    reason: str = ""
    problem: str = ""

    def covers(self, line: int) -> bool:
        return not self.problem and self.first <= line <= self.last


def find_comments(text: str, file: str) -> tuple[Comment, ...]:
    """All waivers of a source file, also those that are malformed."""
    if "verifier:" not in text:
        return ()
    if not file.endswith(".py"):
        return tuple(_waiver(body, line, line, line) for line, body in _slashed(text) if _MENTION.search(body))
    lines = text.splitlines()
    spans = _statements(text, lines)
    return tuple(_placed(body, line, lines, spans) for line, body in _hashed(text) if _MENTION.search(body))


def _hashed(text: str) -> Iterator[tuple[int, str]]:
    """Comments of a Python file; what cannot be tokenized ends the search."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _slashed(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, body = line.partition("//")
        if mark:
            yield number, body


def _statements(text: str, lines: list[str]) -> dict[int, tuple[int, int]]:
    """Line -> lines of the innermost statement there; of a compound statement only its head."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    spans: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # outer statements come first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            while last > node.lineno and not _has_code(lines[last - 1]):
                last -= 1
            last = max(last, node.lineno)
            spans.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return spans


def _has_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _placed(body: str, line: int, lines: list[str], spans: Mapping[int, tuple[int, int]]) -> Comment:
    first, last = spans.get(line, (line, line))
    if not _has_code(lines[line - 1]) and line not in spans:
        below = line
        while below < len(lines) and not _has_code(lines[below - 1]):
            below += 1
        first, last = spans.get(below, (below, below))
    return _waiver(body, line, first, last)


def _waiver(body: str, line: int, first: int, last: int) -> Comment:
    match = _WAIVER.search(body)
    if match is None:
        return Comment(line=line, first=first, last=last, problem="names no rule: write ignore[CODE] and a reason")
    codes = tuple(code.strip() for code in match[1].split(",") if code.strip())
    reason = match[2].strip()
    bad = [code for code in codes if not _CODE.fullmatch(code)]
    problem = ""
    if bad or not codes:
        problem = f"{', '.join(bad) or 'nothing'} is no rule: write ignore[CODE] and a reason"
    elif not reason:
        problem = "gives no reason: write one after the bracket"
    return Comment(line=line, first=first, last=last, codes=codes, reason=reason, problem=problem)
