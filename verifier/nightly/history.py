"""The history: one SQLite file with every run, its cells, metrics, obligations and findings.

Each change is one transaction, so a process that is killed leaves the file as it was before or after. A rollback
journal is used, not a write-ahead log, so that the one file is all there is between transactions. A file that is
damaged, of another program, or of a newer version is refused and left as it is.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from verifier.errors import ConfigError, InputError
from verifier.findings import Finding
from verifier.nightly.cells import CellResult, KernelRecord
from verifier.nightly.migrations import MIGRATIONS, statements
from verifier.report.comparison import Build

APPLICATION = 0x56524659  # PRAGMA application_id: "VRFY"
_BUSY_SECONDS = 60.0
_AWAY = "move the file away and the next run starts a new history, or restore a copy"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `runs`. Times are ISO 8601 in UTC."""

    id: int
    plan: str
    planned: int
    state: str
    started: str
    finished: str | None
    exit_code: int | None
    accepted: str
    verifier: str

    @property
    def good(self) -> bool:
        """Later runs are compared with it."""
        return self.state == "finished" and (self.exit_code == 0 or bool(self.accepted))


class History:
    """The open file. Use as a context manager."""

    def __init__(self, path: Path, *, create: bool = True, migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path = path
        self._migrations = migrations
        if not create and not path.is_file():
            raise ConfigError("there is no history yet", where=str(path), do="run `verifier nightly --out DIR` first")
        try:
            self.db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise InputError(f"the history cannot be opened: {error}", where=str(path), do=_AWAY) from error
        try:
            self._check()
            self._migrate()
        except BaseException:
            self.db.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def _check(self) -> None:
        """Refuse what is not a sound history, before anything is written."""
        try:
            self.db.execute("PRAGMA foreign_keys = ON")
            self.db.execute("PRAGMA synchronous = FULL")
            version = self._pragma("user_version")
            application = self._pragma("application_id")
            (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            sound = [row[0] for row in self.db.execute("PRAGMA integrity_check(3)")]
        except sqlite3.DatabaseError as error:
            raise InputError(f"the history is damaged: {error}", where=str(self.path), do=_AWAY) from error
        if tables and application != APPLICATION:
            raise InputError("this SQLite file is not a history of the verifier", where=str(self.path), do=_AWAY)
        if version > len(self._migrations):
            raise InputError(
                f"the history is of version {version}, and this verifier knows up to {len(self._migrations)}",
                where=str(self.path),
                do="use the newer verifier that wrote it",
            )
        if sound != ["ok"]:
            raise InputError(f"the history is damaged: {sound[0]}", where=str(self.path), do=_AWAY)

    def _migrate(self) -> None:
        for version in range(self._pragma("user_version"), len(self._migrations)):
            with self.transaction():
                if self._pragma("user_version") != version:
                    continue  # a second process was quicker
                for statement in statements(self._migrations[version]):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA application_id = {APPLICATION}")
                self.db.execute(f"PRAGMA user_version = {version + 1}")

    def _pragma(self, name: str) -> int:
        return int(self.db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing. Raises `InputError` when the file cannot be written."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.db.execute("ROLLBACK")
                raise
            self.db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise InputError(f"the history cannot be written: {error}", where=str(self.path)) from error

    def begin(self, plan: str, planned: int, verifier: str) -> tuple[Run, bool]:
        """The run to work on: the last one if it was cut off and had the same plan, else a new one; True if resumed."""
        with self.transaction():
            last = self.last()
            if last is not None and last.state == "running" and last.plan == plan:
                return last, True
            self.db.execute("UPDATE runs SET state = 'superseded' WHERE state = 'running'")
            cursor = self.db.execute(
                "INSERT INTO runs (plan, planned, state, started, verifier) VALUES (?, ?, 'running', ?, ?)",
                (plan, planned, now(), verifier),
            )
            number = cursor.lastrowid or 0
        return self.run(number), False

    def record(self, run: int, label: Build, toolchain: Mapping[str, str], key: str, result: CellResult) -> None:
        """Write down one cell. A second time for the same cell of a run changes nothing."""
        with self.transaction():
            column = self._toolchain(label.toolchain, toolchain)
            row = (run, label.kernel, label.arch, column, key, result.state, result.what, result.seconds)
            cursor = self.db.execute(
                "INSERT INTO cells (run, kernel, arch, toolchain, key, state, what, seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                row,
            )
            if cursor.rowcount == 1:
                for kernel in result.kernels:
                    self._kernel(cursor.lastrowid or 0, kernel)

    def finish(self, run: int, exit_code: int) -> None:
        with self.transaction():
            self.db.execute(
                "UPDATE runs SET state = 'finished', finished = ?, exit_code = ? WHERE id = ?", (now(), exit_code, run)
            )

    def accept(self, run: int, reason: str) -> None:
        """Let later runs be compared with this one though it was not good. Raises `ConfigError` for an unfinished."""
        if self.run(run).state != "finished":
            raise ConfigError(f"run {run} did not finish", where=str(self.path), do="accept a run that did")
        with self.transaction():
            self.db.execute("UPDATE runs SET accepted = ? WHERE id = ?", (reason, run))

    def recorded(self, run: int) -> dict[Build, str]:
        """Cells of a run that are done, with their keys."""
        rows = self.db.execute(
            "SELECT c.kernel, c.arch, t.name, c.key FROM cells c JOIN toolchains t ON t.id = c.toolchain "
            "WHERE c.run = ?",
            (run,),
        )
        return {Build(kernel=kernel, arch=arch, toolchain=name): key for kernel, arch, name, key in rows}

    def durations(self) -> dict[Build, float]:
        """Seconds that each cell took when it was last checked."""
        rows = self.db.execute(
            "SELECT c.kernel, c.arch, t.name, c.seconds FROM cells c JOIN toolchains t ON t.id = c.toolchain "
            "WHERE c.state = 'checked' ORDER BY c.run"
        )
        return {Build(kernel=kernel, arch=arch, toolchain=name): seconds for kernel, arch, name, seconds in rows}

    def run(self, number: int) -> Run:
        """Raises `ConfigError` when there is no such run."""
        row = self.db.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise ConfigError(
                f"there is no run {number}", where=str(self.path), do="`verifier nightly show` lists them"
            )
        return _run(row)

    def runs(self) -> list[Run]:
        """All runs, the newest first."""
        return [_run(row) for row in self.db.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY id DESC")]

    def last(self) -> Run | None:
        return next(iter(self.runs()), None)

    def keys(self, runs: int) -> frozenset[str]:
        """Keys of the cells of the last runs, and of the runs that are compared with."""
        numbers = [run.id for run in self.runs()]
        good = [run.id for run in self.runs() if run.good]
        kept = {*numbers[:runs], *good[:runs]}
        rows = self.db.execute("SELECT run, key FROM cells")
        return frozenset(key for run, key in rows if run in kept)

    def _toolchain(self, name: str, fingerprint: Mapping[str, str]) -> int:
        text = json.dumps(dict(fingerprint), sort_keys=True)
        self.db.execute("INSERT INTO toolchains (name, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, text))
        found = self.db.execute("SELECT id FROM toolchains WHERE name = ? AND fingerprint = ?", (name, text)).fetchone()
        return int(found[0])

    def _kernel(self, cell: int, record: KernelRecord) -> None:
        outcome = record.outcome
        cursor = self.db.execute(
            "INSERT INTO kernels (cell, name, arch, ptx, sass) VALUES (?, ?, ?, ?, ?)",
            (cell, outcome.name, outcome.arch, record.ptx, record.sass),
        )
        kernel = cursor.lastrowid
        self.db.executemany(
            "INSERT INTO metrics VALUES (?, ?, ?)", [(kernel, *item) for item in outcome.metrics.items()]
        )
        self.db.executemany(
            "INSERT INTO obligations VALUES (?, ?, ?, ?, ?, ?)",
            [(kernel, c.rule, c.proved, c.violated, c.unknown, c.skipped) for c in outcome.ledger],
        )
        waived = {item.finding.fingerprint: item.reason for item in outcome.suppressed}
        findings = {f.fingerprint: f for f in (*(item.finding for item in outcome.suppressed), *outcome.findings)}
        self.db.executemany(
            f"INSERT INTO findings VALUES ({', '.join('?' * 13)})",
            [(kernel, *_finding(finding, waived.get(key, ""))) for key, finding in findings.items()],
        )


_COLUMNS = "id, plan, planned, state, started, finished, exit_code, accepted, verifier"


def _run(row: tuple[object, ...]) -> Run:
    return msgspec.convert(dict(zip(Run.__struct_fields__, row, strict=True)), Run)


def _finding(finding: Finding, waived: str) -> tuple[object, ...]:
    place = finding.location
    return (
        finding.fingerprint,
        finding.rule,
        finding.name,
        finding.severity.value,
        finding.hazard.value,
        finding.verdict.value,
        finding.role,
        finding.message,
        place.ptx_line,
        place.file or "",
        place.line,
        waived,
    )


def now() -> str:
    """This moment as the history writes it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
