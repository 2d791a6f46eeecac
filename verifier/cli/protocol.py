"""`verifier show protocol`: a round of a kernel's protocol, as text and as a drawing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verifier.analyses.facts import KernelFacts
from verifier.analyses.protocol.skeleton import skeleton
from verifier.cli import output
from verifier.report import protocol as view
from verifier.report.text import short_name


def has_protocol(kernel: KernelFacts) -> bool:
    """Whether there is a round to show."""
    return kernel.protocol is not None and skeleton(kernel.protocol) is not None


def protocol_lines(kernel: KernelFacts, svg: Path | None) -> Iterator[str]:
    """Lines about one kernel; with `svg` also its drawing, in that file."""
    yield f"{short_name(kernel.name)} ({kernel.arch})  {kernel.source}"
    protocol = kernel.protocol
    found = skeleton(protocol) if protocol is not None else None
    if protocol is None or found is None:
        yield f"  no protocol: {protocol.reason if protocol is not None else 'needs PTX'}"
        return
    yield from (f"  {line}" for line in view.text(found))
    if svg is not None:
        output.emit(view.svg(found, f"{short_name(kernel.name)}: one round of its protocol"), svg)
