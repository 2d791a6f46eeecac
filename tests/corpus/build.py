"""Compile the corpus: kernels of other packages, taken from PyPI, as artifact folders. No GPU, no driver.

    python -m tests.corpus.build [NAME...] --out DIR

Each DSL flavour gets one virtual environment and each package a folder of its own, both in the cache folder
(VERIFIER_CORPUS_DIR, default ~/.cache/ptx-sass-verifier/corpus), so that a second run downloads nothing. Nothing of
the packages is stored in this repository.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import msgspec

from tests.corpus.cache import cache_folder

REPOSITORY = Path(__file__).resolve().parent.parent.parent

#: PyTorch for the CPU. On PyPI it is the CUDA build, which would bring gigabytes, so the local version is spelled out.
TORCH = "torch==2.13.0+cpu"
TORCH_HELP = "PyTorch's CPU wheels are on its own index: set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
#: What the corpus scripts and the project's capture import.
SUPPORT = ("msgspec>=0.21,<0.24", "pyelftools>=0.32,<0.34")
#: What the packages import beside PyTorch and the DSL.
LIBRARIES = (
    "apache-tvm-ffi==0.1.15.post2",
    "torch-c-dlpack-ext==0.1.5",
    "einops==0.8.2",
    "triton==3.9.0",
    "cuda-python==13.4.4",
)

#: DSL flavour -> requirement. The flavour decides the embedded assembler: cu12 has ptxas 12.9, cu13 has 13.4.
FLAVOURS = {
    "cu13": "nvidia-cutlass-dsl[cu13]==4.8.1",
    "cu12": "nvidia-cutlass-dsl==4.8.1",
}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the corpus: the script that compiles it, and the distributions it needs (not their dependencies).

    `flavour` is the DSL flavour that it compiles with; with None the script compiles nothing and runs in this Python.
    """

    script: str
    distributions: tuple[str, ...] = ()
    flavour: str | None = "cu13"
    arguments: tuple[str, ...] = ()


_QUACK = "quack-kernels==0.6.5"

ENTRIES: dict[str, Entry] = {
    "nvidia-cudnn-frontend-1.27.0": Entry(script="cudnn_frontend", distributions=("nvidia-cudnn-frontend==1.27.0",)),
    "nvidia-cudnn-frontend-1.28.0": Entry(script="cudnn_frontend", distributions=("nvidia-cudnn-frontend==1.28.0",)),
    "nvidia-cudnn-frontend-1.28.0+ptxas12.9": Entry(
        script="cudnn_frontend", distributions=("nvidia-cudnn-frontend==1.28.0",), flavour="cu12"
    ),
    "nvidia-cudnn-frontend-1.30.0": Entry(script="cudnn_frontend", distributions=("nvidia-cudnn-frontend==1.30.0",)),
    "nvidia-cudnn-frontend-1.31.0": Entry(script="cudnn_frontend", distributions=("nvidia-cudnn-frontend==1.31.0",)),
    "quack-kernels-0.6.5": Entry(script="quack", distributions=(_QUACK,)),
    "quack-kernels-0.6.5+sm_90a": Entry(script="quack", distributions=(_QUACK,), arguments=("--arch", "sm_90a")),
    "quack-kernels-0.6.5+sm_103a": Entry(script="quack", distributions=(_QUACK,), arguments=("--arch", "sm_103a")),
    "flash-attn-4-4.0.0b36": Entry(script="flash_attn", distributions=("flash-attn-4==4.0.0b36", _QUACK)),
    "flashinfer-cubin-0.6.13": Entry(script="flashinfer_cubin", flavour=None),
    "flashinfer-python-0.7.4": Entry(script="flashinfer_tgv", distributions=("flashinfer-python==0.7.4",)),
    "flashinfer-python-0.7.4+nvrtc": Entry(
        script="flashinfer_cuda", distributions=("flashinfer-python==0.7.4",), flavour=None
    ),
    "triton-3.9.0": Entry(script="triton_kernels"),
    "triton-3.9.0+sm_90a": Entry(script="triton_kernels", arguments=("--arch", "sm_90a")),
}


