"""Makes wrong kernels out of right ones: small edits of the synchronization in PTX text.

An edit is named by what it does, the opcode it does it to, and a running number among equal ones, so that its name
survives edits elsewhere in the file. Edits are textual and keep the text parseable: each statement of the kernels
stored here stands on a line of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from verifier.isa.ptx_ops import PtxOp, decode
from verifier.launch import LaunchFacts

DATA = Path(__file__).parent.parent / "data"
LAUNCHES = {
    "gemm_persistent": LaunchFacts(block=(192, 1, 1), cluster=(1, 1, 1)),
    "gemm_splitk_mailbox": LaunchFacts(block=(192, 1, 1), cluster=(1, 1, 4)),
    "grouped_gemm_wgrad": LaunchFacts(block=(224, 1, 1), cluster=(1, 1, 1)),
}
FOCUS = {"grouped_gemm_wgrad": "tensormap"}  # only statements with this word: the rest is like the first kernel

_STATEMENT = re.compile(r"\s*(?:@!?[%\w$]+\s+)?([a-z][\w.:]*)[\s;]")
_REGISTER = re.compile(r"%[a-z]+\d+")
_REACH = 12  # lines between a wait and the branch that retries it

_COMPLETIONS = ("tcgen05.wait::ld", "tcgen05.wait::st", "cp.async.bulk.wait_group")
_FENCES = ("fence", "fence.proxy", "fence.mbarrier_init", "tcgen05.fence::before_thread_sync")
_SIGNALS = (
    "mbarrier.arrive",
    "mbarrier.arrive_drop",
    "tcgen05.commit",
    "bar.sync",
    "bar.arrive",
    "barrier.cluster.arrive",
)
_COPIES = ("cp.async.bulk.tensor", "cp.async.bulk")  # they are no synchronization, but what it orders
_WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
_LOADS = ("tcgen05.ld", "ld", "tcgen05.st", "st", "tcgen05.mma", "st.async")
_OTHERS = (
    "mbarrier.init",
    "mbarrier.expect_tx",
    "cp.async.bulk.commit_group",
    "bar.warp.sync",
    "barrier.cluster.wait",
    "tcgen05.fence::after_thread_sync",
    "griddepcontrol.wait",
    "griddepcontrol.launch_dependents",
)
_SYNC = frozenset((*_COMPLETIONS, *_FENCES, *_SIGNALS, *_COPIES, *_WAITS, *_OTHERS))


class Mutant(msgspec.Struct, frozen=True):
    """`text` is the kernel with the edit `name` applied at `line` (1-based) of the original."""

    kernel: str
    name: str
    line: int
    text: str


class _Statement(msgspec.Struct, frozen=True):
    """A statement on line `index` (0-based)."""

    index: int
    op: PtxOp
    line: str

    @property
    def family(self) -> str:
        return self.op.family


def original(kernel: str) -> str:
    return (DATA / f"{kernel}.sm_100a.ptx").read_text(encoding="utf-8")


def mutants(kernel: str) -> list[Mutant]:
    """All mutants of one stored kernel, in the order of operators and lines."""
    text = original(kernel)
    lines = text.splitlines()
    statements = [s for i, line in enumerate(lines) if (s := _statement(i, line)) is not None]
    found: list[Mutant] = []
    numbers: Counter[tuple[str, str]] = Counter()
    seen = {text}
    focus = FOCUS.get(kernel, "")
    for operator in (
        _delete,
        _weaken,
        _confuse,
        _count,
        _miscount,
        _neighbour,
        _retry,
        _hoist,
        _release,
        _sink,
        _swap,
        _all,
    ):
        for what, statement, edited in operator(lines, statements):
            if focus not in statement.op.text:
                continue
            numbers[what, statement.op.text] += 1
            name = f"{what} {statement.op.text} #{numbers[what, statement.op.text]}"
            mutated = "\n".join(edited) + "\n"
            if mutated not in seen:
                seen.add(mutated)
                found.append(Mutant(kernel, name, statement.index + 1, mutated))
    return found


_Edits = Iterator[tuple[str, _Statement, list[str]]]


def _statement(index: int, line: str) -> _Statement | None:
    match = _STATEMENT.match(line)
    if match is None or line.lstrip().startswith(("//", ".", "$")):
        return None
    return _Statement(index, decode(match[1]), line)


def _replaced(lines: list[str], index: int, *new: str) -> list[str]:
    return [*lines[:index], *new, *lines[index + 1 :]]


def _delete(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Leave a synchronizing statement out; a wait is taken to have returned true."""
    for statement in statements:
        if statement.family in _WAITS:
            result = _REGISTER.search(statement.line)
            assert result is not None
            yield "delete", statement, _replaced(lines, statement.index, f"\tmov.pred \t{result[0]}, -1;")
        elif statement.family in _SYNC and statement.family not in _COPIES:
            yield "delete", statement, _replaced(lines, statement.index)


