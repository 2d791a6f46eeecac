"""Where an operand points: an object, an offset, a loop-carried stage, and the CTA it lives in."""

from __future__ import annotations

import msgspec

from verifier.model.evaluator import Evaluator
from verifier.model.program import AddressExpr
from verifier.model.streams import Stream
from verifier.model.symbolic import remote_target
from verifier.model.values import Lanes, Symbol, Value, add


class Place(msgspec.Struct, frozen=True):
    """`base + offset + stage` in the CTA `rank`.

    `base` is the object's symbol (a variable, a parameter, the TMEM allocation), None when the address is not affine in
    one object. `offset` is in bytes (columns, for TMEM), per lane where lanes differ. `stage` holds the terms that
    change from iteration to iteration. `mapped` says that the address went through `mapa` (or the even-CTA mask), to
    `rank` (None: the even CTA of the pair); `remote`, that this is or may be another CTA than the warp's own.
    """

    base: Symbol | None
    offset: Lanes
    stage: tuple[tuple[Symbol, int], ...] = ()
    remote: bool = False
    rank: Value | None = None
    mapped: bool = False

    @property
    def resolved(self) -> bool:
        return self.base is not None

    @property
    def space(self) -> str | None:
        """State space of the base object, where it is a variable."""
        return str(self.base.key[1]) if self.base is not None and self.base.kind == "sym" else None

    @property
    def offsets(self) -> frozenset[int]:
        return frozenset((self.offset,)) if isinstance(self.offset, int) else frozenset(self.offset)

    @property
    def first(self) -> int:
        return self.offset if isinstance(self.offset, int) else min(self.offset)

    def __str__(self) -> str:
        if self.base is None:
            return "an address that is not affine in one object"
        name = str(self.base.key[-1]) if self.base.kind in ("sym", "param") else self.base.kind
        text = f"{name}+{self.first}" if self.first else name
        if self.stage:
            text += "[stage]"
        return f"{text} in a peer CTA" if self.remote else text


UNRESOLVED = Place(None, 0)
_BASES = frozenset({"sym", "param", "ld_param", "tmem", "shared_base"})


def place_of(stream: Stream, instr: int, expr: AddressExpr | None) -> Place:
    """Resolve an address operand of instruction `instr` as the stream's warps see it.

    An address mapped to another CTA by any member of the stream counts as remote.
    """
    if expr is None:
        return UNRESOLVED
    place = _place(stream, instr, expr, stream.evaluator)
    if place.mapped and not place.remote:
        for evaluator in stream.by_rank[1:]:
            if _place(stream, instr, expr, evaluator).remote:
                return msgspec.structs.replace(place, remote=True)
    return place


def places_of(stream: Stream, instr: int, expr: AddressExpr | None) -> tuple[Place, ...]:
    """The same for every warp of the stream: warps of one role may use barriers of their own."""
    if expr is None:
        return (UNRESOLVED,)
    first = place_of(stream, instr, expr)
    others = (_place(stream, instr, expr, evaluator) for evaluator in stream.by_warp[1:])
    return tuple(dict.fromkeys((first, *(msgspec.structs.replace(p, remote=first.remote) for p in others))))


def _place(stream: Stream, instr: int, expr: AddressExpr, evaluator: Evaluator) -> Place:
    own = evaluator.context.rank if stream.knows_rank else None
    return locate(stream.address(instr, expr, evaluator), own)


def locate(value: Value, own_rank: int | None = None) -> Place:
    """Split a value into object, offset and stage; look through `mapa` and the even-CTA mask."""
    remote = mapped = False
    rank: Value | None = None
    for symbol, coef in value.terms:
        target = remote_target(symbol)
        if target is not None and coef == 1:
            address, rank = target
            value = add(add(value, Value(0, ((symbol, 1),)), -1), address)
            mapped = True
            remote = not _is_own(rank, own_rank)
            break
    bases = [symbol for symbol, coef in value.terms if coef == 1 and symbol.kind in _BASES]
    if len(bases) != 1:
        return Place(None, value.lanes, value.terms, remote, rank, mapped)
    stage = tuple((s, c) for s, c in value.terms if s is not bases[0])
    return Place(bases[0], value.lanes, stage, remote, rank, mapped)


def _is_own(rank: Value | None, own_rank: int | None) -> bool:
    """Mapping an address to one's own rank is the identity."""
    if rank is None:
        return own_rank is not None and own_rank % 2 == 0
    if own_rank is not None and rank.constant is not None:
        return rank.constant == own_rank
    base = rank.base
    return base is not None and rank.lanes == 0 and base.key == ("sreg", "cluster_ctarank")


def may_overlap(a: Place, a_size: int | None, b: Place, b_size: int | None) -> bool:
    """Whether two places of one memory can share a byte (or column); unknown sizes and stages may."""
    if a.base is None or b.base is None or a.base is not b.base:
        return a.base is None or b.base is None or a.base.kind not in ("sym",) or b.base.kind not in ("sym",)
    if a.stage or b.stage:
        return True
    return any(_meet(x, a_size, y, b_size) for x in a.offsets for y in b.offsets)


def _meet(x: int, x_size: int | None, y: int, y_size: int | None) -> bool:
    if x <= y:
        return x_size is None or x + x_size > y
    return y_size is None or y + y_size > x
