"""Block-scaled grouped GEMM with squared ReLU, quantized, as the forward pass of an expert uses it, sm_100a/sm_103a.

    C[r, n] = S[r, n]                                     bf16, kept for the backward pass
    D[r, n] = quantize(probability[r] * max(C[r, n], 0)^2)

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
"""

from collections.abc import Mapping
from typing import Any

from cutlass import cute

from kernels import scaled
from kernels.grouped import GroupedGemm
from kernels.overlap import SUBTILE

NAME = "grouped_gemm_srelu"


class GroupedGemmSrelu(GroupedGemm):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    writes_c = True

    def activate(self, values: cute.Tensor, c: cute.Tensor, factor: Any) -> None:
        """c = values; values = probability * max(values, 0)^2."""
        for i in range(SUBTILE):
            c[i] = values[i]
            positive = cute.arch.fmax(values[i], 0.0)
            values[i] = positive * positive * factor


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[GroupedGemmSrelu, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    GroupedGemmSrelu.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)
    return GroupedGemmSrelu(config, defect), scaled.fake_arguments(config, config["rows"], with_c=True)
