"""Everything computed from the machine code of one kernel, each part when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from verifier.analyses.sass.controls import Controls
from verifier.analyses.sass.join import Join
from verifier.analyses.sass.loops import Loops
from verifier.analyses.sass.selfcheck import SelfCheck, self_check
from verifier.model.cfg import build_cfg
from verifier.model.kernel import KernelModel
from verifier.model.program import Function
from verifier.model.streams import Stream


class Cubin:
    """All functions of one listing. The encoding is theirs in common: it is trusted for all of them or for none."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.functions = tuple(functions)

    @cached_property
    def checks(self) -> dict[str, SelfCheck]:
        """The self-check of each function by its name."""
        return {f.name: self_check(f, build_cfg(f), Controls(f)) for f in self.functions}

    @cached_property
    def distrust(self) -> str:
        """Why no statement about scoreboards can be made; empty when the control data passes its self-check."""
        failed = [(name, check) for name, check in self.checks.items() if not check.passed]
        if not failed:
            return ""
        name, check = failed[0]
        share = f"{len(failed)} of {len(self.checks)} functions"
        return f"control data fails its self-check in {share} ({name}: {check.reason})"

    @property
    def has_encodings(self) -> bool:
        return all(check.complete for check in self.checks.values())


class SassSide:
    """The SASS model of a kernel with its join to PTX and its loops. `ptx` is None when the PTX is not at hand."""

    def __init__(self, ptx: KernelModel | None, sass: KernelModel, cubin: Cubin | None = None) -> None:
        self.ptx = ptx
        self.model = sass
        self.cubin = cubin or Cubin([sass.function])
        self._loops: dict[int, Loops] = {}

    @cached_property
    def join(self) -> Join:
        return Join(self.ptx, self.model)

    @cached_property
    def controls(self) -> Controls:
        return Controls(self.model.function)

    def loops(self, stream: Stream) -> Loops:
        found = self._loops.get(id(stream))
        if found is None:
            found = self._loops[id(stream)] = Loops(self.model, stream)
        return found
