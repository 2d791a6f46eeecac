"""Tensor maps in global memory, written on the device, a few for each expert.

A kernel of its own writes them, one warp for each expert: it copies a map that the host made into shared memory, puts
in address, extents and strides of that expert's matrix, and moves the map to its slot with `tensormap.cp_fenceproxy`,
which releases it. The kernel that goes through a map runs later in the same stream, and still has to acquire it in each
warp that issues a copy: the start of a kernel orders every proxy but the one that reads tensor maps.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor
from cutlass.tensor_utils.tensormap import TensorMapManager, TensorMapUpdateMode
from cutlass.utils import SmemAllocator

BYTES = 128
WORDS = BYTES // 8  # of 64 bits, the unit of the workspace
MANAGER = TensorMapManager(TensorMapUpdateMode.SMEM, BYTES)


@dataclass(frozen=True)
class MapSlots:
    """A workspace with `count` maps for each expert."""

    workspace: cute.Tensor  # 64-bit words
    count: int

    def slot(self, expert: Any, number: Any) -> cute.Pointer:
        """Where a map is, as `tensormap.cp_fenceproxy` takes it."""
        return MANAGER.get_tensormap_ptr(self._address(expert, number))

    def map(self, expert: Any, number: Any) -> cute.Pointer:
        """Where a map is, as bulk tensor copies and the acquire take it."""
        return MANAGER.get_tensormap_ptr(self._address(expert, number), cute.AddressSpace.generic)

    def _address(self, expert: Any, number: Any) -> cute.Pointer:
        return self.workspace.iterator + (expert * self.count + number) * WORDS

    @cute.jit
    def write(self, expert: Any, updates: tuple[tuple[int, cute.CopyAtom, cute.Tensor], ...]) -> None:
        """Writes and releases maps of one expert: (number, copy atom with the pattern, matrix). One warp."""
        room = SmemAllocator().allocate_tensor(cutlass.Int64, cute.make_layout((WORDS, self.count)), BYTES)
        with cute.arch.elect_one():
            for number, atom, _ in updates:
                cpasync.copy_tensormap(atom, room[(None, number)].iterator)
        cute.arch.sync_warp()
        for number, atom, matrix in updates:
            cpasync.update_tma_descriptor(atom, matrix, room[(None, number)].iterator)
        cute.arch.sync_warp()
        for number, _, _ in updates:
            cpasync.cp_fence_tma_desc_release(self.slot(expert, number), room[(None, number)].iterator)


@dataclass(frozen=True)
class Experts:
    """What the device alone knows: where the tokens of each expert end, and the tensor maps."""

    ends: cute.Tensor
    maps: MapSlots


def part(x: cute.Tensor, first: Any, last: Any) -> cute.Tensor:
    """Tokens [first, last) of a ragged input; one where there are none, as a map cannot be empty."""
    features, _, one = x.shape
    layout = cute.make_layout((features, cutlass.max(last - first, 1), one), stride=x.stride)
    return cute.make_tensor(x.iterator + first * features, layout)


@cute.jit
def tokens(ends: cute.Tensor, expert: Any) -> tuple[Any, Any]:
    """First token of an expert and the one after its last, in a ragged input."""
    first = cutlass.Int32(0)
    if expert > 0:
        first = ends[expert - 1]
    return first, ends[expert]


def fake_workspace(experts: int, count: int) -> Any:
    """Room for `count` maps of each expert, to compile for."""
    return make_fake_compact_tensor(cutlass.Int64, (experts * count * WORDS,), assumed_align=BYTES)
