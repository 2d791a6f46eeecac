"""Runs the packed Hopper kernels on a GPU: correctness against fp32 PyTorch, and the cost of each way to wait.

    python benchmarks/hardware/run.py correct FOLDER [--runs 100]
    python benchmarks/hardware/run.py time FOLDER [--rounds 60]
    python benchmarks/hardware/run.py once FOLDER/NAME          (for compute-sanitizer)

FOLDER is what pack.py wrote. Needs torch and the CUDA driver, nothing of this project but launch.py. Each answer is one
JSON object a line on stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from launch import Kernel, gemm_persistent, reference, splitk_mailbox

POISON = float("nan")
ABSOLUTE, RELATIVE = 0.5, 0.02  # bf16 results of sums over thousands of products of normal numbers
INNER = 20  # launches between two events


class Bench:
    """One kernel with its tensors."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.kernel = Kernel(folder)
        config = self.kernel.config
        m, n, k = config["m"], config["n"], config["k"]
        self.a = torch.empty(m, k, device="cuda", dtype=torch.bfloat16)
        self.b = torch.empty(n, k, device="cuda", dtype=torch.bfloat16)
        self.c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        self.table = _table(config["table"]) if config.get("table") else None
        self.launch: Callable[[], None] = (
            splitk_mailbox(self.kernel, self.a, self.b, self.c, self.table)
            if "split_k" in config
            else gemm_persistent(self.kernel, self.a, self.b, self.c)
        )

    def fill(self, seed: int) -> None:
        """Fresh inputs and a poisoned output. With a table, products stay within its range."""
        generator = torch.Generator("cuda").manual_seed(seed)
        scale = 1.0 if self.table is None else self.a.shape[1] ** -0.25
        for tensor in (self.a, self.b):
            tensor.copy_(torch.randn(tensor.shape, generator=generator, device="cuda") * scale)
        self.c.fill_(POISON)

    def wrong(self) -> int:
        """Elements of the output that are not finite or off by more than the tolerance."""
        expected = reference(self.a, self.b, self.table)
        got = self.c.float()
        bound = ABSOLUTE + RELATIVE * expected.abs() if self.table is None else 0.05 + RELATIVE * expected.abs()
        return int((~torch.isfinite(got) | ((got - expected).abs() > bound)).sum())


def _table(entries: int) -> torch.Tensor:
    x = torch.linspace(-8, 8, entries, device="cuda")
    return x * torch.sigmoid(x)


def correct(folder: Path, runs: int) -> None:
    """Every kernel in a process of its own: a defect may fault, and a fault ends the context."""
    for path in _kernels(folder):
        command = [sys.executable, __file__, "one", str(path), "--runs", str(runs)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            lines = [line for line in done.stdout.splitlines() if '"kernel"' in line]
            error = done.stderr.strip().splitlines()
            answer = lines[-1] if lines else json.dumps({"kernel": path.name, "error": _cuda_error(error)})
        except subprocess.TimeoutExpired:
            answer = json.dumps({"kernel": path.name, "error": "did not end within 120 s"})
        print(answer, flush=True)


def _cuda_error(lines: list[str]) -> str:
    return next((line for line in lines if "CUDA error" in line), lines[-1] if lines else "no output")


def _kernels(folder: Path) -> list[Path]:
    return sorted(p.parent for p in folder.glob("*/meta.json"))


def one(folder: Path, runs: int) -> None:
    bench = Bench(folder)
    wrong_runs, wrong_elements = 0, 0
    for seed in range(runs):
        bench.fill(seed)
        bench.launch()
        torch.cuda.synchronize()
        wrong = bench.wrong()
        wrong_runs += wrong > 0
        wrong_elements += wrong
    answer = {"kernel": bench.name, "runs": runs, "wrong_runs": wrong_runs, "wrong": wrong_elements}
    print(json.dumps(answer), flush=True)


def microseconds(bench: Bench) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(INNER):
        bench.launch()
    stop.record()
    stop.synchronize()
    return 1000 * start.elapsed_time(stop) / INNER


TIMED = ("", ".cta-scope-wait", ".acquire-cluster-wait")  # the variants that compute the right result


def time(folder: Path, rounds: int) -> None:
    """The right variants of every kernel in turn, so that drift hits them alike; ratios are taken per round."""
    benches = [Bench(path) for path in _kernels(folder) if path.name.removeprefix(path.name.split(".")[0]) in TIMED]
    for bench in benches:
        bench.fill(0)
        microseconds(bench)
    samples: dict[str, list[float]] = {bench.name: [] for bench in benches}
    for turn in range(rounds):
        for bench in benches[turn % len(benches) :] + benches[: turn % len(benches)]:
            samples[bench.name].append(microseconds(bench))
    for bench in benches:
        base = samples[bench.name.partition(".")[0]]
        own = samples[bench.name]
        ratios = sorted(x / y for x, y in zip(own, base, strict=True))
        answer = {
            "kernel": bench.name,
            "rounds": rounds,
            "median_us": round(statistics.median(own), 2),
            "min_us": round(min(own), 2),
            "ratio": round(statistics.median(ratios), 4),
            "ratio_p10": round(ratios[len(ratios) // 10], 4),
            "ratio_p90": round(ratios[len(ratios) * 9 // 10], 4),
        }
        print(json.dumps(answer), flush=True)


def once(folder: Path) -> None:
    bench = Bench(folder)
    bench.fill(0)
    bench.launch()
    torch.cuda.synchronize()
    print(json.dumps({"kernel": bench.name, "wrong": bench.wrong()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["correct", "one", "time", "once"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    props = torch.cuda.get_device_properties(0)
    print(
        json.dumps({"device": props.name, "sms": props.multi_processor_count, "torch": torch.__version__}), flush=True
    )
    if options.what == "correct":
        correct(options.folder, options.runs)
    elif options.what == "one":
        one(options.folder, options.runs)
    elif options.what == "time":
        time(options.folder, options.rounds)
    else:
        once(options.folder)


if __name__ == "__main__":
    main()
