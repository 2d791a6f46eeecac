"""The folder of a compiled kernel: what is written is what is read, and nothing else is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from verifier.compile import artifacts as module
from verifier.compile.artifacts import Artifacts, read_artifacts, write_artifacts
from verifier.errors import InputError


def test_a_round_trip_keeps_everything(tmp_path: Path, artifacts: Artifacts) -> None:
    written = write_artifacts(tmp_path / "scale.sm_90a", artifacts)
    assert read_artifacts(tmp_path / "scale.sm_90a") == written
    assert msgspec.structs.replace(written, path=None, meta=artifacts.meta) == artifacts
    assert set(written.meta.files) == {"kernel.ptx", "kernel.cubin", "kernel.sass", "kernel.mlir"}


def test_optional_files_may_be_absent(tmp_path: Path, artifacts: Artifacts) -> None:
    only_ptx = Artifacts(meta=artifacts.meta, ptx=artifacts.ptx)
    write_artifacts(tmp_path / "k", only_ptx)
    found = read_artifacts(tmp_path / "k")
    assert (found.ptx, found.cubin, found.sass, found.mlir) == (artifacts.ptx, None, None, None)


def test_a_folder_is_never_overwritten(tmp_path: Path, artifacts: Artifacts) -> None:
    write_artifacts(tmp_path / "k", artifacts)
    with pytest.raises(FileExistsError):
        write_artifacts(tmp_path / "k", Artifacts(meta=artifacts.meta))
    assert read_artifacts(tmp_path / "k").ptx == artifacts.ptx


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(partial: Path, folder: Path) -> None:
        raise OSError("no space")

    monkeypatch.setattr(module, "_move_into_place", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_artifacts(tmp_path / "k", artifacts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["kernel.ptx", "kernel.cubin", "kernel.sass", "kernel.mlir"])
def test_a_changed_or_missing_file_is_refused(tmp_path: Path, artifacts: Artifacts, name: str) -> None:
    write_artifacts(tmp_path / "k", artifacts)
    file = tmp_path / "k" / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(InputError, match=f"{name}: not the file that was compiled"):
        read_artifacts(tmp_path / "k")
    file.unlink()
    with pytest.raises(InputError, match=f"{name}: cannot be read: No such file"):
        read_artifacts(tmp_path / "k")


def test_a_file_taken_out_of_the_digests_may_be_edited(tmp_path: Path, artifacts: Artifacts) -> None:
    write_artifacts(tmp_path / "k", artifacts)
    meta = json.loads((tmp_path / "k" / "meta.json").read_text())
    del meta["files"]["kernel.ptx"]
    (tmp_path / "k" / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "k" / "kernel.ptx").write_text("edited")
    assert read_artifacts(tmp_path / "k").ptx == "edited"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not the description of a compiled kernel"),
        (b'{"name": "x"', "not the description of a compiled kernel"),
        (b'{"name": "x"}', "missing required field `arch`"),
        (b'{"name": 1, "arch": "sm_90a"}', "Expected `str`, got `int`"),
        (b'{"schema_version": 2, "name": "x", "arch": "sm_90a"}', "schema version 2, but this verifier reads 1"),
    ],
)
def test_a_bad_description_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "meta.json").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_artifacts(tmp_path)
    assert caught.value.where == str(tmp_path / "meta.json")


def test_binary_in_a_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"name": "x", "arch": "sm_90a"}')
    (tmp_path / "kernel.ptx").write_bytes(b".version\xff\xfe")
    with pytest.raises(InputError, match="not text: invalid start byte at byte 8"):
        read_artifacts(tmp_path)


def test_a_folder_without_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_artifacts(tmp_path)
