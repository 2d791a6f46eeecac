"""Fake cells, small histories, and the whole content of a history as text."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from tests.report.samples import finding, outcome
from verifier.findings import Finding
from verifier.nightly.cells import CaseSubject, CellResult, CellSpec, Checks, KernelRecord, State
from verifier.nightly.history import History
from verifier.nightly.plan import Cell
from verifier.report.comparison import Build
from verifier.rules import RuleCount

TOOLCHAINS: Mapping[str, Mapping[str, str]] = {"one": {"dsl": "4.8.0"}, "two": {"dsl": "4.8.1"}}


def build(kernel: str = "gemm", arch: str = "sm_100a", toolchain: str = "one") -> Build:
    return Build(kernel=kernel, arch=arch, toolchain=toolchain)


def cell(label: Build, store: Path, *, key: str = "", error: str = "") -> Cell:
    subject = CaseSubject(
        name=label.kernel, module="kernels.none", config={}, defect=None, root=str(store), arch=label.arch
    )
    spec = CellSpec(
        key=key or f"{label.kernel}-{label.arch}-{label.toolchain}",
        subject=subject,
        toolchain=label.toolchain,
        checks=Checks(profile="default"),
        seconds=60.0,
        memory=4 << 30,
        store=str(store),
    )
    return Cell(label=label, spec=spec, error=error)


def matrix(store: Path, kernels: int) -> list[Cell]:
    """`kernels` kernels for two architectures and two toolchains."""
    return [
        cell(build(f"kernel{number}", arch, toolchain), store)
        for number in range(kernels)
        for arch in ("sm_100a", "sm_90a")
        for toolchain in TOOLCHAINS
    ]


def result(
    label: Build,
    *,
    state: State = "checked",
    findings: tuple[Finding, ...] = (),
    metrics: Mapping[str, float] | None = None,
    counts: Mapping[str, tuple[int, int, int]] | None = None,
    ptx: str = "p",
    sass: str = "s",
    seconds: float = 1.0,
) -> CellResult:
    """What a cell with one kernel gives."""
    if state != "checked":
        return CellResult(state=state, what=f"it ended by {state}", seconds=seconds)
    ledger = tuple(
        RuleCount(rule=rule, proved=proved, violated=violated, unknown=unknown)
        for rule, (proved, violated, unknown) in (counts or {"TCG101": (2, 0, 0)}).items()
    )
    kernel = outcome(
        name=label.kernel,
        arch=label.arch,
        toolchain={"toolchain": label.toolchain},
        findings=findings,
        obligations=(),
        ledger=ledger,
        metrics=dict(metrics or {"registers": 40}),
    )
    return CellResult(state=state, seconds=seconds, kernels=(KernelRecord(outcome=kernel, ptx=ptx, sass=sass),))


def found(**changes: object) -> Finding:
    return finding(**changes)


def write_run(
    history: History, results: Mapping[Build, CellResult], exit_code: int | None, plan: str = "", key: str = "k"
) -> int:
    """A run with these cells; unfinished when there is no exit code."""
    started, _ = history.begin(plan or str(id(results)), len(results), "0.1.0")
    for label, known in results.items():
        history.record(started.id, label, TOOLCHAINS.get(label.toolchain, {}), f"{key}-{label}", known)
    if exit_code is not None:
        history.finish(started.id, exit_code)
    return started.id


# Times differ from run to run, and row numbers depend on the order in which cells end.
_QUERIES = {
    "runs": "SELECT id, plan, planned, state, exit_code, accepted FROM runs",
    "cells": "SELECT c.run, c.kernel, c.arch, t.name, t.fingerprint, c.key, c.state, c.what FROM cells c "
    "JOIN toolchains t ON t.id = c.toolchain",
    "kernels": "SELECT c.run, c.key, k.name, k.arch, k.ptx, k.sass FROM kernels k JOIN cells c ON c.id = k.cell",
    "metrics": "SELECT c.run, c.key, k.name, m.name, m.value FROM metrics m JOIN kernels k ON k.id = m.kernel "
    "JOIN cells c ON c.id = k.cell",
    "obligations": "SELECT c.run, c.key, k.name, o.rule, o.proved, o.violated, o.unknown, o.skipped FROM obligations o "
    "JOIN kernels k ON k.id = o.kernel JOIN cells c ON c.id = k.cell",
    "findings": "SELECT c.run, c.key, k.name, f.fingerprint, f.rule, f.message, f.file, f.line, f.waived "
    "FROM findings f JOIN kernels k ON k.id = f.kernel JOIN cells c ON c.id = k.cell",
}


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything in a history that two runs of the same matrix must agree on."""
    db = sqlite3.connect(path)
    try:
        return {name: sorted(db.execute(query).fetchall(), key=repr) for name, query in _QUERIES.items()}
    finally:
        db.close()
