"""Shape memo: what a parser learned about the *shape* of a text, reused for every text of that shape.

A shape is a text with its numbers and names replaced by placeholders. Parsing one text of a shape with Lark
yields a template, plain data that says how to rebuild the result from the replaced values. A memo maps
shapes to templates; it can start from a table that ships with the package and can be kept between runs
as JSON. Templates are data of a declared type, checked on load; a file that belongs to another grammar, or that is
damaged, counts as empty: it costs time, never correctness.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from verifier.errors import InputError

T = TypeVar("T")

SCHEMA_VERSION = 1


class _Header(msgspec.Struct, frozen=True):
    schema_version: int
    fingerprint: str
    shapes: msgspec.Raw


def grammar_path(name: str) -> Path:
    """Path of `NAME.lark`: inside the package when installed from a wheel, else beside it in the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "grammars", package.parent / "grammars"):
        path = folder / f"{name}.lark"
        if path.is_file():
            return path
    raise InputError(f"the grammar {name}.lark is missing", where=str(package), do="reinstall the package")


def grammar_text(name: str) -> str:
    """Text of the grammar `NAME.lark`."""
    return grammar_path(name).read_text(encoding="utf-8")


def fingerprint(*parts: str) -> str:
    """What a stored memo depends on (grammar text, version of the template format), as one short hash."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


class ShapeMemo(Generic[T]):
    """Map from shape to template.

    `table` is a plain dict for hot loops. `kind` is the type of a template, as msgspec understands it;
    `valid(shape, template)` may refuse a loaded entry. `learn` adds one, `save` writes what was learned.
    """

    def __init__(
        self,
        kind: type[T] | object,
        print_of: str,
        *,
        seed: Path | None = None,
        store: Path | None = None,
        valid: Callable[[str, T], bool] | None = None,
    ) -> None:
        self.table: dict[str, T] = {}
        self.fingerprint = print_of
        self._decoder: msgspec.json.Decoder[dict[str, T]] = msgspec.json.Decoder(dict[str, kind])  # type: ignore[valid-type]
        self._store = store
        self._valid = valid
        self._learned = 0
        for path in (seed, store):
            if path is not None:
                self.table.update(self._read(path))

    def learn(self, shape: str, template: T) -> T:
        """Remember `template`; returned for convenience."""
        self.table[shape] = template
        self._learned += 1
        return template

    def save(self) -> None:
        """Write the memo to its store if it learned anything. A store that cannot be written is not an error:
        the memo only saves time."""
        if self._store is None or not self._learned:
            return
        merged = self._read(self._store)
        merged.update(self.table)
        try:
            write_memo(self._store, self.fingerprint, merged)
        except OSError:
            return
        self._learned = 0

    def _read(self, path: Path) -> dict[str, T]:
        try:
            header = msgspec.json.decode(path.read_bytes(), type=_Header)
            if header.schema_version != SCHEMA_VERSION or header.fingerprint != self.fingerprint:
                return {}
            entries = self._decoder.decode(header.shapes)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        if self._valid is None:
            return entries
        return {shape: template for shape, template in entries.items() if self._valid(shape, template)}


def write_memo(path: Path, print_of: str, table: dict[str, T]) -> None:
    """Write a memo file in one step: a reader sees the old file or the new one, never a part."""
    import tempfile  # needs 3 ms to import, and most runs write nothing

    lines = [f"{_json(shape)}:{_json(template)}" for shape, template in sorted(table.items())]
    head = f'{{"schema_version":{SCHEMA_VERSION},"fingerprint":{_json(print_of)},"shapes":{{\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write((head + ",\n".join(lines) + "\n}}\n").encode())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
