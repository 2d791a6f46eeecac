"""Cell processes that misbehave, chosen by the name of the kernel: `python -m tests.nightly.worker`."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import msgspec

from verifier.nightly.cells import CellResult, CellSpec


def main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=CellSpec)
    name = spec.subject.name  # type: ignore[union-attr]
    if name == "sleeps":
        time.sleep(3600)
    elif name == "allocates":
        kept = []
        while True:
            kept.append(bytearray(1 << 24))
    elif name == "segfaults":
        ctypes.string_at(0)
    elif name == "exits":
        sys.exit("no reason")
    elif name == "babbles":
        sys.stdout.write("this is no result")
    else:
        with open(os.path.join(spec.store, "executions"), "a") as log:  # noqa: PTH118, PTH123
            log.write(f"{spec.key}\n")
        sys.stdout.buffer.write(msgspec.json.encode(CellResult(state="failed" if name == "fails" else "checked")))


main()
