"""From hunks to claims: hunks of one rewrite shape are one claim, and all claims together are one sentence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from verifier.diff.hunks import Comparison, Hunk, HunkKind
from verifier.diff.lines import Line, LineKind
from verifier.diff.phrases import flip, join_phrases, notable, noun
from verifier.findings import Location

MAX_CLAUSES = 3
EVERYWHERE = "all roles"
DECLARATION = "declaration"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one hunk of a claim is: the roles that execute it, and its location."""

    role: str
    location: Location


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """`count` hunks of one rewrite shape. `removed` and `added` are the opcodes of that shape; `clause` completes
    "the generated code differs ..."."""

    kind: HunkKind
    level: str
    clause: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    places: tuple[Place, ...]
    hunks: tuple[Hunk, ...]

    @property
    def count(self) -> int:
        return len(self.hunks)


def claims_of(comparison: Comparison) -> tuple[Claim, ...]:
    """Claims about synchronization and declarations first, then by size, then in the order of the text."""
    groups: dict[Hashable, list[Hunk]] = {}
    for hunk in comparison.hunks:
        groups.setdefault(_shape(hunk), []).append(hunk)
    roles = comparison.after.roles
    claims = [_claim(comparison.level, hunks, roles) for hunks in groups.values()]
    return tuple(sorted(claims, key=lambda claim: (not _weighs(claim), -claim.count)))


def _weighs(claim: Claim) -> bool:
    lines = [line for hunk in claim.hunks for line in (*hunk.removed, *hunk.added)]
    return any(line.synchronizes or line.kind is LineKind.DECLARATION for line in lines)


def sentence(comparison: Comparison, claims: Sequence[Claim]) -> str:
    """The one sentence about a pair of listings."""
    code = {"ptx": "generated code", "sass": "machine code", "ir": "IR"}[comparison.level]
    if not claims:
        return f"the {code} is the same"
    clauses = [claim.clause for claim in claims[:MAX_CLAUSES]]
    rest = claims[MAX_CLAUSES:]
    if rest:
        hunks = sum(claim.count for claim in rest)
        clauses.append(f"and at {_many(hunks, 'more place')} of {_many(len(rest), 'other kind')}")
        return f"the {code} differs {'; '.join(clauses)}"
    return f"the {code} differs only {'; and '.join(clauses)}"


def opcodes(lines: Sequence[Line]) -> tuple[str, ...]:
    """Opcodes of the instructions among some lines; of declarations, their text."""
    return tuple(
        line.pattern if line.kind is LineKind.DECLARATION else line.opcode
        for line in lines
        if line.kind is not LineKind.LABEL
    )


def _shape(hunk: Hunk) -> Hashable:
    """What makes hunks alike: opcodes, and where these are equal, the immediates too."""
    removed, added = opcodes(hunk.removed), opcodes(hunk.added)
    if hunk.kind is HunkKind.MOVED:
        return hunk.kind, removed, _moved(hunk)
    if removed == added and hunk.kind is not HunkKind.OPERAND:
        return hunk.kind, tuple(line.pattern for line in (*hunk.removed, *hunk.added))
    return hunk.kind, removed, added


def _claim(level: str, hunks: Sequence[Hunk], roles: Sequence[str]) -> Claim:
    first = hunks[0]
    return Claim(
        kind=first.kind,
        level=level,
        clause=_CLAUSES[first.kind](first, len(hunks)),
        removed=opcodes(first.removed),
        added=opcodes(first.added),
        places=tuple(_place(hunk, roles) for hunk in hunks),
        hunks=tuple(hunks),
    )


def _place(hunk: Hunk, roles: Sequence[str]) -> Place:
    own = hunk.roles
    role = EVERYWHERE if len(own) == len(roles) > 1 else ", ".join(own)
    if hunk.kind is HunkKind.DECLARATION:
        role = DECLARATION
    telling = notable(hunk.lines) or hunk.lines
    line = next((line for line in telling if line.synchronizes), telling[0])
    return Place(role=role, location=line.location)


def _changed(hunk: Hunk, count: int) -> str:
    removed, added = notable(hunk.removed), notable(hunk.added)
    main = next((line for line in (*removed, *added) if line.synchronizes), removed[0] if removed else added[0])
    twin = next((line for line in added if line.opcode == main.opcode and line.pattern != main.pattern), None)
    if main in removed and twin is not None:
        return f"at {_many(count, noun(main))}: `{main.pattern}` is now `{twin.pattern}`"
    each = "each now" if count > 1 else "now"
    return f"at {_many(count, noun(main))}, {each} {join_phrases(hunk.added)}"


def _added(hunk: Hunk, count: int) -> str:
    return f"by {_times(count, join_phrases(hunk.added))} added"


def _removed(hunk: Hunk, count: int) -> str:
    return f"by {_times(count, join_phrases(hunk.removed))} removed"


def _operand(hunk: Hunk, count: int) -> str:
    where = noun(notable(hunk.added)[0])
    return f"at {_many(count, where)}, where an operand now comes from another definition"


def _moved(hunk: Hunk, count: int = 1) -> str:
    what = flip(hunk.added, hunk.crossed, hunk.down)
    if not what:
        what = f"{join_phrases(hunk.added, ', ')} moved {'down' if hunk.down else 'up'}"
    where = f" in the {' and '.join(hunk.roles)} role{'' if len(hunk.roles) == 1 else 's'}" if hunk.roles else ""
    return f"in order: {what}{where}" + (f" ({count} times)" if count > 1 else "")


def _declaration(hunk: Hunk, count: int) -> str:
    old, new = (", ".join(f"`{text}`" for text in opcodes(lines)) for lines in (hunk.removed, hunk.added))
    times = f" ({count} times)" if count > 1 else ""
    if old and new:
        return f"in what is declared: {new} in place of {old}{times}"
    return f"in what is declared: {new or old} {'added' if new else 'removed'}{times}"


_CLAUSES: dict[HunkKind, Callable[[Hunk, int], str]] = {
    HunkKind.CHANGED: _changed,
    HunkKind.ADDED: _added,
    HunkKind.REMOVED: _removed,
    HunkKind.OPERAND: _operand,
    HunkKind.MOVED: _moved,
    HunkKind.DECLARATION: _declaration,
}


def _times(count: int, what: str) -> str:
    return what if count == 1 else f"{count} x {what}"


def _many(number: int, word: str) -> str:
    if word.startswith("`") or number == 1:
        return f"{number} {word}"
    return f"{number} {word}s"
