"""The text of MLIR as lines of tokens, with names resolved by region and locations taken off.

The compiler prints one operation a line. Names of values are numbered anew in each region, so a name is resolved to
the definition that is visible where it stands. Only what a comparison needs is read: no dialect is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from verifier.findings import Location
from verifier.parse.source import Source

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"'  # string
    r"|%[\w$.-]+(?:#\d+|:\d+)?"  # value; `:2` where several results are defined, `#1` where one of them is used
    r"|\^[\w$.-]+"  # block
    r'|@(?:"(?:\\.|[^"\\])*"|[\w$.-]+)'  # symbol
    r"|[#!][\w$.-]+"  # attribute or type, aliases among them
    r"|-?\d+(?:\.\d+(?:[eE][+-]?\d+)?)?|0x[0-9a-fA-F]+"
    r"|[A-Za-z_][\w$.]*"
    r"|->|::|[^\s]"
)


class MlirLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line. In `tokens` a resolved name is "%", or "%#1" for one of several results; `names` are the definitions
    they mean, in order, of which the first `defines` are made here. `text` is the line without its location."""

    tokens: tuple[str, ...]
    names: tuple[str, ...]
    defines: int
    text: str
    location: Location


def parse_mlir(source: Source) -> tuple[MlirLine, ...]:
    """All lines of a module but the definitions of locations."""
    lines = [(text, tuple(_TOKEN.findall(text))) for text in source.text.split("\n")]
    aliases = {tokens[0]: tokens[2:] for _, tokens in lines if _is_location(tokens)}
    defined = frozenset(tokens[0] for _, tokens in lines if tokens[1:2] == ("=",) and tokens[0][0] in "!#")
    reader = _Reader(aliases, defined)
    return tuple(reader.line(text, tokens) for text, tokens in lines if tokens and not _is_location(tokens))


def _is_location(tokens: tuple[str, ...]) -> bool:
    return len(tokens) > 2 and tokens[0].startswith("#loc") and tokens[1:3] == ("=", "loc")


class _Reader:
    """Resolves names line by line. `aliases` are locations by name, `defined` the aliases of types and attributes."""

    def __init__(self, aliases: Mapping[str, tuple[str, ...]], defined: frozenset[str]) -> None:
        self._aliases = aliases
        self._defined = defined
        self._scopes: list[dict[str, str]] = [{}]
        self._count = 0
        self._fresh: list[str] = []

    def line(self, text: str, tokens: tuple[str, ...]) -> MlirLine:
        kept, location = self._without_location(tokens)
        results = _results(kept)
        uses = [self._token(token) for token in kept[results:]]
        made = [self._define(self._scopes[-1], token) for token in kept[:results] if token.startswith("%")]
        self._bind(self._scopes[-1])
        head = ["%" if token.startswith("%") else token for token in kept[:results]]
        return MlirLine(
            tokens=(*head, *(token for token, _ in uses)),
            names=(*made, *(name for _, name in uses if name)),
            defines=len(made),
            text=text.partition(" loc(")[0].strip(),
            location=location,
        )

    def _without_location(self, tokens: tuple[str, ...]) -> tuple[list[str], Location]:
        kept: list[str] = []
        location = Location()
        position = 0
        while position < len(tokens):
            if tokens[position] == "loc" and tokens[position + 1 : position + 2] == ("(",):
                end = _closing(tokens, position + 1)
                location = self._locate(tokens[position + 2 : end])
                position = end + 1
            else:
                kept.append(tokens[position])
                position += 1
        return kept, location

    def _locate(self, tokens: tuple[str, ...], depth: int = 0) -> Location:
        """The first place in a file that a location leads to."""
        for position, token in enumerate(tokens):
            if token.startswith('"') and tokens[position + 1 : position + 2] == (":",):
                return Location(file=token.strip('"'), line=int(tokens[position + 2]))
            if token in self._aliases and depth < 20:
                return self._locate(self._aliases[token], depth + 1)
        return Location()

    def _token(self, token: str) -> tuple[str, str]:
        """(token without its name, the definition that it names or "")."""
        if token == "{":
            self._scopes.append({})
            self._bind(self._scopes[-1])
        elif token == "}" and len(self._scopes) > 1:
            self._scopes.pop()
        if token[0] in "%^":
            name, part = _split(token)
            return f"%{part}", self._resolve(name)
        return ("%", f"alias {token}") if token in self._defined else (token, "")

    def _resolve(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        # Not seen before: an argument of a region that opens on this line, or a block that follows.
        self._fresh.append(name)
        return self._define(self._scopes[-1], name)

    def _define(self, scope: dict[str, str], token: str) -> str:
        self._count += 1
        scope[_split(token)[0]] = found = f"{token[0]}{self._count}"
        return found

    def _bind(self, scope: dict[str, str]) -> None:
        """Names first seen on a line that opens a region belong to that region; blocks to the region around them."""
        for name in self._fresh:
            found = next(s for s in reversed(self._scopes) if name in s)
            scope[name] = found[name] if name.startswith("^") else found.pop(name)
        self._fresh.clear()


def _split(token: str) -> tuple[str, str]:
    """`%5#1` -> ("%5", "#1"); the number of results of `%5:2` is not part of the name."""
    name, mark, part = token.partition("#")
    return (name, mark + part) if mark else (token.partition(":")[0], "")


def _results(tokens: list[str]) -> int:
    """Number of tokens before the `=` of `%1, %2 = op`; 0 when the line defines nothing."""
    for position, token in enumerate(tokens):
        if token == "=":
            return position
        if not token.startswith("%") and token != ",":
            return 0
    return 0


def _closing(tokens: tuple[str, ...], start: int) -> int:
    """Position of the parenthesis that closes the one at `start`."""
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position] == "(") - (tokens[position] == ")")
        if depth == 0:
            return position
    return len(tokens) - 1


def operations(lines: tuple[MlirLine, ...]) -> Iterator[str]:
    """What each line does: `nvvm.elect.sync`, or its first word."""
    for line in lines:
        words = (token for token in line.tokens if token[0].isalpha())
        yield next(words, line.tokens[0])
