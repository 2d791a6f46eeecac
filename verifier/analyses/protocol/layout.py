"""Where the machine keeps what an instruction reads: one slot for each register, constant, address and input."""

from __future__ import annotations

from verifier.analyses.protocol.values import UNDEFINED, LaneValue, Unknown
from verifier.model.program import Arg, Const, Reg, SReg, Sym


class Layout:
    """Slots of a fiber's register file. Whatever does not change during a run is a slot too, filled at its start."""

    def __init__(self) -> None:
        self.initial: list[LaneValue] = []
        self.registers: dict[str, int] = {}
        self.symbols: dict[tuple[str, str], int] = {}  # (space, name)
        self.sregs: dict[str, int] = {}
        self.params: dict[tuple[str, int, int], int] = {}  # (name, byte offset, width in bits)
        self._constants: dict[int, int] = {}

    def slot(self, arg: Arg) -> int:
        if isinstance(arg, Reg):
            return self._in(self.registers, arg.name, UNDEFINED)
        if isinstance(arg, Const):
            if isinstance(arg.value, float):
                return self._new(Unknown("a floating-point constant"))
            return self._in(self._constants, arg.value, arg.value & (1 << 64) - 1 if arg.value < 0 else arg.value)
        if isinstance(arg, Sym):
            return self._in(self.symbols, (arg.space, arg.name), UNDEFINED)
        assert isinstance(arg, SReg)
        return self._in(self.sregs, arg.name, Unknown(f"%{arg.name}"))

    def constant(self, value: int) -> int:
        return self.slot(Const(value))

    def param(self, name: str, offset: int, width: int) -> int:
        return self._in(self.params, (name, offset, width), UNDEFINED)

    def _in(self, table: dict, key: object, value: LaneValue) -> int:  # type: ignore[type-arg]
        found = table.get(key)
        if found is None:
            found = table[key] = self._new(value)
        return int(found)

    def _new(self, value: LaneValue) -> int:
        self.initial.append(value)
        return len(self.initial) - 1
