"""The kernels that `verifier verify` compiles: configuration, architectures, and the defects each can be built with.

This module imports neither the DSL nor a kernel, so that listing and selecting cost nothing, and no kernel imports it,
so that a new case leaves the others as they are. A kernel module offers
`build(config, defect) -> (kernel, arguments)`; compiling it means `cute.compile(kernel, *arguments)`.

To add a kernel: one file in this folder, one `KernelCase` in `CASES`. To add a defect: one `Defect` here, the branch
in the kernel, and `# defect: NAME` at the end of the line where a finding about it belongs.
"""

from __future__ import annotations

import dataclasses

from kernels.cases import Defect as Defect
from kernels.cases import KernelCase as KernelCase
from kernels.cases import marked as marked
from kernels.cases import settings
from verifier.errors import ConfigError

HOPPER = ("sm_90a",)
BLACKWELL = ("sm_100a", "sm_103a")


def case(name: str) -> KernelCase:
    """The case of this name; ConfigError when there is none."""
    for known in CASES:
        if known.name == name:
            return known
    raise ConfigError(f"unknown kernel {name!r}", do=f"known kernels: {', '.join(known.name for known in CASES)}")


# Eight tokens; the weights of a projection of the latent keys and values of attention.
TGV = settings(m=8, n=2624, k=6144, tile_m=128, tile_n=16, tile_k=128, stages=6, split_k=2)

GROUPED = settings(
    rows=8192,
    n=4096,
    k=2048,
    experts=8,
    tile_m=128,
    tile_n=256,
    tile_k=128,
    stages=4,
    store_buffers=2,
    max_ctas=148,
    ctas=1,
)

WGRAD = settings(
    m=1024,
    n=2048,
    tokens=8192,
    experts=8,
    ragged=True,
    discrete=True,
    tile_m=128,
    tile_n=128,
    tile_k=64,
    stages=5,
    store_buffers=2,
    max_ctas=148,
    scaled=False,
    accumulate=False,
)

MOE = settings(
    tokens=1024,
    experts=32,
    rows=12288,
    n=512,
    k=6144,
    tile_m=128,
    tile_n=128,
    tile_k=64,
    stages=6,
    store_buffers=2,
    max_ctas=148,
)

HOPPER_SPLITK = settings(
    m=2048, n=4096, k=2048, tile_m=128, tile_n=128, tile_k=64, stages=4, split_k=4, max_clusters=33, table=0
)

CTA_SCOPE_DEFECT = Defect(
    "cta-scope-wait", "SCP301", "acquires the peers' partial sums at CTA scope", "kernels.mailbox"
)
NOT_RETRIED_DEFECT = Defect(
    "wait-not-retried",
    "MBR201",
    "reads the mailbox after one attempt that may have failed",
    "kernels.mailbox",
    also=("MEM401",),
)
MAILBOX_DEFECTS = (CTA_SCOPE_DEFECT, NOT_RETRIED_DEFECT)
# Clusters that go from tile to tile without having waited also get the phases of the next tile wrong.
HOPPER_MAILBOX_DEFECTS = (CTA_SCOPE_DEFECT, dataclasses.replace(NOT_RETRIED_DEFECT, also=("MBR203", "CTL703")))
# Only a mailbox of several slots is waited for in a loop, where the cost counts.
HOT_WAIT_DEFECT = Defect(
    "acquire-cluster-wait", "PRF601", "invalidates L1 on each attempt of the mailbox wait", "kernels.mailbox"
)

STORE_FENCE_DEFECT = Defect("no-proxy-fence", "PRX402", "stores rows that the async proxy may not see yet")
SPLITK_STORE_DEFECT = dataclasses.replace(STORE_FENCE_DEFECT, module="kernels.splitk")
OVERLAP_DEFECTS = (
    Defect(
        "release-before-load",
        "TCG103",
        "releases the accumulator before it reads the last shared subtile",
        "kernels.overlap",
    ),
    Defect(
        "no-wait-ld",
        "TCG101",
        "releases the accumulator while the TMEM load may be in flight",
        "kernels.overlap",
        also=("SAS801",),
    ),
    Defect(
        "no-fence", "TCG102", "releases the accumulator by a relaxed arrive without a tcgen05 fence", "kernels.overlap"
    ),
)
STORES_DEFECTS = (
    Defect("no-drain", "TMA501", "leaves the kernel while its last stores read shared memory", "kernels.stores"),
    Defect(
        "late-store-wait",
        "TMA502",
        "rewrites a buffer that a store may still read",
        "kernels.stores",
        also=("MEM401",),
    ),
    dataclasses.replace(STORE_FENCE_DEFECT, module="kernels.stores"),
)
GATHER_DEFECT = Defect(
    "no-gather-fence",
    "PRX402",
    "multiplies gathered rows that the async proxy may not see yet",
    "kernels.tensor_core",
)
PHASE0_DEFECT = Defect(
    "missing-phase0-wait",
    "MBR202",
    "frees TMEM after a wait that may return for the phase before",
    "kernels.tmem",
    also=("TCG104",),
)
PEER_DEFECT = Defect(
    "no-peer-handshake", "TCG104", "frees TMEM that the other CTA of the pair may still read", "kernels.tmem"
)

