"""Verdicts of builds that were checked before, so that a run over unchanged kernels checks nothing twice.

    ROOT/verdicts/v1/ab/abcdef....json      everything the rules said of one build

The key covers all that decides a verdict: the files of the build by their digests and what is known of them, the code
of this package, its libraries, the rules and the policy. Waivers are no part of it; they are applied to what was found.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import uuid
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from verifier.cli.inputs import Bundle
from verifier.compile.artifacts import Meta, digest
from verifier.config import Policy
from verifier.nightly.plan import code_digest
from verifier.rules import KernelOutcome, Rule

_FOLDER = "verdicts/v1"
_LIBRARIES = ("lark", "msgspec", "pyelftools", "rustworkx")
MAX_ENTRIES = 2000


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what the rules say of one build; `source` is what messages call it."""

    code: str
    libraries: dict[str, str]
    rules: tuple[str, ...]
    policy: Policy
    source: str
    meta: Meta


class Verdicts:
    """What `rules` said of builds under `policy`, filed below the artifact store `root`."""

    def __init__(self, root: Path, rules: Sequence[Rule], policy: Policy) -> None:
        self._root = root / _FOLDER
        self._rules = tuple(rule.code for rule in rules)
        self._policy = policy

    def get(self, bundle: Bundle) -> tuple[KernelOutcome, ...] | None:
        """The outcome of every kernel of a build; None when it was not checked before, or what was filed is damaged."""
        path = self._path(bundle)
        if path is None or not path.is_file():
            return None
        try:
            found = msgspec.json.decode(path.read_bytes(), type=tuple[KernelOutcome, ...])
            os.utime(path)  # prune removes what was not used for longest
        except (OSError, msgspec.DecodeError):
            return None
        return found

    def put(self, bundle: Bundle, outcomes: Sequence[KernelOutcome]) -> None:
        """File the outcomes of a build. One that cannot be written is not filed: the next run checks again."""
        path = self._path(bundle)
        if path is None:
            return
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(list(outcomes)))
            partial.replace(path)

    def prune(self, most: int = MAX_ENTRIES) -> None:
        """Remove the entries used least recently until at most `most` are left."""
        with contextlib.suppress(OSError):
            entries = sorted(self._root.glob("*/*.json"), key=lambda path: path.stat().st_mtime)
            for path in entries[: max(len(entries) - most, 0)]:
                path.unlink(missing_ok=True)

    def _path(self, bundle: Bundle) -> Path | None:
        """Where the entry of a build is, or would be; None when its files are not known by their digests."""
        built = bundle.compiled
        if built is None or not built.meta.files:
            return None
        key = _Key(
            code=_code(),
            libraries=_libraries(),
            rules=self._rules,
            policy=self._policy,
            source=bundle.source,
            meta=built.meta,
        )
        name = digest(msgspec.json.encode(key, order="deterministic"))
        return self._root / name[:2] / f"{name}.json"


@lru_cache(maxsize=1)
def _code() -> str:
    return code_digest()


@lru_cache(maxsize=1)
def _libraries() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _LIBRARIES}}
