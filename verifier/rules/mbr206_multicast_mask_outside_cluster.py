"""A multicast names a CTA that the cluster does not have.

What
    The mask of a multicast copy or commit has no bit set beyond the number of CTAs of the cluster.

Why
    The signal goes to a CTA that does not exist: the launch faults, or the barrier of the CTA that was meant never
    completes.

ISA
    PTX ISA 9.4, 9.7.10.28 "cp.async.bulk ... .multicast::cluster" and 9.7.18.12.1 "tcgen05.commit": each bit of the
    mask is the %cluster_ctarank of a destination CTA.

Bad
    ```ptx
    cluster 2
    warp 0:
    mov.b16 mask, 7;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], mask; // MBR206
    ```

Good
    ```ptx
    cluster 2
    warp 0:
    mov.b16 mask, 3;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], mask;
    ```

Limits
    Needs the size of the cluster: from the PTX, the launch facts or --cluster. A mask that does not fold to a number
    for a CTA's rank is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from verifier.analyses.facts import KernelFacts
from verifier.config import Policy
from verifier.findings import Hazard, Judgement, Severity
from verifier.model.events import Event
from verifier.model.kernel import KernelModel
from verifier.model.streams import Stream
from verifier.rules.registry import rule
from verifier.rules.support import proved, step, unknown, violated

_FIX = "build the mask from the ranks of this cluster only"


@rule(code="MBR206", name="multicast-mask-outside-cluster", hazard=Hazard.CONTRACT, since="0.1.0")
def check(kernel: KernelFacts, policy: Policy) -> Iterator[Judgement]:
    model = kernel.ptx
    assert model is not None
    for stream in model.streams:
        for event in kernel.flow(model, stream).select(lambda e: e.mask is not None):
            yield _judge(model, stream, event)


def _judge(model: KernelModel, stream: Stream, event: Event) -> Judgement:
    assert event.mask is not None
    masks = [stream.value(event.instr, event.mask, evaluator).constant for evaluator in stream.by_rank]
    if model.shape.cluster is None:
        return unknown(model, stream, event, "the size of the cluster is not known (--cluster)")
    x, y, z = model.shape.cluster
    size = x * y * z
    if any(mask is None for mask in masks):
        return unknown(model, stream, event, "the mask does not fold to a number")
    wrong = next((mask for mask in masks if mask is not None and mask >> size), None)
    if wrong is None:
        return proved(model, stream, event, f"every bit names one of {size} CTAs")
    witness = (step(model, stream, event, f"mask {wrong:#b} has a bit beyond the {size} CTAs of the cluster"),)
    message = f"{model.role_of(stream)} multicasts to a CTA that the cluster of {size} does not have"
    return violated(model, stream, event, message, severity=Severity.ERROR, witness=witness, fix=_FIX)
