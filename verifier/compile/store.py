"""Content-addressed store of compiled kernels: a key that covers everything that decides the output -> a folder.

    ROOT/v1/ab/abcdef.../{kernel.ptx,...,meta.json}

Entries appear whole (written aside, renamed into place) and are never changed, so any number of processes may use
one store. An entry whose files do not match the digests in its meta.json is removed and counts as absent.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from verifier.compile.artifacts import META, Artifacts, Scalar, digest, read_artifacts, write_artifacts
from verifier.compile.toolchain import Fingerprint
from verifier.errors import ConfigError, InputError

LOCATION_VARIABLE = "VERIFIER_CACHE_DIR"
_LAYOUT = "v1"
_TRASH = "trash"
_LEFTOVER_SECONDS = 24 * 3600.0
MAX_BYTES = 2 << 30
# Variables that reach the code generator through the CuTe DSL; the ones that the worker sets itself are left out.
_ENVIRONMENT_PREFIXES = ("CUTE_", "CUTLASS_", "CUDA_TOOLKIT_PATH")
_SET_BY_WORKER = ("_DSL_ARCH", "_DSL_KEEP", "_DSL_DUMP_DIR", "_DSL_LINEINFO")


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What `Store.prune` did: entries and bytes removed and left."""

    removed: int
    removed_bytes: int
    left: int
    left_bytes: int


class Store:
    """Folders of artifacts by key, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, key: str) -> Path:
        """Where the entry of a key is, or would be."""
        return self.root / _LAYOUT / key[:2] / key

    def get(self, key: str) -> Artifacts | None:
        """The entry of a key; None when there is none. A damaged entry is removed."""
        folder = self.path_of(key)
        if not folder.is_dir():
            return None
        try:
            found = read_artifacts(folder)
        except InputError:
            self._discard(folder)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / META)  # prune removes what was not used for longest
        return found

    def put(self, key: str, artifacts: Artifacts) -> Artifacts:
        """File artifacts under a key. An entry that is there already stays when it is whole, and is returned.

        Raises ConfigError when the store cannot be written.
        """
        folder = self.path_of(key)
        try:
            for _ in range(3):
                with contextlib.suppress(FileExistsError):
                    return write_artifacts(folder, artifacts)
                if (found := self.get(key)) is not None:
                    return found
        except OSError as error:
            raise self._unwritable(error) from error
        raise ConfigError("the entry is damaged and cannot be replaced", where=str(folder), do="remove this folder")

    def prune(self, max_bytes: int) -> Pruned:
        """Remove the entries used least recently until the store holds at most `max_bytes`, and old leftovers."""
        shutil.rmtree(self.root / _TRASH, ignore_errors=True)
        self._remove_partials()
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        removed = removed_bytes = 0
        for _, size, folder in entries:
            if total - removed_bytes <= max_bytes:
                break
            self._discard(folder)
            removed, removed_bytes = removed + 1, removed_bytes + size
        return Pruned(
            removed=removed, removed_bytes=removed_bytes, left=len(entries) - removed, left_bytes=total - removed_bytes
        )

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Last use (seconds), size in bytes and folder of each entry. Entries that vanish meanwhile are left out."""
        for folder in (self.root / _LAYOUT).glob("*/[!.]*"):
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in folder.iterdir())
                meta = folder / META
                yield (meta.stat().st_mtime if meta.exists() else 0.0, size, folder)

    def _remove_partials(self) -> None:
        # What a killed process had begun; a young one may belong to a process that is still writing.
        for folder in (self.root / _LAYOUT).glob("*/.*.partial"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)

    def _discard(self, folder: Path) -> None:
        # Renamed first: another process sees the entry whole or not at all, never half removed.
        trash = self.root / _TRASH / uuid.uuid4().hex
        with contextlib.suppress(OSError):
            trash.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the artifact store cannot be written: {error.strerror}",
            where=str(self.root),
            do=f"set {LOCATION_VARIABLE} to a folder that can be written",
        )


def default_store() -> Store:
    """The store of this user: $VERIFIER_CACHE_DIR, or the cache folder of the platform."""
    if given := os.environ.get(LOCATION_VARIABLE):
        return Store(Path(given))
    import platformdirs

    return Store(Path(platformdirs.user_cache_dir("ptx-sass-verifier", appauthor=False)))


class CaseKey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the output of one compile; `sources` maps file -> SHA-256.

    Paths are part of it because PTX names the Python file in its `.file` directive. `format` is raised whenever this
    package changes what it stores for the same input.
    """

    sources: Mapping[str, str]
    module: str
    config: Mapping[str, Scalar]
    arch: str
    defect: str | None
    toolchain: Fingerprint
    environment: Mapping[str, str]
    format: int = 1

    def hexdigest(self) -> str:
        """The key as hexadecimal text."""
        return digest(msgspec.json.encode(self, order="deterministic"))


def case_key(
    *,
    sources: Mapping[Path, bytes],
    module: str,
    config: Mapping[str, Scalar],
    arch: str,
    defect: str | None,
    toolchain: Fingerprint,
) -> str:
    """Key of one kernel case with the environment variables that reach the compiler."""
    return CaseKey(
        sources={str(path): digest(data) for path, data in sources.items()},
        module=module,
        config=dict(config),
        arch=arch,
        defect=defect,
        toolchain=toolchain,
        environment=compiler_environment(os.environ),
    ).hexdigest()


def compiler_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that change what the CuTe DSL compiles."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_ENVIRONMENT_PREFIXES) and not name.endswith(_SET_BY_WORKER)
    }


def module_sources(module: str, root: Path) -> dict[Path, bytes]:
    """Source of a module and of all modules below `root`'s same top package that it imports, directly or not.

    Found by reading the import statements, nothing is imported. Raises InputError when the module's own file is
    missing or is no Python.
    """
    top = module.partition(".")[0]
    found: dict[Path, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for path in _files_of(name, root):
            if path not in found:
                found[path] = path.read_bytes()
                waiting += _imports(found[path], path, root, top)
    own = root.joinpath(*module.split("."))
    if own.with_suffix(".py") not in found and own / "__init__.py" not in found:
        raise InputError(f"no module {module}", where=str(root), do="correct the module of the kernel case")
    return dict(sorted(found.items()))


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """Files that importing `name` runs: the packages on the way and the module itself."""
    folder = root
    for part in name.split("."):
        if (module := folder / f"{part}.py").is_file():
            yield module
        folder = folder / part
        if (package := folder / "__init__.py").is_file():
            yield package


def _imports(source: bytes, path: Path, root: Path, top: str) -> Iterator[str]:
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"not valid Python: {error}", where=f"{path}:{line}", do="correct the kernel") from error
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = ".".join((*base, *([node.module] if node.module else [])))
            names = [prefix, *(f"{prefix}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name == top or name.startswith(f"{top}."))