def _weaken(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """A narrower scope, or relaxed semantics."""
    for statement in statements:
        old = statement.op.text
        if statement.family in ("mbarrier.arrive", *_WAITS):
            if "relaxed.cluster" in old or "acquire.cluster" in old or "release.cluster" in old:
                new = re.sub(r"(relaxed|acquire|release)\.cluster", r"\1.cta", old)
                yield "narrow", statement, _replaced(lines, statement.index, statement.line.replace(old, new))
            if not statement.op.has("relaxed"):
                yield "relax", statement, _replaced(lines, statement.index, statement.line.replace(old, _relaxed(old)))
        elif statement.family == "barrier.cluster.arrive" and not statement.op.has("relaxed"):
            yield "relax", statement, _replaced(lines, statement.index, statement.line.replace(old, f"{old}.relaxed"))


_CONFUSED = (  # a fence or a completion, and one that is easily taken for it
    ("fence.proxy.async.shared::cta", "fence.proxy.async.global"),
    ("fence.acquire.sync_restrict::shared::cluster.cluster", "fence.acq_rel.cta"),
    ("fence.acquire.sync_restrict::shared::cluster.cluster", "fence.release.sync_restrict::shared::cta.cluster"),
    ("fence.proxy.tensormap::generic.acquire.gpu", "fence.proxy.tensormap::generic.acquire.cta"),
    ("fence.mbarrier_init.release.cluster", "fence.proxy.async.shared::cta"),
    ("tcgen05.wait::ld", "tcgen05.wait::st"),
    ("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"),
    ("tcgen05.fence::after_thread_sync", "tcgen05.fence::before_thread_sync"),
)


def _confuse(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Write another fence, or wait for accesses of the other direction."""
    for statement in statements:
        for right, wrong in _CONFUSED:
            if statement.op.text.startswith(right):
                edited = statement.line.replace(right, wrong)
                yield f"{wrong} for", statement, _replaced(lines, statement.index, edited)


def _relaxed(opcode: str) -> str:
    if "acquire." in opcode or "release." in opcode:
        return opcode.replace("acquire.", "relaxed.").replace("release.", "relaxed.")
    return opcode.replace(".shared", ".relaxed.cta.shared", 1)


def _count(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Let one more group pend; wait for the reads only, or for the writes too."""
    for statement in statements:
        if statement.family != "cp.async.bulk.wait_group":
            continue
        raised = re.sub(r"(\d+)\s*;", lambda m: f"{int(m[1]) + 1};", statement.line)
        yield "raise", statement, _replaced(lines, statement.index, raised)
        if statement.op.has("read"):
            whole = statement.line.replace(".read", "")
            yield "drop .read of", statement, _replaced(lines, statement.index, whole)


def _miscount(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """One arrival more or less than a barrier is initialized with; 16 bytes more or less than copies move."""
    for statement in statements:
        expects = statement.op.has("expect_tx") or statement.family == "mbarrier.expect_tx"
        if statement.family != "mbarrier.init" and not expects:
            continue
        operand = re.search(r"(%r\d+|\d+)\s*;", statement.line)
        assert operand is not None
        number = _constant(lines, statement.index, operand[1])
        for change in (16, -16) if expects else (1, -1):
            if number + change > 0:
                edited = statement.line[: operand.start()] + f"{number + change};"
                yield f"{change:+} in", statement, _replaced(lines, statement.index, edited)


def _constant(lines: list[str], index: int, operand: str) -> int:
    """The number that an operand of line `index` is: written there, or moved into the register before."""
    if operand.isdigit():
        return int(operand)
    move = re.compile(rf"\s*mov\.b32\s+{re.escape(operand)}, (\d+);")
    return next(int(found[1]) for i in range(index - 1, -1, -1) if (found := move.match(lines[i])))


def _neighbour(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Acquire the tensor map beside the one that is used."""
    for statement in statements:
        if statement.family == "fence.proxy" and "tensormap" in statement.op.text and statement.op.has("acquire"):
            beside = re.sub(r"\[([%\w]+)\]", r"[\1+128]", statement.line)
            yield "acquire a neighbour with", statement, _replaced(lines, statement.index, beside)


def _retry(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Take the branch away that tries a wait again."""
    for statement in statements:
        if statement.family not in _WAITS:
            continue
        labels = {lines[i].rstrip(":") for i in range(max(statement.index - _REACH, 0), statement.index)}
        for index in range(statement.index + 1, statement.index + _REACH):
            target = re.search(r"bra(?:\.uni)?\s+([$\w]+);", lines[index])
            if target is not None:
                if target[1] in labels:
                    yield "do not retry", statement, _replaced(lines, index)
                break


def _hoist(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Move a signal up past the access before it, with what computes its operands."""
    for statement in statements:
        if statement.family not in (*_SIGNALS, *_COPIES):
            continue
        for index in range(statement.index - 1, -1, -1):
            other = _statement(index, lines[index])
            if _ends_block(lines[index]):
                break
            if other is not None and other.family in _LOADS:
                moved = _moved_up(lines, statement.index, index)
                if moved is not None:
                    yield "hoist", statement, moved
                break


def _moved_up(lines: list[str], index: int, to: int) -> list[str] | None:
    """Line `index` moved in front of line `to`, with the plain statements in between that it depends on."""
    needed = set(_REGISTER.findall(lines[index]))
    block: list[int] = [index]
    for i in range(index - 1, to, -1):
        defined = _REGISTER.search(lines[i])
        other = _statement(i, lines[i])
        if other is not None and defined is not None and defined[0] in needed and other.family not in _SYNC:
            block.insert(0, i)
            needed |= set(_REGISTER.findall(lines[i]))
    if _REGISTER.findall(lines[to])[:1] and _REGISTER.findall(lines[to])[0] in needed:
        return None
    rest = [line for i, line in enumerate(lines) if i not in block]
    return [*rest[:to], *(lines[i] for i in block), *rest[to:]]


def _release(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Move an arrive, with the branch that guards it, up past the conditional or plain access before it."""
    for statement in statements:
        if statement.family not in ("mbarrier.arrive", "tcgen05.commit"):
            continue
        first, last = _guarded(lines, statement.index)
        outer: int | None = None  # the branch around the block that is being passed
        for index in range(first - 1, -1, -1):
            line = lines[index].strip()
            other = _statement(index, lines[index])
            if outer is None and line.endswith(":"):
                outer = _skip(lines, index)
                if outer is None:
                    break
            elif outer is None and _ends_block(lines[index]):
                break
            elif other is not None and other.family in _LOADS and other.family != "tcgen05.mma":
                to = index if outer is None else outer
                if not _defined(lines[to:first]) & _used(lines[first : last + 1]):
                    rest = [*lines[:first], *lines[last + 1 :]]
                    yield "release early", statement, [*rest[:to], *lines[first : last + 1], *rest[to:]]
                break
            if index == outer:
                outer = None


def _guarded(lines: list[str], index: int) -> tuple[int, int]:
    """Lines of the innermost `@p bra L; ... L:` around a line that holds nothing but a signal; else the line alone."""
    for start in range(index - 1, -1, -1):
        branch = re.search(r"@!?\S+\s+bra\s+([$\w]+);", lines[start])
        if branch is not None:
            end = next((i for i, line in enumerate(lines) if line.startswith(f"{branch[1]}:")), -1)
            inner = lines[start + 1 : end]
            accesses = [s for i, line in enumerate(inner) if (s := _statement(i, line)) and s.family in _LOADS]
            if end > index and not accesses and _skip(lines, end) == start:
                return start, end
            return index, index
        if _ends_block(lines[start]):
            return index, index
    return index, index


def _skip(lines: list[str], label: int) -> int | None:
    """The branch to a label, if it is the only one and stands before it."""
    target = lines[label].strip().split(":")[0]
    found = [i for i, line in enumerate(lines) if re.search(rf"bra(?:\.uni)?\s+{re.escape(target)};", line)]
    return found[0] if len(found) == 1 and found[0] < label and "@" in lines[found[0]] else None


def _defined(lines: list[str]) -> set[str]:
    return {found[0] for line in lines if (found := _REGISTER.findall(line))}


def _used(lines: list[str]) -> set[str]:
    return {register for line in lines for register in _REGISTER.findall(line)} - _defined(
        [line for line in lines if "bra" not in line and "arrive" not in line]
    )


def _sink(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Move a wait or a fence down past the next signal: behind the block that gives it, if that is conditional."""
    for statement in statements:
        if statement.family not in (*_COMPLETIONS, *_FENCES):
            continue
        skipped: str | None = None
        for index in range(statement.index + 1, len(lines)):
            line = lines[index]
            other = _statement(index, line)
            branch = re.search(r"@!?\S+\s+bra\s+([$\w]+);", line)
            if branch is not None:
                skipped = branch[1]
            elif (_ends_block(line) and line.rstrip(":") != skipped) or "bra" in line:
                break
            if other is not None and other.family in (*_SIGNALS, *_COPIES):
                target = lines.index(f"{skipped}:") if skipped and f"{skipped}:" in lines[index:] else index
                edited = [*lines[: target + 1], statement.line, *lines[target + 1 :]]
                del edited[statement.index]
                yield "sink", statement, edited
                break


def _swap(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Exchange two synchronizing statements that follow each other."""
    sync = [s for s in statements if s.family in _SYNC]
    for first, second in pairwise(sync):
        between = lines[first.index + 1 : second.index]
        if any(_ends_block(line) for line in between) or first.op.text == second.op.text:
            continue
        made = set(_REGISTER.findall(first.line)[:1]) if first.op.writes_result else set()
        if any(made & set(_REGISTER.findall(line)) for line in (*between, second.line)):
            continue
        edited = [*lines[: first.index], *between, second.line, first.line, *lines[second.index + 1 :]]
        yield "swap", first, edited


def _all(lines: list[str], statements: Sequence[_Statement]) -> _Edits:
    """Every wait relaxed, and no fence that acquires."""
    waits = {s.index: s.line.replace(s.op.text, _relaxed(s.op.text)) for s in statements if s.family in _WAITS}
    fences = {s.index for s in statements if s.family == "fence" and s.op.has("acquire")}
    if waits:
        edited = [waits.get(i, line) for i, line in enumerate(lines) if i not in fences]
        yield "relax every", next(s for s in statements if s.family in _WAITS), edited


def _ends_block(line: str) -> bool:
    text = line.strip()
    return text.endswith(":") or text.startswith(("$", "{", "}", "ret")) or " bra" in f" {text}"
