"""Block-scaled grouped GEMM whose result is quantized, sm_100a/sm_103a/sm_107a.

    D[r, n] = quantize(alpha[e] * S[r, n])

with S as in kernels/grouped.py, which has the warps and all but the activation.

Barriers (mbarriers in shared memory, count = arrivals a phase; kernels/grouped.py says who signals and who waits)
    ab_full[s]      count 1
    ab_empty[s]     count 1
    acc_full        count 1
    acc_empty       count 128
    queue_full[q]   count 1
    queue_empty[q]  count 192
    tmem            count 160
    c_full[i]       count 1    not in use
    c_empty[i]      count 128  not in use
    tmem_peer       count 32   in use where `ctas` is 2

Defects (`build(config, defect)`)
    release-before-load    the release stands before the load of the last shared subtile
    no-wait-ld             `tcgen05.wait::ld` is missing between the load and the release
    no-fence               `tcgen05.fence::before_thread_sync` is missing before the relaxed release
    missing-phase0-wait    the mma warp does not wait for phase 0 of the tmem barrier
    no-peer-handshake      with `ctas` = 2: TMEM is freed before the other CTA has read its part
"""

from collections.abc import Mapping
from typing import Any

from cutlass import cute

from kernels import scaled
from kernels.grouped import GroupedGemm
from kernels.overlap import SUBTILE

NAME = "grouped_gemm_quant"


class GroupedGemmQuant(GroupedGemm):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    def factor(self, factors: cute.Tensor, row: Any, expert: Any) -> Any:
        """alpha of the expert."""
        return factors[expert]

    def activate(self, values: cute.Tensor, c: cute.Tensor | None, factor: Any) -> None:
        """values = alpha * values."""
        for i in range(SUBTILE):
            values[i] = values[i] * factor


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[GroupedGemmQuant, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    GroupedGemmQuant.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)
    return GroupedGemmQuant(config, defect), scaled.fake_arguments(config, config["experts"], with_c=False)
