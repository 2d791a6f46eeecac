"""`verifier show` on a kernel with two roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Verifier

TWO_ROLES = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 8 .b64 full;

.visible .entry two_roles()
.reqntid 96, 1, 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    setp.ne.s32 %p1, %r2, 2;
    @%p1 bra WAIT;
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mbarrier.arrive.release.cta.shared::cta.b64 _, [full];
    ret;
WAIT:
    bar.sync 0;
AGAIN:
    mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [full], 0;
    @!%p2 bra AGAIN;
    ret;
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "two.ptx"
    path.write_text(TWO_ROLES)
    return path


def test_streams_split_the_warps(verifier: Verifier, kernel: Path) -> None:
    ran = verifier("show", "streams", kernel)
    assert (ran.code, ran.err) == (0, "")
    assert "PTX: 13 instructions, block 96x1x1, cluster unknown" in ran.out
    lines = ran.out.splitlines()
    (waiting,) = [line for line in lines if "warps 0-1" in line]
    (arriving,) = [line for line in lines if "warp 2 " in line]
    assert "1 loop" in waiting
    assert "0 loops" in arriving
    assert "1 barrier init" in lines[lines.index(arriving) + 1]


def test_barriers_say_who_does_what(verifier: Verifier, kernel: Path) -> None:
    out = verifier("show", "barriers", kernel).out
    assert "full: 1 stage, count 1" in out
    assert "wait acquire.cta (parity 0) by" in out
    assert "PTX 23" in out


def test_barriers_of_the_mailbox_have_both_sides_and_what_they_guard(verifier: Verifier) -> None:
    """Bytes, parities and data of a kernel with every kind of signal; no barrier is left out."""
    stored = Path(__file__).parents[1] / "data" / "gemm_splitk_mailbox.sm_100a.ptx"
    lines = [line.strip() for line in verifier("show", "barriers", stored).out.splitlines()]
    heads = [line for line in lines if line.startswith("__dynamic_shmem__0") and "count" in line]
    assert sum(int(line.split(": ")[1].split()[0]) for line in heads) == stored.read_text().count("mbarrier.init")
    for head in heads:
        index = lines.index(head)
        block = lines[index + 1 : next((i for i in range(index + 1, len(lines)) if lines[i] in heads), len(lines))]
        assert any(line.startswith("wait ") for line in block), head
        assert any(line.startswith(("arrive ", "tcgen05 commit ")) for line in block), head
        assert any(line.startswith("guards ") for line in block), head
    text = "\n".join(lines)
    assert "arrive relaxed.cluster (count 1, expecting 16384 bytes) by tma-load" in text
    assert "wait acquire.cta (parity 1) by mma" in text
    assert "__dynamic_shmem__0+132096 + stage written by st.async of epilogue" in text
    assert "tensor memory of tmem load by epilogue" in text


def test_skeleton_has_only_what_synchronizes(verifier: Verifier, kernel: Path) -> None:
    lines = verifier("show", "skeleton", kernel).out.splitlines()
    assert [line.split()[0] for line in lines if "[PTX" in line].count("wait") == 1
    assert not any("shr" in line for line in lines)


def test_cfg_names_loops_and_guards(verifier: Verifier, kernel: Path) -> None:
    out = verifier("show", "cfg", kernel).out
    assert "loop header" in out
    assert "if not %p2" in out


def test_an_unknown_block_is_an_assumption(verifier: Verifier, kernel: Path) -> None:
    kernel.write_text(TWO_ROLES.replace(".reqntid 96, 1, 1\n", ""))
    assert "note: block size not known" in verifier("show", "streams", kernel).out
    told = verifier("show", "streams", kernel, "--block", "96", "--cluster", "2").out
    assert "block 96x1x1, cluster 2x1x1" in told
    assert "note:" not in told


def test_a_protocol_is_drawn(verifier: Verifier, kernel: Path, tmp_path: Path) -> None:
    ran = verifier("show", "protocol", kernel, "--svg", tmp_path / "round.svg")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "round.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("view", "kernels", "message"),
    [
        ("streams", 1, "--svg draws a protocol, not streams"),
        ("protocol", 2, "--svg draws one kernel, and there are 2"),
        ("protocol", 0, "nothing is drawn, because there is no protocol"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    verifier: Verifier, kernel: Path, tmp_path: Path, view: str, kernels: int, message: str
) -> None:
    if kernels == 0:
        kernel.write_text(TWO_ROLES.replace(".reqntid 96, 1, 1\n", ""))
    (tmp_path / "more.ptx").write_text(TWO_ROLES)
    paths = [kernel, tmp_path / "more.ptx"][: kernels or 1]
    ran = verifier("show", view, *paths, "--svg", tmp_path / "round.svg")
    assert ran.code == 2
    assert message in ran.err
    assert not (tmp_path / "round.svg").exists()


def test_some_files_cannot_be_shown(verifier: Verifier, kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.ptx").write_text("")
    ran = verifier("show", "streams", kernel, tmp_path / "bad.ptx")
    assert ran.code == 2
    assert "two_roles" in ran.out
    assert "error: the file is empty" in ran.err