def pip(python: Path, *arguments: str) -> None:
    """Run pip of an environment. Raises CalledProcessError with pip's own message when it fails."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)


def environment(flavour: str, cache: Path) -> Path:
    """Python of the environment with this DSL flavour; it is made the first time."""
    folder = cache / f"python{sys.version_info.major}.{sys.version_info.minor}-{flavour}"
    python = folder / "bin" / "python"
    complete = folder / ".complete"
    wanted = "\n".join((TORCH, FLAVOURS[flavour], *LIBRARIES, *SUPPORT))
    if complete.exists() and complete.read_text() == wanted:
        return python
    print(f"making the environment {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    try:
        pip(python, TORCH)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: pip cannot install {TORCH}\n{error.stderr}\n{TORCH_HELP}") from error
    pip(python, FLAVOURS[flavour], *LIBRARIES, *SUPPORT)
    complete.write_text(wanted)
    return python


def package(python: Path, distribution: str, cache: Path) -> Path:
    """Folder that holds one distribution without its dependencies; it is downloaded the first time."""
    folder = cache / "packages" / distribution.replace("==", "-")
    complete = folder / ".complete"
    if not complete.exists():
        print(f"downloading {distribution}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        pip(python, "--no-deps", "--no-compile", "--target", str(folder), distribution)
        complete.touch()
    return folder


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How one entry ended: artifact folders, failures as their scripts print them, and seconds."""

    folders: int
    failures: tuple[str, ...]
    seconds: float


def build(name: str, out: Path, cache: Path) -> Result:
    """Compile one entry into `out/NAME/`."""
    started = time.perf_counter()
    entry = ENTRIES[name]
    try:
        python = environment(entry.flavour, cache) if entry.flavour else Path(sys.executable)
        folders = [package(python, distribution, cache) for distribution in entry.distributions]
    except subprocess.CalledProcessError as error:
        return Result(folders=0, failures=(f"FAILED {name}: {error.stderr.strip()}",), seconds=0.0)
    target = out / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    search = os.pathsep.join(map(str, (*folders, REPOSITORY)))
    command = [str(python), "-m", f"tests.corpus.{entry.script}", "--out", str(target), *entry.arguments]
    if not entry.flavour:
        # This Python keeps its own packages: the script is told where the files are.
        search = str(REPOSITORY)
        command += [part for folder in folders for part in ("--package", str(folder))]
    log = target / "build.log"
    with log.open("w") as stream:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": search}, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    failures = tuple(line for line in log.read_text(errors="replace").splitlines() if line.startswith("FAILED "))
    if done.returncode and not failures:
        failures = (f"FAILED {name}: exit code {done.returncode}, see {log}",)
    count = sum(1 for _ in target.rglob("*.cubin"))
    return Result(folders=count, failures=failures, seconds=time.perf_counter() - started)


def main() -> int:
    """Build the entries named on the command line, or all of them. The exit status is 1 when something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"(part of) one of: {', '.join(ENTRIES)}; default: all"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one folder an entry")
    options = parser.parse_args()
    names = {given: [name for name in ENTRIES if given in name] for given in options.names}
    if unknown := [given for given, found in names.items() if not found]:
        parser.error(f"no such entry: {', '.join(unknown)}; known: {', '.join(ENTRIES)}")
    cache = cache_folder()
    chosen = [name for name in ENTRIES if not names or any(name in found for found in names.values())]
    results = {}
    for name in chosen:
        result = results[name] = build(name, options.out, cache)
        print(f"{name}: {result.folders} kernels, {len(result.failures)} failed, {result.seconds:.0f} s", flush=True)
        for line in result.failures:
            print(f"  {line}", flush=True)
    total, failed = sum(r.folders for r in results.values()), sum(len(r.failures) for r in results.values())
    print(f"corpus: {len(results)} packages, {total} kernels in {options.out}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
