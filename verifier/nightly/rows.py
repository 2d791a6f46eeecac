"""What the history holds of a run, as values."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from verifier.nightly.history import History
from verifier.report.comparison import Build, Counts


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    rule: str
    name: str
    severity: str
    hazard: str
    verdict: str
    role: str
    message: str
    ptx_line: int | None
    file: str
    line: int | None
    waived: str


class KernelRow(msgspec.Struct, kw_only=True):
    """One kernel of one cell. A rule that did not run has no counts."""

    build: Build
    ptx: str
    sass: str
    metrics: dict[str, float]
    counts: dict[str, Counts]
    findings: dict[str, FindingRow]


class CellRow(msgspec.Struct, kw_only=True):
    run: int
    label: Build
    fingerprint: str
    key: str
    state: str
    what: str
    seconds: float
    kernels: dict[Build, KernelRow]


def cells_of(history: History, run: int) -> dict[Build, CellRow]:
    """All cells of a run, by label."""
    db = history.db
    cells: dict[int, CellRow] = {}
    query = (
        "SELECT c.id, c.kernel, c.arch, t.name, t.fingerprint, c.key, c.state, c.what, c.seconds "
        "FROM cells c JOIN toolchains t ON t.id = c.toolchain WHERE c.run = ? ORDER BY c.kernel, c.arch, t.name"
    )
    for number, kernel, arch, name, fingerprint, key, state, what, seconds in db.execute(query, (run,)):
        label = Build(kernel=kernel, arch=arch, toolchain=name)
        cells[number] = CellRow(
            run=run, label=label, fingerprint=fingerprint, key=key, state=state, what=what, seconds=seconds, kernels={}
        )
    _fill(db, run, _kernels(db, run, cells))
    return {cell.label: cell for cell in cells.values()}


def _kernels(db: sqlite3.Connection, run: int, cells: Mapping[int, CellRow]) -> dict[int, KernelRow]:
    found: dict[int, KernelRow] = {}
    query = (
        "SELECT k.id, k.cell, k.name, k.arch, k.ptx, k.sass FROM kernels k JOIN cells c ON c.id = k.cell "
        "WHERE c.run = ? ORDER BY k.name, k.arch"
    )
    for number, cell, name, arch, ptx, sass in db.execute(query, (run,)):
        build = Build(kernel=name, arch=arch, toolchain=cells[cell].label.toolchain)
        row = KernelRow(build=build, ptx=ptx, sass=sass, metrics={}, counts={}, findings={})
        found[number] = cells[cell].kernels[build] = row
    return found


_OF_RUN = "JOIN kernels k ON k.id = x.kernel JOIN cells c ON c.id = k.cell WHERE c.run = ?"


def _fill(db: sqlite3.Connection, run: int, kernels: Mapping[int, KernelRow]) -> None:
    for kernel, name, value in db.execute(f"SELECT x.kernel, x.name, x.value FROM metrics x {_OF_RUN}", (run,)):
        kernels[kernel].metrics[name] = int(value) if value == int(value) else value
    query = f"SELECT x.kernel, x.rule, x.proved, x.violated, x.unknown, x.skipped FROM obligations x {_OF_RUN}"
    for kernel, rule, proved, violated, unknown, skipped in db.execute(query, (run,)):
        if not skipped:
            kernels[kernel].counts[rule] = Counts(proved, violated, unknown)
    fields = FindingRow.__struct_fields__
    columns = ", ".join(f"x.{field}" for field in fields)
    for kernel, *values in db.execute(f"SELECT x.kernel, {columns} FROM findings x {_OF_RUN}", (run,)):
        row = msgspec.convert(dict(zip(fields, values, strict=True)), FindingRow)
        kernels[kernel].findings[row.fingerprint] = row


def last_good(history: History, run: int) -> dict[Build, int]:
    """Cell -> the last good run before `run` in which it was checked."""
    good = {known.id for known in history.runs() if known.good and known.id < run}
    query = (
        "SELECT c.run, c.kernel, c.arch, t.name FROM cells c JOIN toolchains t ON t.id = c.toolchain "
        "WHERE c.state = 'checked' ORDER BY c.run"
    )
    return {
        Build(kernel=kernel, arch=arch, toolchain=name): number
        for number, kernel, arch, name in history.db.execute(query)
        if number in good
    }
