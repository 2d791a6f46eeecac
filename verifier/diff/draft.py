"""Drafts a claim from what was found, for the author to read and to commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from glob import escape

from verifier.diff.kernels import KernelDiff
from verifier.diff.metrics import Delta
from verifier.diff.results import DiffResults, cost, headline

_Shape = tuple[str, str, tuple[str, ...], tuple[str, ...]]  # level, kind, removed, added


def draft_expectation(results: DiffResults) -> str:
    """TOML that `load_expectation` reads and that holds for `results`."""
    changed = [kernel for kernel in results.kernels if kernel.differs]
    lines = [f"# {headline(results)}"]
    if results.removed or results.added:
        lines.append('unlisted = "any"')
    if not changed:
        lines.append("# No entry: no kernel may differ.")
    for kernel in changed:
        lines += ["", *_kernel(kernel)]
    return "\n".join(lines) + "\n"


def _kernel(kernel: KernelDiff) -> Iterator[str]:
    shapes = Counter[_Shape]()
    for claim in kernel.main.claims if kernel.main else ():
        shapes[claim.level, claim.kind.value, claim.removed, claim.added] += claim.count
    if not shapes:
        yield f"# {kernel.name}: no instructions were compared"
        return
    for number, (shape, count) in enumerate(shapes.items()):
        yield from [""] * (number > 0)
        yield from _entry(kernel, shape, count)
    yield "[expect.metrics]"
    for row in cost(kernel.metrics)[0]:
        bound = _bound(row.delta)
        if bound:
            yield f"{_string(row.name)} = {_string(bound)}"
    verdicts = kernel.verdicts
    if verdicts.checked:
        yield "[expect.verdicts]"
        yield f"new = {_array(sorted({finding.rule for finding in verdicts.new}))}"
        yield f"fixed = {_array(sorted({finding.rule for finding in verdicts.fixed}))}"


def _entry(kernel: KernelDiff, shape: _Shape, count: int) -> Iterator[str]:
    level, kind, removed, added = shape
    yield "[[expect]]"
    yield f"kernel = {_string(escape(kernel.name))}"
    yield f"arch = {_string(kernel.arch)}"
    yield f"level = {_string(level)}"
    yield f"kind = {_string(kind)}"
    yield f"count = {count}"
    yield f"remove = {_array([escape(name) for name in removed])}"
    yield f"add = {_array([escape(name) for name in added])}"
    yield 'others = "none"'


def _bound(delta: Delta) -> str:
    if delta.before is None or delta.after is None:
        return ""
    return "=" if not delta.changed else f"{delta.after - delta.before:+}"


def _array(items: Sequence[str]) -> str:
    return f"[{', '.join(map(_string, items))}]"


def _string(text: str) -> str:
    # A JSON string of printable ASCII is a TOML basic string.
    return json.dumps(text)
