"""A round of a kernel's protocol as text, and as a drawing with one lane a role."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from verifier.analyses.protocol.skeleton import Lane, Operation, Skeleton
from verifier.report.text import place
from verifier.report.views import warps_text

_LANE = 300  # width of a lane, in pixels
_ROW = 34
_BOX = 240
_TOP = 56
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1f2328}.role{font-weight:bold}"
    ".wait{fill:#ddf4ff;stroke:#0969da}.signal{fill:#dafbe1;stroke:#1a7f37}"
    ".edge{stroke:#57606a;stroke-width:1.2;fill:none;marker-end:url(#tip)}.life{stroke:#d0d7de}"
)

_TIP = (
    '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
    '<path d="M0,0 L7,3 L0,6 z" fill="#57606a"/></marker></defs>'
)


def text(skeleton: Skeleton) -> Iterator[str]:
    """One block a role, one line an operation."""
    for lane in skeleton.lanes:
        yield f"{lane.role} ({warps_text(lane.warps)}), round {lane.round}"
        width = max(len(_what(o)) for o in lane.operations)
        yield from (f"  {_what(o):{width}}  {_with(o)}{place(o.location)}" for o in lane.operations)
    yield f"holds for {skeleton.claim}"


def _what(operation: Operation) -> str:
    first, *more = operation.barriers
    stages = f"{first} and {len(more)} more" if more else first
    times = f" x{operation.times}" if operation.times > 1 else ""
    return f"{operation.verb:10} {stages}, phase {operation.phase}{times}"


def _with(operation: Operation) -> str:
    if not operation.partners:
        return "(passes at once)  " if operation.waits else ""
    return f"{'from' if operation.waits else 'to'} {', '.join(operation.partners)}  "


def svg(skeleton: Skeleton, title: str) -> str:
    """Lanes from left to right, time from top to bottom; an arrow from the last signal to each wait that needs it."""
    height = _TOP + _ROW * (max((len(lane.operations) for lane in skeleton.lanes), default=0) + 1)
    width = _LANE * max(len(skeleton.lanes), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _TIP,
    ]
    for column, lane in enumerate(skeleton.lanes):
        parts += _lane(column, lane, height)
    parts += _edges(skeleton)
    return "\n".join([*parts, "</svg>", ""])


def _lane(column: int, lane: Lane, height: int) -> Iterator[str]:
    middle = column * _LANE + _LANE // 2
    yield f'<line class="life" x1="{middle}" y1="{_TOP - 16}" x2="{middle}" y2="{height - 8}"/>'
    yield f'<text class="role" x="{middle}" y="24" text-anchor="middle">{escape(lane.role)}</text>'
    yield f'<text x="{middle}" y="40" text-anchor="middle">{escape(warps_text(lane.warps))}, round {lane.round}</text>'
    for row, operation in enumerate(lane.operations):
        x, y = middle - _BOX // 2, _TOP + row * _ROW
        kind = "wait" if operation.waits else "signal"
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{_BOX}" height="{_ROW - 10}" rx="4"/>'
        label = escape(_what(operation))
        yield f'<text x="{middle}" y="{y + 16}" text-anchor="middle" textLength="{_fit(label)}">{label}</text>'


def _fit(label: str) -> int:
    return min(_BOX - 12, 7 * len(label))


def _edges(skeleton: Skeleton) -> Iterator[str]:
    last: dict[tuple[str, str], tuple[int, int]] = {}  # (role, barrier) -> lane and row of its last signal
    for column, lane in enumerate(skeleton.lanes):
        for row, operation in enumerate(lane.operations):
            if not operation.waits:
                last.update({(lane.role, barrier): (column, row) for barrier in operation.barriers})
    for column, lane in enumerate(skeleton.lanes):
        for row, operation in enumerate(lane.operations):
            if operation.waits:
                found = {last.get((role, operation.barriers[0])) for role in operation.partners} - {None}
                yield from (_edge(source, (column, row)) for source in sorted(f for f in found if f))


def _edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    forward = 1 if source[0] < target[0] else -1
    x1 = source[0] * _LANE + _LANE // 2 + forward * _BOX // 2
    x2 = target[0] * _LANE + _LANE // 2 - forward * _BOX // 2
    y1, y2 = (_TOP + row * _ROW + _ROW // 2 - 5 for row in (source[1], target[1]))
    return f'<path class="edge" d="M{x1},{y1} C{x1 + forward * 30},{y1} {x2 - forward * 30},{y2} {x2},{y2}"/>'
