"""Launch shapes that a command line gives: refused where no hardware or no kernel allows them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from verifier.errors import ConfigError
from verifier.launch import Dim3

if TYPE_CHECKING:
    from verifier.cli.parts import LoadOptions
    from verifier.model.program import Function

# CUDA C++ Programming Guide, "Compute Capabilities: Technical Specifications". Clusters of more than 8 CTAs are not
# portable; 16 is what today's hardware gives to a kernel that asks for it.
MAX_THREADS = 1024
MAX_Z = 64
MAX_CLUSTER = 16


def block_problem(block: Dim3) -> str:
    """Why no launch can have this block; "" when one can."""
    if prod(block) > MAX_THREADS:
        return f"a CTA has at most {MAX_THREADS} threads, not {prod(block)}"
    return f"a CTA has at most {MAX_Z} threads along z" if block[2] > MAX_Z else ""


def cluster_problem(cluster: Dim3) -> str:
    """Why no launch can have this cluster; "" when one can."""
    return f"a cluster has at most {MAX_CLUSTER} CTAs, not {prod(cluster)}" if prod(cluster) > MAX_CLUSTER else ""


def check_shapes(functions: Iterable[Function], options: LoadOptions, source: str) -> None:
    """Raise `ConfigError` where the command line contradicts what a kernel says of its launch."""
    for function in functions:
        for problem in _contradictions(function, options):
            raise ConfigError(
                f"{problem} of kernel {function.name}", where=source, do="leave the option away, or give what it says"
            )


def _contradictions(function: Function, options: LoadOptions) -> Iterable[str]:
    block, cluster = options.block, options.cluster
    if block and function.block and block != function.block:
        yield f"--block {_text(block)} contradicts .reqntid {_text(function.block)}"
    if block and function.max_block and prod(block) > prod(function.max_block):
        yield f"--block {_text(block)} is more than .maxntid {_text(function.max_block)}"
    if cluster and function.cluster and cluster != function.cluster:
        yield f"--cluster {_text(cluster)} contradicts .reqnctapercluster {_text(function.cluster)}"


def _text(shape: Dim3) -> str:
    return ",".join(map(str, shape))
