"""Everything computed from the machine code of one kernel, each part when it is first asked for."""

from __future__ import annotations

from functools import cached_property

from verifier.analyses.sass.join import Join
from verifier.analyses.sass.loops import Loops
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream


class SassSide:
    """The SASS model of a kernel with its join to PTX and its loops. `ptx` is None when the PTX is not at hand."""

    def __init__(self, ptx: KernelModel | None, sass: KernelModel) -> None:
        self.ptx = ptx
        self.model = sass
        self._loops: dict[int, Loops] = {}

    @cached_property
    def join(self) -> Join:
        return Join(self.ptx, self.model)

    def loops(self, stream: Stream) -> Loops:
        found = self._loops.get(id(stream))
        if found is None:
            found = self._loops[id(stream)] = Loops(self.model, stream)
        return found
