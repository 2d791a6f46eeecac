"""Artifact folders: launch facts, kernel names and IR come with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.diff.edits import CTA_WAIT, PTX, RELAXED_WAIT, RESTRICTED_FENCE, renumber
from tests.diff.test_ir import MODULE
from verifier.cli import run
from verifier.cli.inputs import discover
from verifier.cli.parts import LoadOptions
from verifier.cli.sides import sides_of
from verifier.diff.sides import pair

META = {
    "schema_version": 1,
    "name": "splitk",
    "arch": "sm_100a",
    "entry": "gemm_splitk_mailbox_0",
    "launch": {"block": [192, 1, 1], "cluster": [1, 1, 4], "grid": [2, 56, 4]},
}


def folder(path: Path, ptx: str = PTX, ir: str = MODULE, **meta: Any) -> Path:
    path.mkdir()
    (path / "kernel.ptx").write_text(ptx)
    (path / "kernel.mlir").write_text(ir)
    (path / "meta.json").write_text(json.dumps({**META, **meta}))
    return path


def report(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_kernels_go_by_their_case_whatever_the_entry_is_called(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, after = folder(tmp_path / "a"), folder(tmp_path / "b", renumber(PTX), entry="other_name_1")
    assert run(["diff", str(before), str(after), "--no-assemble", "--format", "json"]) == 0
    assert [kernel["name"] for kernel in report(capfd)["kernels"]] == ["splitk"]


def test_another_launch_is_a_change(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = folder(tmp_path / "a")
    after = folder(tmp_path / "b", launch={"block": [192, 1, 1], "cluster": [1, 1, 2]})
    assert run(["diff", str(before), str(after), "--no-assemble", "--format", "json"]) == 1
    assert report(capfd)["summary"]["sentence"] == (
        "the generated code differs only in what is declared: `launch cluster 1x1x2` in place of `launch cluster 1x1x4`"
    )


def test_a_launch_that_one_side_does_not_know_is_not_compared(tmp_path: Path) -> None:
    before, after = folder(tmp_path / "a"), folder(tmp_path / "b", launch=None)
    assert run(["diff", str(before), str(after), "--no-assemble"]) == 0


def test_ir_is_compared_on_demand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    relaxed = MODULE.replace("mem_order<acquire>", "mem_order<relaxed>")
    before, after = folder(tmp_path / "a"), folder(tmp_path / "b", ir=relaxed)
    arguments = ["diff", str(before), str(after), "--no-assemble", "--format", "json"]
    assert run(arguments) == 0
    capfd.readouterr()
    assert run([*arguments, "--level", "ir"]) == 1
    (kernel,) = report(capfd)["kernels"]
    assert kernel["sentence"].startswith("the IR differs only at 1 `nvvm.wait`")
    assert [place["where"] for place in kernel["claims"][0]["places"]] == ["kernels/k.py:12"]


def test_a_claim_about_ir_can_be_checked(tmp_path: Path) -> None:
    relaxed = MODULE.replace("mem_order<acquire>", "mem_order<relaxed>")
    before, after = folder(tmp_path / "a"), folder(tmp_path / "b", ir=relaxed)
    claim = tmp_path / "claim.toml"
    claim.write_text('[[expect]]\nlevel = "ir"\ncount = 1\nremove = ["nvvm.*"]\nadd = ["nvvm.*"]\n')
    arguments = ["diff", str(before), str(after), "--no-assemble", "--expect", str(claim)]
    assert run([*arguments, "--level", "ir"]) == 0
    assert run(arguments) == 2


def test_a_repair_shows_as_a_fixed_finding(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The kernel reads its mailbox after a CTA-scope wait; with the relaxed form and its fence the finding goes."""
    lines = PTX.split("\n")
    last = max(number for number, line in enumerate(lines) if CTA_WAIT in line)
    lines[last] = lines[last].replace(CTA_WAIT, RELAXED_WAIT)
    lines.insert(last + 3, f"\t{RESTRICTED_FENCE};")
    before, after = folder(tmp_path / "a"), folder(tmp_path / "b", renumber("\n".join(lines)), entry="other_name_1")
    assert run(["diff", str(before), str(after), "--no-assemble", "--format", "json"]) == 1
    verdicts = report(capfd)["kernels"][0]["verdicts"]
    assert [finding["rule"] for finding in verdicts["fixed"]] == ["SCP301"]
    assert verdicts["new"] == []


HELPER = """
.visible .entry make_maps_0(.param .u64 p)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    st.global.u32 [%rd1], NUMBER;
    ret;
}
"""


def test_helpers_of_several_cases_go_by_their_case(tmp_path: Path) -> None:
    """Two revisions: the cases `dense` and `ragged` both have an entry beside the kernel, of one name."""
    revisions = []
    for revision in ("base", "head"):
        cases = []
        for number, case in enumerate(("dense", "ragged")):
            path = tmp_path / f"{revision}-{number}"
            folder(path, PTX + HELPER.replace("NUMBER", f"%r{number}").replace("%rd<2>;", "%rd<2>; .reg .b32 %r<2>;"))
            (path / "meta.json").write_text(json.dumps({**META, "name": case}))
            cases.append(path)
        bundles, errors = discover(cases)
        assert not errors
        revisions.append(sides_of(bundles, LoadOptions(assemble=False), root=str(tmp_path)))
    pairing = pair(*revisions)
    assert (pairing.removed, pairing.added) == ((), ())
    assert sorted((before.name, before.path, after.path) for before, after in pairing.pairs) == [
        ("dense", "dense", "dense"),
        ("make_maps_0", "dense", "dense"),
        ("make_maps_0", "ragged", "ragged"),
        ("ragged", "ragged", "ragged"),
    ]
