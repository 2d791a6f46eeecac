"""A runner of fake cells, to be killed: `python -m tests.nightly.driver FOLDER KERNELS`.

It is the real runner with real history, store, lock and outputs; only the work of a cell is a short pause. Every
execution is a line in FOLDER/log, written before the pause.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from tests.nightly.support import TOOLCHAINS, found, matrix, result
from verifier.cli import output
from verifier.errors import VerifierError
from verifier.nightly.cells import CellResult, CellSpec, CellStore
from verifier.nightly.compare import across, compare
from verifier.nightly.history import History
from verifier.nightly.lock import exclusive
from verifier.nightly.outputs import gather, write_all
from verifier.nightly.rows import cells_of
from verifier.nightly.run import run_matrix
from verifier.nightly.settings import Settings
from verifier.report.comparison import Build
from verifier.report.results import Tools

PAUSE = 0.01


def work(data: bytes) -> bytes:
    """One fake cell; some give findings, some crash."""
    spec = msgspec.json.decode(data, type=CellSpec)
    with open(Path(spec.store).parent / "log", "a") as log:  # noqa: PTH123
        os.write(log.fileno(), f"{spec.key}\n".encode())
    time.sleep(PAUSE)
    label = Build(kernel=spec.subject.name, arch=spec.subject.arch, toolchain=spec.toolchain)  # type: ignore[union-attr]
    given = _outcome(label)
    if given.settled:
        CellStore(Path(spec.store)).put(spec.key, given)
    return msgspec.json.encode(given)


def _outcome(label: Build) -> CellResult:
    if label.kernel.endswith("3"):
        return result(label, state="crash")
    findings = (found(fingerprint=label.kernel * 8),) if label.kernel.endswith("5") else ()
    return result(label, findings=findings)


def main(folder: Path, kernels: int) -> int:
    settings = Settings()
    store = CellStore(folder / "cells")
    try:
        with exclusive(folder), History(folder / "history.sqlite") as history:
            cells = matrix(store.root, kernels)
            run, _ = run_matrix(history, store, cells, TOOLCHAINS, settings, lambda _: None, work=work)
            output.note("finishing")
            rows = cells_of(history, run.id)
            outputs = gather(
                run, rows, store, compare(history, run.id, settings, store), across(rows), Tools(version="0")
            )
            write_all(folder, outputs, history, (), settings, {})
            history.finish(run.id, outputs.exit_code)
            return outputs.exit_code
    except VerifierError as error:
        output.show_error(error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
