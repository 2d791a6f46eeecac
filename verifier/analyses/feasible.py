"""Whether a path that may-analysis finds can be taken: the same test asked twice has one answer."""

from __future__ import annotations

from collections import deque

from verifier.analyses.conditions import conditions_of, dominating_facts
from verifier.analyses.flow import EventFlow, Test
from verifier.model.events import Event

_STATE_LIMIT = 5_000


def may_follow(flow: EventFlow, source: Event, goal: Event, stop: Test) -> bool:
    """Whether some path that its branches allow leads from just after `source` to `goal` past no event of `stop`.

    True as well when there are too many paths to tell.
    """
    conditions = conditions_of(flow.stream)
    block = flow.cfg.block_of[source.instr]
    first = (block, dominating_facts(conditions, flow.stream, block))
    seen = {first}
    queue = deque([(*first, source.instr)])
    while queue and len(seen) <= _STATE_LIMIT:
        block, facts, after = queue.popleft()
        for event in flow.in_block.get(block, ()):
            if event.instr <= after:
                continue
            if event is goal:
                return True
            if stop(event) and (flow.certain(event) or flow.same_guard(event, source)):
                break
        else:
            for edge in flow.cfg.successors[block]:
                if conditions.takes(edge, facts) is not False:
                    state = (edge.dst, conditions.follow(edge, facts))
                    if state not in seen:
                        seen.add(state)
                        queue.append((*state, -1))
    return bool(queue)
