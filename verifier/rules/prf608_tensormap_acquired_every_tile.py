"""A tensor map is acquired in every iteration of a loop, although it does not change in it.

What
    An acquire of a tensor map in a loop that changes no map is skipped while the address stays the same: a branch in
    the loop compares what the address is made of with the last value. The acquire of a fixed address stands before the
    loop.

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
from verifier.analyses.visibility import acquires_map
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.cfg import Loop
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
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
            if _changes_maps(flow, loops[-1]):
                yield proved(model, stream, acquire, "the loop changes a map")
            elif _is_skipped(flow, loops[-1], acquire):
                yield proved(model, stream, acquire, "skipped while the address stays the same")
            else:
                yield _violation(model, stream, acquire)


def _changes_maps(flow: EventFlow, loop: Loop) -> bool:
    return any(e.kind in _CHANGES for block in loop.blocks for e in flow.in_block.get(block, ()))


def _is_skipped(flow: EventFlow, loop: Loop, acquire: Event) -> bool:
    """Whether a branch inside the loop decides by what the address is made of."""
    parts = atoms(map_address(flow, acquire))
    conditions = conditions_of(flow.stream)
    for block in control_dependence(flow.cfg).get(flow.cfg.block_of[acquire.instr], ()):
        if block not in loop.blocks:
            continue
        for edge in flow.cfg.successors[block]:
            guard = conditions.guard(edge)
            if edge.dst in loop.blocks and guard is not None and atoms(guard) & parts:
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
