"""Where bytes leave the program: reports to stdout or a file, messages to stderr."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from verifier.errors import InputError, VerifierError

_STYLES: dict[str, dict[str, object]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "note": {"fg": "cyan", "bold": True},
    "unknown": {"fg": "magenta", "bold": True},
    "good": {"fg": "green"},
    "help": {"fg": "cyan"},
    "rule": {"fg": "blue", "bold": True},
    "strong": {"bold": True},
    "quote": {"dim": True},
}


_NOWHERE_TO_WRITE = frozenset({errno.EBADF, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def open_streams() -> None:
    """Occupy the standard streams that the caller closed: else the next file that is opened becomes one of them.

    Reports have nowhere to go without stdout, and say so: what stands there now refuses every byte. Messages to a
    closed stderr are dropped.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def write_error(error: OSError) -> InputError | None:
    """What to say of a write that failed for want of a place: a closed stream, a full disk; None for other errors."""
    if error.errno not in _NOWHERE_TO_WRITE:
        return None
    where = display(error.filename) if error.filename else "standard output"
    return InputError(f"cannot be written: {_reason(error)}", where=where)


def _reason(error: OSError) -> str:
    return "it is closed" if error.errno == errno.EBADF else str(error.strerror)


def display(path: Path | str) -> str:
    """A path as text that can be printed and encoded, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "replace")


def printable(text: str) -> str:
    """`text` with control characters escaped: input files must not steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def paint(text: str, style: str) -> str:
    """`text` in the colours of `style`."""
    import click

    return click.style(text, **_STYLES.get(style, {}))  # type: ignore[arg-type]


def wants_colour(stream_is_file: bool) -> bool:
    """Colours go to a terminal, unless NO_COLOR says no (https://no-color.org)."""
    return not stream_is_file and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def show_error(error: VerifierError) -> None:
    """`error: what`, where it happened and what to do, on stderr; the traceback too, if VERIFIER_DEBUG is set."""
    lines = [f"error: {error.what}"]
    if error.where:
        lines.append(f"  where: {error.where}")
    if error.do:
        lines.append(f"  help: {error.do}")
    note("\n".join(lines))
    if os.environ.get("VERIFIER_DEBUG"):
        import traceback

        traceback.print_exception(error)


def note(text: str) -> None:
    """A message on stderr, for what a user should know but no program reads."""
    with contextlib.suppress(OSError):  # there is nowhere left to complain
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


def emit(text: str, file: Path | None = None) -> None:
    """Write a whole report at once, as UTF-8. Raises `InputError` when it cannot be written."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        if file is not None:
            _replace(file, data)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        if file is None:
            _silence_stdout()
        where = display(file) if file is not None else "standard output"
        raise InputError(f"the report cannot be written: {_reason(error)}", where=where) from error


def flush() -> None:
    """Flush stdout so that a reader who left causes no message at interpreter exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _replace(file: Path, data: bytes) -> None:
    """Write beside `file`, then rename: nobody ever sees half a report. A device or a pipe is written as it is."""
    if file.exists() and not file.is_file():
        file.write_bytes(data)
        return
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _silence_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
