"""A tensor map is acquired in every iteration of a loop, although it does not change in it.

What
    An acquire of a tensor map in a loop that changes no map is for an address that this loop changes, and is skipped
    while the address stays the same: by a branch that tests for equality with the last value, by a counter that steps
    in each iteration, or by an inner loop over the tiles of one map.

Why
    Each `fence.proxy.tensormap::generic.acquire` invalidates cached descriptors (CCTL.IV.DEEP and UTMACCTL.IV in the
    machine code) and costs hundreds of cycles before the next TMA. One per change of the map is enough.

ISA
    PTX ISA 9.4, 9.7.15.4 "fence.proxy.tensormap": the acquire orders what follows it in program order, for all later
    uses of that address.

Bad
    ```ptx
    warp 0:
    mov.b32 r4, 0;
    LOOP:
    fence.proxy.tensormap::generic.acquire.gpu [gmap], 128;        // PRF608
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [gmap, {r4}], [buf];
    add.u32 r4, r4, 1; setp.lt.u32 q, r4, 9;
    @q bra LOOP;
    ```

Good
    ```ptx
    warp 0:
    mov.b32 r4, 0; mov.b32 r5, -1;
    LOOP:
    ld.global.b32 r6, [data];
    mul.wide.s32 rd1, r6, 128; add.s64 rd1, rd1, gmap;
    setp.eq.s32 p, r6, r5; @p bra SAME;
    fence.proxy.tensormap::generic.acquire.gpu [rd1], 128;
    SAME:
    mov.b32 r5, r6;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [rd1, {r4}], [buf];
    add.u32 r4, r4, 1; setp.lt.u32 q, r4, 9;
    @q bra LOOP;
    ```

Limits
    Whether the address does repeat from tile to tile is not known: where it never does, the advice is void. That a
    skipped acquire is right is PRX401.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.acquired import map_address
from verifier.analyses.conditions import conditions_of
from verifier.analyses.facts import KernelFacts
from verifier.analyses.flow import EventFlow
from verifier.analyses.protocol.slicing import control_dependence
from verifier.analyses.rewriting import atoms
from verifier.analyses.visibility import acquires_map, names_map
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.cfg import Loop
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.model.values import Symbol, Value, add
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, violated

_FIX = "acquire the map only where its address changes (compare with that of the last tile), or before the loop"
_CHANGES = frozenset({Kind.MAP_WRITE, Kind.MAP_COPY, Kind.GRID_WAIT})


@rule(code="PRF608", name="tensormap-acquired-every-tile", hazard=Hazard.PERFORMANCE, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        flow = kernel.flow(model, stream)
        for acquire in flow.select(acquires_map):
            loops = stream.cfg.loops_of(stream.cfg.block_of[acquire.instr])
            if not loops:
                continue
            reason = _reason(flow, loops[-1], acquire)
            yield proved(model, stream, acquire, reason) if reason else _violation(model, stream, acquire)


def _reason(flow: EventFlow, loop: Loop, acquire: Event) -> str:
    """Why the acquire stands where it should; "" when nothing says so."""
    if _changes_maps(flow, loop):
        return "the loop changes a map"
    if not _is_made_in(flow, loop, acquire):
        return ""
    if _is_another(flow, loop, acquire):
        return "each iteration acquires another map"
    if _covers_tiles(flow, acquire):
        return "acquired once for the tiles of an inner loop"
    return "skipped while the address stays the same" if _is_skipped(flow, loop, acquire) else ""


def _changes_maps(flow: EventFlow, loop: Loop) -> bool:
    return any(e.kind in _CHANGES for block in loop.blocks for e in flow.in_block.get(block, ()))


def _is_made_in(flow: EventFlow, loop: Loop, acquire: Event) -> bool:
    """Whether the loop gives the address a new value at all."""
    values = flow.stream.ssa.values
    parts = (s.key[1] for s in atoms(map_address(flow, acquire)) if s.kind in ("phi", "def", "iter"))
    return any(values[part].block in loop.blocks for part in parts if isinstance(part, int))


def _covers_tiles(flow: EventFlow, acquire: Event) -> bool:
    """Whether the map is used in a loop over k inside a loop over tiles, which the acquire is outside of."""
    address = map_address(flow, acquire)
    depth = len(flow.cfg.loops_of(flow.cfg.block_of[acquire.instr]))
    uses = [e for e in flow.events if names_map(e) and map_address(flow, e) == address]
    return any(len(flow.cfg.loops_of(flow.cfg.block_of[use.instr])) >= depth + 2 for use in uses)


def _is_another(flow: EventFlow, loop: Loop, acquire: Event) -> bool:
    """Whether a counter that every iteration steps is part of the address."""
    evaluator = flow.stream.evaluator
    parts = atoms(map_address(flow, acquire))
    for phi in flow.stream.ssa.phis(loop.header).values():
        own = evaluator.value(phi)
        back = [evaluator.value(v) for block, v in (phi.incoming or {}).items() if block in loop.blocks]
        steps = [add(value, own, -1).constant for value in back]
        if atoms(own) & parts & _counted(phi.id, own) and steps and all(steps):
            return True
    return False


def _counted(phi: int, value: Value) -> frozenset[Symbol]:
    """The symbols by which a merge counts its iterations."""
    return frozenset(s for s in atoms(value) if s.kind in ("phi", "iter") and s.key[1] == phi)


def _is_skipped(flow: EventFlow, loop: Loop, acquire: Event) -> bool:
    """Whether a branch inside the loop tests what the address is made of for equality."""
    parts = atoms(map_address(flow, acquire))
    conditions = conditions_of(flow.stream)
    for block in control_dependence(flow.cfg).get(flow.cfg.block_of[acquire.instr], ()):
        for edge in flow.cfg.successors[block] if block in loop.blocks else ():
            guard = conditions.guard(edge)
            if edge.dst not in loop.blocks or guard is None:
                continue
            equal = [s for truth in (True, False) for s, n in conditions.implied(guard, truth) if n]
            if any(s.kind.startswith("setp_eq") and atoms(Value(0, ((s, 1),))) & parts for s in equal):
                return True
    return False


def _violation(model: KernelModel, stream: Stream, acquire: Event) -> Judgement:
    witness = (step(model, stream, acquire, "runs in every iteration; nothing in the loop changes a map"),)
    message = f"{model.role_of(stream)} acquires a tensor map in every iteration of a loop that does not change it"
    return violated(
        model,
        stream,
        acquire,
        message,
        severity=Severity.NOTE,
        hazard=Hazard.PERFORMANCE,
        witness=witness,
        fix=_FIX,
    )