ACQUIRE_DEFECTS = (
    Defect("no-acquire", "PRX401", "loads through maps that no warp has acquired", "kernels.ring"),
    Defect("acquire-in-one-warp", "PRX401", "loads through a map that another warp has acquired", "kernels.ring"),
    Defect(
        "acquire-wrong-slot",
        "PRX401",
        "loads through a map beside the one that was acquired",
        "kernels.ring",
        also=("PRF608",),  # what it acquires, it does not go through
    ),
    Defect("acquire-every-tile", "PRF608", "acquires a map again for each tile of its expert", "kernels.expert_inputs"),
)
SCALE_ACQUIRE_DEFECT = Defect(
    "no-scale-acquire", "PRX401", "loads scale factors through a map that was not acquired", "kernels.ring"
)
STORE_ACQUIRE_DEFECT = Defect(
    "no-store-acquire", "PRX401", "stores through a map that was not acquired", "kernels.stores"
)

CASES: tuple[KernelCase, ...] = (
    KernelCase(
        name="gemm_persistent",
        module="kernels.gemm_persistent",
        config=settings(
            m=8192,
            n=8192,
            k=4096,
            tile_m=128,
            tile_n=256,
            tile_k=64,
            stages=4,
            store_buffers=2,
            reserved_columns=48,
            max_ctas=148,
        ),
        archs=BLACKWELL,
        defects=(
            *OVERLAP_DEFECTS,
            *STORES_DEFECTS,
        ),
    ),
    KernelCase(
        name="gemm_splitk_mailbox",
        module="kernels.gemm_splitk_mailbox",
        # Nine K tiles on four ranks: three ranks take three each, the last rank takes none.
        config=settings(m=256, n=7168, k=576, tile_m=128, tile_n=128, tile_k=64, stages=4, split_k=4),
        archs=BLACKWELL,
        defects=(
            *MAILBOX_DEFECTS,
            HOT_WAIT_DEFECT,
            PHASE0_DEFECT,
            SPLITK_STORE_DEFECT,
        ),
    ),
    KernelCase(
        name="hopper_gemm_persistent",
        module="kernels.hopper_gemm_persistent",
        config=settings(
            m=8192, n=8192, k=4096, tile_m=128, tile_n=256, tile_k=64, stages=4, store_buffers=2, max_ctas=132
        ),
        archs=HOPPER,
        defects=(*(dataclasses.replace(defect, module="") for defect in STORES_DEFECTS),),
    ),
    KernelCase(
        name="hopper_splitk_mailbox",
        module="kernels.hopper_splitk_mailbox",
        config=HOPPER_SPLITK,
        archs=HOPPER,
        defects=(
            *HOPPER_MAILBOX_DEFECTS,
            HOT_WAIT_DEFECT,
            STORE_FENCE_DEFECT,
        ),
    ),
    KernelCase(
        name="hopper_splitk_mailbox_table",
        module="kernels.hopper_splitk_mailbox",
        config=settings(HOPPER_SPLITK, table=4096),
        archs=HOPPER,
        defects=(*HOPPER_MAILBOX_DEFECTS, HOT_WAIT_DEFECT),
    ),
    KernelCase(
        name="tgv_gemm",
        module="kernels.tgv_gemm",
        config=TGV,
        archs=BLACKWELL,
        defects=(
            PHASE0_DEFECT,
            *MAILBOX_DEFECTS,
            Defect("early-weights", "PDL801", "loads weights that the kernel before may still write", "kernels.ring"),
        ),
    ),
    KernelCase(
        name="tgv_gemm_one_rank",
        module="kernels.tgv_gemm",
        config=settings(TGV, n=6144, k=4096, split_k=1),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT,),
    ),
    KernelCase(
        name="tgv_gemm_empty_rank",
        module="kernels.tgv_gemm",
        config=settings(TGV, k=128),  # one K tile: none is left for the second rank
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT,),
    ),
    KernelCase(
        name="splitk_projection",
        module="kernels.splitk_projection",
        config=settings(m=64, n=4096, k=2048, tile_m=128, tile_n=64, tile_k=64, stages=6, split_k=2),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT, *MAILBOX_DEFECTS, STORE_FENCE_DEFECT),
    ),
    KernelCase(
        name="shared_splitk",
        module="kernels.shared_splitk",
        config=settings(m=128, n=512, k=6144, tile_m=128, tile_n=128, tile_k=64, stages=4, split_k=4, swiglu=True),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT, *MAILBOX_DEFECTS, HOT_WAIT_DEFECT, SPLITK_STORE_DEFECT),
    ),
    KernelCase(
        name="shared_splitk_down",
        module="kernels.shared_splitk",
        config=settings(m=128, n=6144, k=512, tile_m=128, tile_n=128, tile_k=64, stages=4, split_k=2, swiglu=False),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT,),
    ),
    KernelCase(
        name="indexer_preproj",
        module="kernels.indexer_preproj",
        config=settings(
            m=64, n=160, k=6144, tile_m=128, tile_n=160, tile_k=32, stages=4, split_k=8, time_limit_ns=1_000_000
        ),
        archs=BLACKWELL,
        defects=(
            PHASE0_DEFECT,
            CTA_SCOPE_DEFECT,
            HOT_WAIT_DEFECT,
            Defect(
                "time-limit-trusted",
                "MBR201",
                "takes an attempt that gave up for a completed wait",
                "kernels.mailbox",
                also=("MEM401",),
            ),
        ),
    ),
    KernelCase(
        name="moe_gg1",
        module="kernels.moe_gg1",
        config=MOE,
        archs=BLACKWELL,
        defects=(*STORES_DEFECTS, GATHER_DEFECT, PHASE0_DEFECT),
    ),
    KernelCase(
        name="moe_gg1_nvfp4",
        module="kernels.moe_gg1_nvfp4",
        config=settings(MOE, tile_k=256),
        archs=BLACKWELL,
        defects=(STORES_DEFECTS[0], dataclasses.replace(GATHER_DEFECT, module="kernels.scaled"), PHASE0_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_quant",
        module="kernels.grouped_gemm_quant",
        config=GROUPED,
        archs=(*BLACKWELL, "sm_107a"),
        defects=(*OVERLAP_DEFECTS, PHASE0_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_srelu",
        module="kernels.grouped_gemm_srelu",
        config=GROUPED,
        archs=BLACKWELL,
        defects=(*OVERLAP_DEFECTS, PHASE0_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_dsrelu",
        module="kernels.grouped_gemm_dsrelu",
        config=GROUPED,
        archs=BLACKWELL,
        defects=(*OVERLAP_DEFECTS, PHASE0_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_quant_pair",
        module="kernels.grouped_gemm_quant",
        config=settings(GROUPED, tile_m=256, ctas=2),
        archs=BLACKWELL,
        defects=(*OVERLAP_DEFECTS, PHASE0_DEFECT, PEER_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_wgrad",
        module="kernels.grouped_gemm_wgrad",
        config=WGRAD,
        archs=BLACKWELL,
        defects=(*ACQUIRE_DEFECTS, STORE_ACQUIRE_DEFECT, PHASE0_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_wgrad_ragged",
        module="kernels.grouped_gemm_wgrad",
        config=settings(WGRAD, discrete=False),
        archs=BLACKWELL,
        defects=ACQUIRE_DEFECTS,
    ),
    KernelCase(
        name="grouped_gemm_wgrad_discrete",
        module="kernels.grouped_gemm_wgrad",
        config=settings(WGRAD, tokens=1024, ragged=False),
        archs=BLACKWELL,
        defects=(STORE_ACQUIRE_DEFECT,),
    ),
    KernelCase(
        name="grouped_gemm_wgrad_dense",
        module="kernels.grouped_gemm_wgrad",
        config=settings(WGRAD, tokens=1024, ragged=False, discrete=False),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT,),
    ),
    KernelCase(
        name="grouped_gemm_wgrad_scaled",
        module="kernels.grouped_gemm_wgrad",
        config=settings(WGRAD, tile_k=128, scaled=True, accumulate=True),
        archs=BLACKWELL,
        defects=(*ACQUIRE_DEFECTS, SCALE_ACQUIRE_DEFECT, STORE_ACQUIRE_DEFECT),
    ),
    KernelCase(
        name="grouped_gemm_wgrad_scaled_dense",
        module="kernels.grouped_gemm_wgrad",
        config=settings(WGRAD, tokens=1024, ragged=False, discrete=False, tile_k=128, scaled=True),
        archs=BLACKWELL,
        defects=(PHASE0_DEFECT,),
    ),
)
