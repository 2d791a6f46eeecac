"""`--block` and `--cluster`: launches that no hardware allows, or that the kernel itself rules out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import Verifier, one_message

MakePtx = Callable[..., Path]


@pytest.mark.parametrize(
    ("option", "shape", "problem"),
    [
        ("--block", "64,64,64", "a CTA has at most 1024 threads, not 262144"),
        ("--block", "1025", "a CTA has at most 1024 threads, not 1025"),
        ("--block", "1,1,65", "a CTA has at most 64 threads along z"),
        ("--cluster", "99", "a cluster has at most 16 CTAs, not 99"),
        ("--cluster", "3x3x2", "a cluster has at most 16 CTAs, not 18"),
    ],
)
@pytest.mark.parametrize("command", [("check",), ("show", "streams"), ("baseline",)])
def test_beyond_every_hardware(
    verifier: Verifier, ptx: MakePtx, command: tuple[str, ...], option: str, shape: str, problem: str
) -> None:
    ran = verifier(*command, ptx(), option, shape)
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err


@pytest.mark.parametrize(
    ("directive", "options", "problem"),
    [
        (".reqntid 128, 1, 1", ("--block", "64"), "--block 64,1,1 contradicts .reqntid 128,1,1"),
        (".reqntid 128, 1, 1", ("--block", "64,2"), "--block 64,2,1 contradicts .reqntid 128,1,1"),
        (".maxntid 128", ("--block", "160"), "--block 160,1,1 is more than .maxntid 128,1,1"),
        (
            ".reqntid 128, 1, 1\n.reqnctapercluster 2",
            ("--cluster", "4"),
            "--cluster 4,1,1 contradicts .reqnctapercluster 2,1,1",
        ),
    ],
)
def test_contradicting_the_kernel(
    verifier: Verifier, ptx: MakePtx, directive: str, options: tuple[str, ...], problem: str
) -> None:
    path = ptx()
    path.write_text(path.read_text().replace(".reqntid 128, 1, 1", directive))
    ran = verifier("check", path, *options)
    assert one_message(ran), ran
    assert f"error: {problem} of kernel kernel_a\n  where: {path}" in ran.err


def test_contradicting_the_machine_code(verifier: Verifier, cubin: Path) -> None:
    ran = verifier("check", cubin, "--block", "64")
    assert one_message(ran), ran
    assert "--block 64,1,1 contradicts .reqntid 128,1,1 of kernel kernel_a" in ran.err


@pytest.mark.parametrize(
    ("directive", "options"),
    [
        (".reqntid 128, 1, 1", ("--block", "128", "--cluster", "16")),
        (".maxntid 128", ("--block", "64,2")),
        (".reqntid 128, 1, 1\n.reqnctapercluster 2", ("--cluster", "2")),
        ("", ("--block", "1024", "--cluster", "4,4")),
    ],
)
def test_what_the_kernel_allows(verifier: Verifier, ptx: MakePtx, directive: str, options: tuple[str, ...]) -> None:
    path = ptx()
    path.write_text(path.read_text().replace(".reqntid 128, 1, 1", directive))
    assert verifier("check", path, "--no-assemble", *options).code == 0
