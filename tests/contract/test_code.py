"""The house rules that a machine can check: size of modules and functions, import layers, no pickle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for folder in ("verifier", "kernels") for path in (ROOT / folder).rglob("*.py"))
MAX_MODULE = 400
MAX_FUNCTION = 40

by_path = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))


def long_functions(tree: ast.AST, limit: int) -> Iterator[str]:
    """`name: lines` of every function that is longer than `limit`, its docstring not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            documented = ast.get_docstring(node, clean=False) is not None
            doc = (body[0].end_lineno or 0) - body[0].lineno + 1 if documented else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - doc
            if lines > limit:
                yield f"{node.name}: {lines}"


@by_path
def test_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_MODULE


@by_path
def test_functions_are_short(path: Path) -> None:
    assert list(long_functions(ast.parse(path.read_text()), MAX_FUNCTION)) == []


def test_a_long_function_is_seen() -> None:
    source = 'def f():\n    """Doc\n\n    more"""\n' + "    x = 1\n" * 5
    assert list(long_functions(ast.parse(source), 6)) == []
    assert list(long_functions(ast.parse(source), 5)) == ["f: 6"]


@by_path
def test_nothing_is_pickled(path: Path) -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}


def test_imports_point_downwards() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
