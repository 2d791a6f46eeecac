"""The registry and the kernel sources agree, without compiling anything."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import registry
from verifier.compile.store import module_sources
from verifier.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
CASES = registry.CASES
DEFECTS = [(case, defect) for case in CASES for defect in case.defects]


def defect_id(value: object) -> str:
    return str(getattr(value, "name", value))


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert len({defect.name for defect in case.defects}) == len(case.defects)


@pytest.mark.parametrize("case", CASES, ids=defect_id)
def test_case_is_complete_and_cannot_be_changed(case: registry.KernelCase) -> None:
    assert case.source.is_file()
    assert case.archs
    assert set(case.archs) <= {"sm_90a", "sm_100a", "sm_103a", "sm_107a"}
    assert all(isinstance(value, int | str | bool) for value in case.config.values())
    with pytest.raises(TypeError):
        case.config["m"] = 1  # type: ignore[index]
    assert registry.case(case.name) is case


@pytest.mark.parametrize(("case", "defect"), DEFECTS, ids=defect_id)
def test_defect_is_marked_on_one_line_and_built_by_the_kernel(
    case: registry.KernelCase, defect: registry.Defect
) -> None:
    (number,) = case.defect_lines(defect.name)
    text = case.defect_source(defect.name).read_text()
    line = text.splitlines()[number - 1]
    assert not line.lstrip().startswith("#"), "the marker belongs behind code"
    assert re.fullmatch(r"[A-Z]{3}\d{3}", defect.rule)
    sources = b"".join(module_sources(case.module, ROOT).values()).decode()
    assert f'"{defect.name}"' in sources, "no branch of the kernel asks for this defect"


@pytest.mark.parametrize("file", sorted((ROOT / "kernels").glob("*.py")), ids=lambda file: file.stem)
def test_every_marker_names_a_defect_that_some_kernel_has_there(file: Path) -> None:
    if file.stem in ("registry", "cases"):
        return
    names = {name for line in file.read_text().splitlines() for name in registry.marked(line)}
    assert names == {defect.name for case, defect in DEFECTS if case.defect_source(defect.name) == file}


def barriers_of(file: Path) -> set[str]:
    """Fields of the struct `Barriers` of a kernel, which may stand in a module that it takes names from."""
    tree = ast.parse(file.read_text())
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef) and owner.name == "Barriers":
            fields = [ast.unparse(node.target) for node in owner.body if isinstance(node, ast.AnnAssign)]
            return {name for name in fields if name != "tmem_address"}
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    cores = [file.parent / f"{module.rpartition('.')[2]}.py" for module in modules if module.startswith("kernels.")]
    return set().union(*(barriers_of(core) for core in cores))


@pytest.mark.parametrize("case", CASES, ids=defect_id)
def test_docstring_names_every_barrier_and_every_defect(case: registry.KernelCase) -> None:
    doc = ast.get_docstring(ast.parse(case.source.read_text())) or ""
    barriers = barriers_of(case.source)
    assert barriers
    documented = set(re.findall(r"^ {4}(\w+)(?:\[\w\])? +count \d+", doc, re.MULTILINE))
    assert documented == barriers
    assert all(re.search(rf"^ {{4}}{defect.name} ", doc, re.MULTILINE) for defect in case.defects)


def test_a_new_case_changes_no_kernel() -> None:
    """What is stored of a kernel depends on what it imports: the registry must not be among it."""
    for case in CASES:
        files = {path.name for path in module_sources(case.module, ROOT)}
        assert "common.py" in files or "operands.py" in files
        assert "registry.py" not in files


def test_marker_lists_several_names() -> None:
    assert registry.marked("    arrive(bar)  # defect: one, two") == ("one", "two")
    assert registry.marked("    arrive(bar)  # releases the stage") == ()


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="gemm_persistent"):
        registry.case("gemm")
    with pytest.raises(ConfigError, match="no-wait-ld"):
        registry.case("gemm_persistent").check_defect("no-wait")
    registry.case("gemm_persistent").check_defect(None)


def test_listing_imports_no_dsl() -> None:
    code = "import sys; import kernels.registry; print(sorted(m for m in sys.modules if m.startswith('cutlass')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
