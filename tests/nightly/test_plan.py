"""The cells of a run: which there are, and what their keys depend on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from verifier.compile.toolchain import Fingerprint, Tool
from verifier.config import Ignore
from verifier.errors import ConfigError
from verifier.nightly import plan as module
from verifier.nightly.cells import FileSubject
from verifier.nightly.plan import AS_BUILT, Cell, Column, Wish, plan
from verifier.nightly.settings import Configuration, Settings, ToolchainSettings
from verifier.nightly.toolchains import Toolchain

DIGEST = module.code_digest  # the fixture below replaces it, because it reads all of the verifier


@dataclass(frozen=True)
class Defect:
    name: str


@dataclass(frozen=True)
class Case:
    name: str
    module: str = "planned.kernel"
    config: dict[str, int | str | float | bool | None] = dataclasses.field(default_factory=lambda: {"n": 1})
    archs: tuple[str, ...] = ("sm_100a", "sm_103a")
    defects: tuple[Defect, ...] = ()


CASES = (Case("gemm", defects=(Defect("late"),)), Case("moe", archs=("sm_100a",)))


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "planned"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "kernel.py").write_text("def build(config, defect): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "code_digest", lambda: "code")
    return folder


def column(name: str = "one", *, ptxas: str = "", packages: tuple[str, ...] = (), **wanted: tuple[str, ...]) -> Column:
    tool = Tool(name="ptxas", path="/x/ptxas", version=ptxas, origin="wheel") if ptxas else None
    ready = Toolchain(name=name, fingerprint=Fingerprint(dsl="4.8.0"), ptxas=tool, packages=packages)
    return Column(wanted=ToolchainSettings(**wanted), ready=ready)


def cells(tmp_path: Path, *columns: Column, settings: Settings = Settings(), **wish: object) -> list[Cell]:  # noqa: B008
    return plan(CASES, (), columns or (column(),), settings, Wish(**wish), tmp_path / "cells")  # type: ignore[arg-type]


def labels(found: list[Cell]) -> list[str]:
    return [str(cell.label) for cell in found]


def test_the_matrix_is_a_product(tmp_path: Path) -> None:
    assert labels(cells(tmp_path, column("one"), column("two"))) == [
        "gemm sm_100a one",
        "gemm sm_100a two",
        "gemm sm_103a one",
        "gemm sm_103a two",
        "moe sm_100a one",
        "moe sm_100a two",
    ]


def test_settings_and_command_line_narrow_it(tmp_path: Path) -> None:
    assert labels(cells(tmp_path, archs=("sm_103a",))) == ["gemm sm_103a one"]
    assert labels(cells(tmp_path, kernels=("moe",))) == ["moe sm_100a one"]
    assert labels(cells(tmp_path, settings=Settings(kernels=("moe",)))) == ["moe sm_100a one"]
    narrow = column("two", archs=("sm_103a",), kernels=("gemm",))
    assert labels(cells(tmp_path, column("one", kernels=("moe",)), narrow)) == ["gemm sm_103a two", "moe sm_100a one"]


def test_configurations_are_rows_of_their_own(tmp_path: Path) -> None:
    settings = Settings(configurations=(Configuration(kernel="gemm", name="wide", set={"n": 2}, archs=("sm_100a",)),))
    found = cells(tmp_path, settings=settings)
    assert "gemm[wide] sm_100a one" in labels(found)
    wide = next(cell for cell in found if cell.label.kernel == "gemm[wide]")
    assert wide.spec.subject.config == {"n": 2}  # type: ignore[union-attr]
    assert labels(cells(tmp_path, settings=settings, kernels=("gemm",), archs=("sm_100a",))) == [
        "gemm sm_100a one",
        "gemm[wide] sm_100a one",
    ]


@pytest.mark.parametrize(
    ("settings", "wish"),
    [
        (Settings(), {"kernels": ("nothing",)}),
        (Settings(), {"archs": ("sm_90a",)}),
        (Settings(), {"defect": "unheard"}),
        (Settings(configurations=(Configuration(kernel="gone", name="x", set={}),)), {}),
        (Settings(configurations=(Configuration(kernel="gemm", name="x", set={"m": 1}),)), {}),
    ],
)
def test_what_makes_no_sense_is_an_error(tmp_path: Path, settings: Settings, wish: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        cells(tmp_path, settings=settings, **wish)


def test_a_defect_goes_into_the_kernels_that_have_it(tmp_path: Path) -> None:
    found = {str(cell.label): cell.spec.subject.defect for cell in cells(tmp_path, defect="late")}  # type: ignore[union-attr]
    assert found == {"gemm sm_100a one": "late", "gemm sm_103a one": "late", "moe sm_100a one": None}


def test_the_key_covers_what_decides_the_result(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(*columns: Column, **options: object) -> str:
        return cells(tmp_path, *columns, **options)[0].spec.key  # type: ignore[arg-type]

    first = key()
    assert key() == first
    assert key(settings=Settings(seconds=5, memory=1 << 30, jobs=9)) == first
    ignore = Ignore(code="TCG101", reason="r")
    changed = {
        key(column(ptxas="12.9.86")),
        key(column(ptxas="13.5.37")),
        key(column(packages=("nvidia-cutlass-dsl==4.8.1",))),
        key(settings=Settings(select=("TCG",))),
        key(settings=Settings(ignores=(ignore,))),
        key(defect="late"),
    }
    monkeypatch.setattr(module, "code_digest", lambda: "other code")
    changed.add(key())
    (package / "kernel.py").write_text("def build(config, defect): return 1\n")
    changed.add(key())
    assert first not in changed
    assert len(changed) == 8


def test_the_code_of_the_verifier_has_a_digest() -> None:
    assert DIGEST() == DIGEST()
    assert len(DIGEST()) == 64


def test_a_toolchain_that_is_not_there_is_the_error_of_its_cells(tmp_path: Path) -> None:
    broken = Column(wanted=ToolchainSettings(), ready=Toolchain(name="two", error="cannot be installed"))
    found = cells(tmp_path, column("one"), broken)
    assert {cell.label.toolchain: cell.error for cell in found} == {"one": "", "two": "cannot be installed"}


def test_a_kernel_without_a_module_is_the_error_of_its_cells(tmp_path: Path, package: Path) -> None:
    (package / "kernel.py").unlink()
    found = cells(tmp_path)
    assert found
    assert all("no module planned.kernel" in cell.error for cell in found)


def test_compiled_files_are_cells(tmp_path: Path) -> None:
    file = tmp_path / "a.ptx"
    file.write_text("one")
    subject = FileSubject(source="a.ptx", files={"ptx": str(file)})

    def key() -> str:
        (cell,) = plan((), (subject,), (column(),), Settings(), Wish(), tmp_path)
        assert (cell.label.kernel, cell.label.toolchain) == ("a.ptx", AS_BUILT)
        return cell.spec.key

    first = key()
    assert key() == first
    file.write_text("two")
    assert key() != first
    file.unlink()
    (cell,) = plan((), (subject,), (column(),), Settings(), Wish(), tmp_path)
    assert "cannot be read" in cell.error
