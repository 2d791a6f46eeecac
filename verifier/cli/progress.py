"""Progress on stderr: a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from verifier.cli.output import note

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """A context in which `done` is called once for each of `total` steps."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._count = 0
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, what: str) -> None:
        """One step is over; `what` says which and how."""
        self._count += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=what)
        else:
            note(f"[{self._count}/{self._total}] {what}")
