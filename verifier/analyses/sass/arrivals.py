"""How many arrivals an arrive counts for, in PTX and in SASS: the count mode, and the lanes that execute it.

`SYNCS.ARRIVE` has a mode: A1T0 counts one arrival, ART0 as many as a register says, ACT0 one for each active lane; with
no mode the register holds the bytes that are expected, and one arrival is counted. `USYNCS` (sm_107a) is executed once
for the warp, whatever lanes are active.
"""

from __future__ import annotations

from verifier.analyses.flow import EventFlow
from verifier.analyses.sass.order import is_elected
from verifier.model.cfg import Edge
from verifier.model.events import Event
from verifier.model.program import Reg
from verifier.model.values import WARP, Value, spread

_UNIFORM = "USYNCS"  # sm_107: issued by the uniform datapath, once for the warp


def disagreement(ptx: EventFlow, arrive: Event, sass: EventFlow, copy: Event) -> str:
    """What the SASS `copy` of a PTX arrive counts differently, in one clause; empty when nothing is seen to differ."""
    mode = _mode(copy)
    one_lane = lanes(ptx, arrive) == 1
    if mode == "ACT0":
        return "the PTX arrives in one lane, ACT0 counts every active lane" if one_lane else ""
    once = copy.opcode.startswith("USYNCS")
    if one_lane and lanes(sass, copy) == WARP and not once:
        return "the PTX arrives in one lane, the SASS in all 32"
    if once and lanes(ptx, arrive) == WARP:
        return "the PTX arrives in all 32 lanes, the uniform instruction once"
    if (arrive.size is not None) != (mode == ""):
        return "only one of the two expects transaction bytes"
    if arrive.size is not None:
        return ""
    wanted = 1 if arrive.count is None else ptx.stream.value(arrive.instr, arrive.count).constant
    counted = 1 if copy.count is None else sass.stream.value(copy.instr, copy.count).constant
    if wanted is None or counted is None or wanted == counted:
        return ""
    return f"the PTX counts {wanted}, the SASS {counted}"


def lanes(flow: EventFlow, event: Event) -> int | None:
    """Lanes of the warp that execute an event where it is reached: 1, 32, or None for another or an unknown number."""
    stream = flow.stream
    if event.opcode.startswith(_UNIFORM):
        return 1
    found: list[int | None] = []
    for guard in stream.function.instrs[event.instr].guards:
        found.append(_count(stream.value(event.instr, Reg(guard.reg)), guard.negated))
    for edge in _way_to(flow, event):
        if edge.guard is not None:
            last = flow.cfg.blocks[edge.src].end - 1
            found.append(_count(stream.value(last, Reg(edge.guard.reg)), edge.guard.negated))
    if 1 in found:
        return 1
    return WARP if all(number == WARP for number in found) else None


def _way_to(flow: EventFlow, event: Event) -> list[Edge]:
    """Edges that every path to the event takes: the only ways into the blocks that dominate it."""
    cfg = flow.cfg
    edges: list[Edge] = []
    block = cfg.block_of[event.instr]
    while block != cfg.entry:
        into = cfg.predecessors[block]
        if len(into) == 1:
            edges += into
        parent = cfg.dominator.get(block, block)
        if parent == block:
            break
        block = parent
    return edges


def _count(predicate: Value, negated: bool) -> int | None:
    """Lanes in which a predicate is true; 32 for one that is the same in all lanes, because it is true where one is."""
    if is_elected(predicate, negated):
        return 1
    if is_elected(predicate, not negated):
        return WARP - 1
    if not predicate.terms:
        true = sum(bool(lane & 1) != negated for lane in spread(predicate.lanes))
        return true or None
    return WARP if predicate.uniform else None


def _mode(copy: Event) -> str:
    """A1T0, ART0, ACT0...; empty for an arrive that expects bytes."""
    return next((word for word in copy.opcode.split(".") if word.startswith("A") and word.endswith("T0")), "")
