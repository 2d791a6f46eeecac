"""What a sentence calls an instruction: `a relaxed cluster-scope try_wait`, `the sync_restrict acquire fence`."""

from __future__ import annotations

from collections.abc import Sequence

from verifier.diff.lines import Line, LineKind
from verifier.model.events import ANNOUNCEMENTS, TMEM_ASYNC, Event, Kind

MAX_PHRASES = 4

_SCOPES = {"cta": "CTA", "cluster": "cluster", "gpu": "GPU", "sys": "system"}
_NOUNS = {
    Kind.BARRIER_WAIT: "wait",
    Kind.FENCE: "fence",
    Kind.PROXY_FENCE: "proxy fence",
    Kind.BARRIER_ARRIVE: "arrive",
    Kind.TMEM_LOAD: "TMEM load",
    Kind.TMEM_STORE: "TMEM store",
    Kind.TMEM_MMA: "MMA",
    Kind.TMEM_COMMIT: "commit",
    Kind.BULK_LOAD: "bulk load",
    Kind.BULK_STORE: "bulk store",
}
_ACCESSES = TMEM_ASYNC | {Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_PEER, Kind.WGMMA_MMA, Kind.LOAD, Kind.STORE}


def noun(line: Line) -> str:
    """What the instruction is, without its ordering: `wait`, `arrive`, or its opcode."""
    return _NOUNS.get(line.event.kind, f"`{line.opcode}`") if line.event else f"`{line.opcode}`"


def phrase(line: Line) -> str:
    """The instruction with its ordering, and an article."""
    event = line.event
    if event is not None and event.kind is Kind.BARRIER_WAIT and line.opcode.startswith("mbarrier."):
        return _indefinite(f"{_ordering(event)} {line.opcode.split('.')[1]}")
    if event is not None and event.kind is Kind.BARRIER_ARRIVE and line.opcode.startswith("mbarrier."):
        return _indefinite(f"{_ordering(event)} arrive")
    if event is not None and event.kind is Kind.FENCE and not line.opcode.isupper():
        restricted = next((flag for flag in sorted(event.flags) if flag.startswith("sync_restrict")), "")
        return f"the sync_restrict {event.sem} fence" if restricted else f"the {_scope(event)}{event.sem} fence"
    return f"`{line.opcode}`"


def _indefinite(text: str) -> str:
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def _ordering(event: Event) -> str:
    return f"{event.sem} {_scope(event)}".strip()


def _scope(event: Event) -> str:
    return f"{_SCOPES.get(event.scope, event.scope)}-scope " if event.scope else ""


def notable(lines: Sequence[Line]) -> list[Line]:
    """The instructions that say what happens: without labels, and without tests and branches beside others."""
    code = [line for line in lines if line.kind is not LineKind.LABEL]
    return [line for line in code if not line.steers] or code


def join_phrases(lines: Sequence[Line], link: str = " followed by ") -> str:
    """The phrases of some lines in their order, cut to `MAX_PHRASES`."""
    shown = notable(lines)
    counted: list[tuple[str, int]] = []
    for text in map(phrase, shown):
        if counted and counted[-1][0] == text:
            counted[-1] = (text, counted[-1][1] + 1)
        else:
            counted.append((text, 1))
    words = [text if number == 1 else f"{number} x {text}" for text, number in counted[:MAX_PHRASES]]
    rest = sum(number for _, number in counted[MAX_PHRASES:])
    return link.join([*words, *([f"{rest} more instructions"] if rest else [])])


def flip(moved: Sequence[Line], crossed: Sequence[Line], down: bool) -> str:
    """What changed places: `the TMEM load moved above the release`, "" when nothing synchronizes on one of the sides.

    An access is told relative to a signal, whichever of the two was moved in the text.
    """
    sides = ((moved, crossed, down), (crossed, moved, not down))
    for subjects, references, moved_down in sides:
        subject = next((line for line in subjects if line.event and line.event.kind in _ACCESSES), None)
        reference = _reference(references)
        if subject is not None and reference is not None and subject.event is not None:
            return f"the {noun(subject)} moved {'below' if moved_down else 'above'} {_definite(reference)}"
    first = next((line for line in moved if line.synchronizes), None)
    second = next((line for line in crossed if line.synchronizes), None)
    if first is None or second is None:
        return ""
    return f"{_definite(first)} moved {'below' if down else 'above'} {_definite(second)}"


def _reference(lines: Sequence[Line]) -> Line | None:
    signals = [line for line in lines if line.event and line.event.kind in ANNOUNCEMENTS]
    waits = [line for line in lines if line.event and line.event.kind is Kind.BARRIER_WAIT]
    return next(iter([*signals, *waits]), None)


def _definite(line: Line) -> str:
    event = line.event
    if event is not None and event.kind is Kind.BARRIER_ARRIVE:
        family = ".".join(line.opcode.split(".")[:2])
        return f"the release (`{family}`)" if event.sem == "release" else f"the {event.sem} arrive (`{family}`)"
    return f"the {noun(line)}"
