"""What rules see of one kernel: its PTX and SASS models, launch facts, and the analyses computed on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from verifier.analyses.flow import EventFlow
from verifier.analyses.protocol.explore import Protocol, analyse
from verifier.analyses.sass.metrics import sass_metrics
from verifier.analyses.sass.side import Cubin, SassSide
from verifier.launch import LaunchFacts
from verifier.model.kernel import KernelModel
from verifier.model.program import UNKNOWN_CALLEE, Instr
from verifier.model.roles import Role
from verifier.model.streams import Stream


class RoleSummary(msgspec.Struct, frozen=True):
    name: str
    warps: tuple[int, ...]


class AssemblerMessage(msgspec.Struct, frozen=True):
    """A coded message of the assembler: `C7508`, and what it says."""

    code: str
    text: str


class KernelFacts:
    """One kernel under check. `ptx` or `sass` is None when that side is not at hand, `messages` when nobody knows what
    the assembler said."""

    def __init__(
        self,
        *,
        name: str,
        arch: str,
        source: str,
        launch: LaunchFacts,
        ptx: KernelModel | None = None,
        sass: KernelModel | None = None,
        metrics: Mapping[str, int | float] | None = None,
        messages: Sequence[AssemblerMessage] | None = None,
        cubin: Cubin | None = None,
    ) -> None:
        self.name = name
        self.arch = arch
        self.source = source
        self.launch = launch
        self.ptx = ptx
        self.sass = sass
        self._metrics: Mapping[str, int | float] = metrics or {}
        self.messages = messages
        self._cubin = cubin
        self._flows: dict[int, EventFlow] = {}

    @property
    def isas(self) -> frozenset[str]:
        return frozenset(name for name, side in (("ptx", self.ptx), ("sass", self.sass)) if side is not None)

    @cached_property
    def blind(self) -> Mapping[str, str]:
        """By instruction set, why nothing can be proved or denied there: code runs that is not seen.

        What machine code calls by its address is what PTX calls by its name: with PTX at hand that is known.
        """
        ptx = self.ptx.unfollowed if self.ptx is not None else None
        sass = self.sass.unfollowed if self.sass is not None else None
        if sass is not None and sass.flow.callee == UNKNOWN_CALLEE and self.ptx is not None and ptx is None:
            sass = None
        return {isa: _unseen(isa, instr) for isa, instr in (("ptx", ptx), ("sass", sass)) if instr is not None}

    @cached_property
    def roles(self) -> Sequence[RoleSummary]:
        side = self.ptx or self.sass
        return tuple(RoleSummary(role.name, role.warps) for role in side.roles) if side else ()

    @cached_property
    def protocol(self) -> Protocol | None:
        """What running the kernel's synchronization showed; None without PTX. Computed once, when first asked for."""
        return analyse(self.ptx) if self.ptx is not None else None

    @cached_property
    def metrics(self) -> Mapping[str, int | float]:
        """What the build says of itself, and the numbers of its machine code."""
        return {**self._metrics, **(sass_metrics(self.machine) if self.machine is not None else {})}

    @cached_property
    def machine(self) -> SassSide | None:
        """What the machine code shows; None without SASS."""
        return SassSide(self.ptx, self.sass, self._cubin) if self.sass is not None else None

    def flow(self, model: KernelModel, stream: Stream) -> EventFlow:
        """Events of a stream in control-flow order."""
        flow = self._flows.get(id(stream))
        if flow is None:
            flow = self._flows[id(stream)] = EventFlow(stream, model.events)
        return flow

    def role(self, name: str) -> Role | None:
        side = self.ptx or self.sass
        return next((r for r in side.roles if r.name == name), None) if side else None


def _unseen(isa: str, instr: Instr) -> str:
    place = f"PTX line {instr.location.ptx_line}"
    if isa == "sass":
        place = f"SASS {instr.location.sass_offset or 0:#x}"
    if not instr.flow.callee:
        return f"where the indirect branch at {place} goes is not known"
    return f"{instr.flow.callee}, called at {place}, is not followed and may synchronize"
