"""The toolchains of the matrix: a DSL in an environment of its own, an assembler from a wheel of its own.

Both are made once, below the artifact store, under a name that is the digest of what was asked for. A half-made one,
left by a process that was killed, has no marker and is made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from verifier.compile.process import Limits, run_limited
from verifier.compile.toolchain import Fingerprint, Tool, current_fingerprint, tool_at
from verifier.errors import ToolchainError
from verifier.nightly.settings import ToolchainSettings

Note = Callable[[str], None]
_MARKER = "complete.json"
_LIMITS = Limits(seconds=3600.0, memory=16 << 30)
_DESCRIBE = """
import importlib.metadata, json, platform
found = sorted(f"{d.name.lower()}=={d.version}" for d in importlib.metadata.distributions())
print(json.dumps({"packages": found, "python": platform.python_version()}))
"""
# Packages that take part in a compile; the rest of an environment decides nothing.
_DECISIVE = ("nvidia-", "cuda-")


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """One column, ready for use. `python` None: the one that runs the verifier. `ptxas` None: the DSL's own assembler.

    `packages` is everything that decides what it compiles. `error` says why it cannot be used, "" if it can.
    """

    name: str
    python: str | None = None
    fingerprint: Fingerprint = Fingerprint()
    ptxas: Tool | None = None
    packages: tuple[str, ...] = ()
    error: str = ""

    @property
    def description(self) -> dict[str, str]:
        """What the history remembers of it."""
        facts = {
            "dsl": self.fingerprint.dsl or "",
            "ptxas": self.ptxas.version if self.ptxas else "of the DSL",
            "python": self.fingerprint.python or "",
            "packages": " ".join(self.packages),
        }
        return {key: value for key, value in facts.items() if value}


def prepare(name: str, wanted: ToolchainSettings, root: Path, note: Note) -> Toolchain:
    """Make what a column needs. What cannot be made becomes the `error` of the toolchain."""
    try:
        here = current_fingerprint()
        python, fingerprint, packages = None, here, _installed()
        if wanted.dsl:
            python, packages, version = _environment(wanted.dsl, root, note)
            dsl = _dsl_version(packages)
            fingerprint = msgspec.structs.replace(here, dsl=dsl, python=version, nvjitlink=None, nvrtc=None)
        ptxas = _assembler(wanted.ptxas, root, note) if wanted.ptxas else None
    except ToolchainError as error:
        return Toolchain(name=name, error=str(error))
    path = str(python) if python else None
    return Toolchain(name=name, python=path, fingerprint=fingerprint, ptxas=ptxas, packages=packages)


def _environment(wanted: Sequence[str], root: Path, note: Note) -> tuple[Path, tuple[str, ...], str]:
    """(its Python, its packages, its Python's version)"""
    packages = (*wanted, f"msgspec=={msgspec.__version__}")

    def make(folder: Path) -> None:
        note(f"installing {', '.join(wanted)} into an environment of its own")
        _run([sys.executable, "-m", "venv", str(folder)], "an environment cannot be created")
        _run([str(folder / "bin" / "python"), *_PIP, *packages], f"{', '.join(wanted)} cannot be installed")

    folder = _made(root / "environments", (*packages, platform.python_version()), make)
    python = folder / "bin" / "python"
    told = json.loads(_run([str(python), "-c", _DESCRIBE], "an environment does not answer"))
    return python, _decisive(told["packages"]), told["python"]


def _assembler(wheel: str, root: Path, note: Note) -> Tool:
    def make(folder: Path) -> None:
        note(f"installing {wheel}")
        command = [sys.executable, *_PIP, "--no-deps", "--target", str(folder), wheel]
        _run(command, f"{wheel} cannot be installed")

    folder = _made(root / "assemblers", (wheel,), make)
    found = sorted(folder.glob("nvidia/**/bin/ptxas"))
    if not found:
        raise ToolchainError(f"{wheel} holds no ptxas", do="name a wheel like nvidia-cuda-nvcc==13.5.37")
    return tool_at("ptxas", found[0], "wheel")


_PIP = ("-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")


def _made(parent: Path, wanted: Sequence[str], make: Callable[[Path], None]) -> Path:
    folder = parent / hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:20]
    parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not (folder / _MARKER).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            (folder / _MARKER).write_text(json.dumps(list(wanted)), encoding="utf-8")
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], failure: str) -> str:
    done = run_limited(command, limits=_LIMITS)
    if done.code != 0 or done.stopped:
        lines = [line for line in done.err_text.splitlines() if line.strip()]
        said = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
        raise ToolchainError(f"{failure}: {said.strip() or done.stopped or done.signal_name}", where=command[0])
    return done.out.decode("utf-8", "replace")


def _installed() -> tuple[str, ...]:
    from importlib.metadata import distributions

    return _decisive(f"{d.name.lower()}=={d.version}" for d in distributions())


def _decisive(packages: Sequence[str] | Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted({package for package in packages if package.startswith(_DECISIVE)}))


def _dsl_version(packages: Sequence[str]) -> str | None:
    """As the compile package writes it: the version and the flavours of the libraries."""
    versions = dict(package.split("==", 1) for package in packages)
    version = versions.get("nvidia-cutlass-dsl")
    if version is None:
        return None
    flavours = [f for f in ("cu12", "cu13") if f"nvidia-cutlass-dsl-libs-{f}" in versions]
    return f"{version}+{'.'.join(flavours)}" if flavours else version
