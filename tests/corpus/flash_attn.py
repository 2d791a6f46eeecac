"""Forward and backward kernels of the PyPI package `flash-attn-4`, compiled through its interface.

Run inside a virtual environment that has the package, `quack-kernels`, PyTorch (CPU build) and the CuTe DSL;
`build.py` does.
"""

from __future__ import annotations

from typing import Any

from tests.corpus.recorder import Recorder, start

#: Batch, sequence length, query heads, key/value heads. The kernels are compiled with symbolic extents.
BATCH, LENGTH, HEADS, GROUPS = 2, 512, 8, 2


def _qkv(torch: Any, width: int, value_width: int | None = None, groups: int = HEADS) -> tuple[Any, Any, Any]:
    """Query, key and value of one head width."""

    def tensor(heads: int, columns: int) -> Any:
        return torch.empty((BATCH, LENGTH, heads, columns), dtype=torch.bfloat16, device="cuda")

    return tensor(HEADS, width), tensor(groups, width), tensor(groups, value_width or width)


def _forward(recorder: Recorder) -> None:
    """Attention forward: head widths, causal mask, grouped heads, local window, split keys, ragged batches."""
    import torch
    from flash_attn.cute.interface import _flash_attn_fwd as forward

    variants: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "forward-128": ((128,), {}),
        "forward-128-causal": ((128,), {"causal": True}),
        "forward-64-causal": ((64,), {"causal": True}),
        "forward-128-grouped": ((128, None, GROUPS), {"causal": True}),
        "forward-128-window": ((128,), {"window_size_left": 128, "window_size_right": 0}),
        "forward-128-split": ((128,), {"num_splits": 2}),
        "forward-192x128": ((192, 128), {"causal": True}),
        "forward-256": ((256,), {}),
        "forward-256-causal": ((256,), {"causal": True}),
    }
    for name, (shape, config) in variants.items():
        recorder.compile(name, config, forward, *_qkv(torch, *shape))
    offsets = torch.arange(BATCH + 1, dtype=torch.int32) * LENGTH
    ragged = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets, "max_seqlen_q": LENGTH, "max_seqlen_k": LENGTH}
    flat = (tensor.flatten(0, 1) for tensor in _qkv(torch, 128))
    recorder.compile("forward-128-ragged", {"causal": True}, forward, *flat, **ragged)


def _backward(recorder: Recorder) -> None:
    """Attention backward; its preprocessing and postprocessing kernels come along, one folder each."""
    import torch
    from flash_attn.cute.interface import _flash_attn_bwd as backward

    for name, width, config in (
        ("backward-128", 128, {}),
        ("backward-128-causal", 128, {"causal": True}),
        ("backward-64", 64, {}),
        ("backward-256", 256, {}),
    ):
        q, k, v = _qkv(torch, width)
        lse = torch.empty((BATCH, HEADS, LENGTH), dtype=torch.float32, device="cuda")
        recorder.compile(name, config, backward, q, k, v, torch.empty_like(q), torch.empty_like(q), lse)


def main() -> int:
    """Compile everything for the architecture asked for; the exit status is 1 when something failed."""
    recorder = start("flash-attn-4")
    _forward(recorder)
    _backward(recorder)
    return recorder.close()


if __name__ == "__main__":
    raise SystemExit(main())
