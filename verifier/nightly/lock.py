"""One runner at a time works in an output folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from verifier.errors import ConfigError
from verifier.nightly.history import now

_FILE = "lock"


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder. Raises `ConfigError` when another runner does; one that was killed holds nothing."""
    path = folder / _FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the output folder cannot be written: {error.strerror}", where=str(folder)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise ConfigError(
                f"another nightly run works in this folder: {owner}",
                where=str(folder),
                do="wait until it ends, or give another --out",
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} since {now()}\n")
        file.flush()
        yield
