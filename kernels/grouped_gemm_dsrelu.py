"""Block-scaled grouped GEMM with the derivative of squared ReLU, as the backward pass of an expert uses it.

    D[r, n] = quantize(probability[r] * 2 * max(C[r, n], 0) * S[r, n])

for sm_100a/sm_103a, with C in bf16 from the forward pass, and S as in kernels/grouped.py, which has the warps and all
but the activation.

Barriers (mbarriers in shared memory, count = arrivals a phase; kernels/grouped.py says who signals and who waits)
    ab_full[s]      count 1
    ab_empty[s]     count 1
    acc_full        count 1
    acc_empty       count 128
    queue_full[q]   count 1
    queue_empty[q]  count 224
    tmem            count 160
    c_full[i]       count 1    c load: arrive.expect_tx + bytes of one load     epilogue waits
    c_empty[i]      count 128  epilogue: every thread, after it read its row    c load waits, and drains all
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

NAME = "grouped_gemm_dsrelu"


class GroupedGemmDsrelu(GroupedGemm):
    """The kernel for one configuration; `defect` names the reported bug to build in, None builds the good kernel."""

    reads_c = True

    def activate(self, values: cute.Tensor, c: cute.Tensor, factor: Any) -> None:
        """values = probability * 2 * max(c, 0) * values."""
        for i in range(SUBTILE):
            values[i] = values[i] * (2.0 * cute.arch.fmax(c[i], 0.0)) * factor


def build(config: Mapping[str, Any], defect: str | None = None) -> tuple[GroupedGemmDsrelu, tuple[Any, ...]]:
    """The kernel and the arguments to compile it with: `cute.compile(kernel, *arguments)`."""
    GroupedGemmDsrelu.kernel.set_name_prefix(NAME, remove_cutlass_symbol=True, keep_mangled_name=False)
    return GroupedGemmDsrelu(config, defect), scaled.fake_arguments(config, config["rows"], with_c=True)
