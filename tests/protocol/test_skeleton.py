"""One round of a protocol, as text and as a drawing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from tests.protocol.support import facts, stored
from verifier.analyses.protocol.skeleton import Skeleton, skeleton
from verifier.cli.protocol import protocol_lines
from verifier.report import protocol as view


def gemm() -> Skeleton:
    protocol = facts(stored("gemm_persistent")).protocol
    assert protocol is not None
    found = skeleton(protocol)
    assert found is not None
    return found


def test_a_round_says_who_signals_whom() -> None:
    lanes = {lane.role: lane for lane in gemm().lanes}
    assert set(lanes) == {"epilogue", "mma", "tma-load"}
    mma = [(o.verb, o.barriers[0], len(o.barriers), o.times, o.partners) for o in lanes["mma"].operations]
    assert mma == [
        ("wait", "__dynamic_shmem__0+72", 1, 1, ("epilogue",)),
        ("wait", "__dynamic_shmem__0", 4, 64, ("tma-load",)),
        ("commit", "__dynamic_shmem__0+32", 4, 64, ("tma-load",)),
        ("commit", "__dynamic_shmem__0+64", 1, 1, ("epilogue",)),
    ]
    wait, release = lanes["epilogue"].operations
    assert (wait.verb, wait.phase, release.verb, release.phase) == ("wait", 2, "arrive", 2)


def test_text_and_drawing_have_the_same_operations() -> None:
    found = gemm()
    lines = list(view.text(found))
    operations = sum(len(lane.operations) for lane in found.lanes)
    assert len(lines) == operations + len(found.lanes) + 1
    assert "any number of rounds" in lines[-1]
    root = ET.fromstring(view.svg(found, "a <kernel>"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}rect")) == operations
    assert len(root.findall(f"{space}path")) == 4  # each wait has one signaller
    title = root.find(f"{space}title")
    assert title is not None
    assert title.text == "a <kernel>"


def test_a_kernel_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    text = stored("gemm_persistent").replace(".reqntid 192, 1, 1\n", "")
    lines = list(protocol_lines(facts(text), tmp_path / "none.svg"))
    assert lines[1] == "  no protocol: the block size is not known (--block)"
    assert not (tmp_path / "none.svg").exists()
