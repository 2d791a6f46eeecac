"""Files what a package's kernels compile to as artifact folders. Runs inside the environment of the package under test.

A corpus script says `start("distribution")`, then compiles inside `with recorder.kernel("name"): ...`. What the
project's own capture saw inside the block becomes `OUT/name/` (kernel.ptx, kernel.cubin, kernel.mlir, meta.json);
when it saw several modules, `OUT/name-1/`, `OUT/name-2/` and so on.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.corpus import shim
from verifier.compile import toolchain, worker
from verifier.compile.artifacts import Artifacts, Meta, Scalar, write_artifacts
from verifier.compile.capture import Recorder as Capturing
from verifier.compile.elf import assemblers_of, describe_assemblers
from verifier.compile.jobs import Capture
from verifier.compile.messages import parse_log

_EXPERIMENTAL = "CUTE_EXPERIMENTAL_DSL"


class Recorder:
    """Artifact folders of one package's kernels, and what failed."""

    def __init__(self, out: Path, distribution: str, arch: str, only: frozenset[str]) -> None:
        self.distribution = distribution
        self.version = metadata.version(distribution)
        self.arch = arch
        self.filed = 0
        self.failed: list[tuple[str, str]] = []
        self._out = out
        self._only = only
        self._folder = Path(tempfile.mkdtemp(prefix="corpus-"))
        self._capturing: Capturing | None = None

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version of the package."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def install(self) -> None:
        """Tell the DSL to keep its files, put the fake device in place, and start capturing."""
        environment = worker.dsl_environment(self.arch, self._folder, os.environ)
        os.environ.update(environment)
        # The experimental front end of the DSL reads variables of its own.
        os.environ.update({key.replace("CUTE_DSL", _EXPERIMENTAL): value for key, value in environment.items()})
        (self._folder / "keep").mkdir()
        shim.install(self.arch)
        self._capturing = Capturing(self._folder)
        self._capturing.install(skip_launch=True)

    def compile(
        self, name: str, config: Mapping[str, Any], function: Callable[..., object], *args: Any, **more: Any
    ) -> None:
        """Call `function(*args, **config, **more)` and file what it compiles; `config` goes into meta.json.

        What it raises is recorded as a failure and does not spread: one kernel's error must not stop the others.
        """
        if self._capturing is None:
            raise RuntimeError("install() has not run")
        if self._only and name not in self._only:
            return
        started, seen = time.perf_counter(), len(self._capturing.captures)
        try:
            function(*args, **config, **more)
        except Exception as error:
            traceback.print_exc()
            self.failed.append((name, f"{type(error).__name__}: {str(error).strip() or 'no message'}"))
        captures = self._capturing.captures[seen:]
        if not captures and (not self.failed or self.failed[-1][0] != name):
            self.failed.append((name, "nothing was compiled"))
        for number, capture in enumerate(captures, 1):
            self._file(name if len(captures) == 1 else f"{name}-{number}", config, capture)
        print(f"{self.distribution} {name}: {len(captures)} in {time.perf_counter() - started:.1f} s", flush=True)

    def _file(self, name: str, config: Mapping[str, Any], capture: Capture) -> None:
        stem = self._folder / capture.stem
        cubin = stem.with_suffix(".cubin").read_bytes()
        messages, usage = parse_log(capture.log)
        fingerprint = toolchain.Fingerprint(
            assembler=describe_assemblers(assemblers_of(cubin)),
            dsl=toolchain.dsl_version(),
            python=platform.python_version(),
        )
        # A module's main kernel is launched last: helpers prepare its inputs.
        entry, launch = list(capture.launches.items())[-1] if capture.launches else (None, None)
        meta = Meta(
            name=name,
            arch=self.arch,
            entry=entry,
            launch=launch,
            launches=capture.launches,
            source=f"{self.distribution} {self.version}",
            config={key: _scalar(value) for key, value in sorted(config.items())},
            messages=messages,
            usage=usage,
            toolchain=fingerprint,
        )
        mlir = stem.with_suffix(".mlir")
        artifacts = Artifacts(
            meta=meta,
            ptx=stem.with_suffix(".ptx").read_text(),
            cubin=cubin,
            mlir=mlir.read_text() if mlir.exists() else None,
        )
        shutil.rmtree(self._out / name, ignore_errors=True)
        write_artifacts(self._out / name, artifacts)
        self.filed += 1

    def close(self) -> int:
        """Remove the temporary files, print the failures, and return the exit status: 1 when something failed."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, reason in self.failed:
            print(f"FAILED {self.distribution} {self.version} {name}: {' '.join(reason.split())[:300]}", flush=True)
        return 1 if self.failed else 0


def _scalar(value: Any) -> Scalar:
    """A configuration value as meta.json can hold it: a tuple of numbers reads 256x256."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (tuple, list)):
        return "x".join(str(part) for part in value)
    return str(value)


def start(distribution: str) -> Recorder:
    """Read the command line of a corpus script, prepare the process, and return the recorder."""
    parser = argparse.ArgumentParser(description=f"Compile kernels of {distribution} on the CPU.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the artifact folders")
    parser.add_argument("--arch", default="sm_100a", help="target architecture (default: sm_100a)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="kernel to compile (repeatable)")
    options = parser.parse_args()
    recorder = Recorder(options.out, distribution, options.arch, frozenset(options.only))
    recorder.install()
    return recorder
