"""The store: an entry is whole or absent, keys cover what decides the output, any number of processes may use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from verifier.compile import store as module
from verifier.compile.artifacts import Artifacts, Meta
from verifier.compile.store import Store, case_key, compiler_environment, default_store, module_sources
from verifier.compile.toolchain import Fingerprint
from verifier.errors import ConfigError, InputError

KEY = "ab" * 32


def test_what_was_put_is_found(tmp_path: Path, artifacts: Artifacts) -> None:
    store = Store(tmp_path)
    assert store.get(KEY) is None
    put = store.put(KEY, artifacts)
    assert store.get(KEY) == put
    assert put.cubin == artifacts.cubin


def test_the_first_whole_entry_stays(tmp_path: Path, artifacts: Artifacts) -> None:
    store = Store(tmp_path)
    first = store.put(KEY, artifacts)
    assert store.put(KEY, Artifacts(meta=artifacts.meta, ptx="another")) == first


@pytest.mark.parametrize("damage", ["change", "truncate", "remove", "no meta"])
def test_a_damaged_entry_is_absent_and_can_be_rebuilt(tmp_path: Path, artifacts: Artifacts, damage: str) -> None:
    store = Store(tmp_path)
    folder = store.put(KEY, artifacts).path
    assert folder is not None
    file = folder / ("meta.json" if damage == "no meta" else "kernel.cubin")
    if damage in ("remove", "no meta"):
        file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes(data[:-1] if damage == "truncate" else data[:-1] + b"\x01")
    assert store.get(KEY) is None
    assert store.put(KEY, artifacts).cubin == artifacts.cubin
    assert store.get(KEY) is not None


def test_a_damaged_entry_is_replaced_by_put_alone(tmp_path: Path, artifacts: Artifacts) -> None:
    store = Store(tmp_path)
    folder = store.put(KEY, artifacts).path
    assert folder is not None
    (folder / "kernel.ptx").write_text("damaged")
    assert store.put(KEY, artifacts).ptx == artifacts.ptx


def test_many_processes_may_file_the_same_entries(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from verifier.compile.artifacts import Artifacts, Meta\n"
        "from verifier.compile.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for i in range(60):\n"
        "    key = f'{i:064x}'\n"
        "    made = Artifacts(meta=Meta(name=f'k{i}', arch='sm_90a'), ptx=f'text {i}' * 1000)\n"
        "    assert store.put(key, made).ptx == made.ptx\n"
        "    found = store.get(key)\n"
        "    assert found is not None and found.ptx == made.ptx\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert list(tmp_path.rglob("*.partial")) == []
    assert len(list((tmp_path / "v1").glob("*/*"))) == 60


def test_pruning_removes_what_was_used_least_recently(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keys = [f"{i:064x}" for i in range(4)]
    for age, key in enumerate(keys):
        folder = store.put(key, Artifacts(meta=Meta(name=key, arch="sm_90a"), ptx="x" * 10_000)).path
        assert folder is not None
        os.utime(folder / "meta.json", (1_000_000 + age, 1_000_000 + age))
    assert store.get(keys[0]) is not None  # used now
    pruned = store.prune(25_000)
    assert (pruned.removed, pruned.left) == (2, 2)
    assert [store.get(key) is not None for key in keys] == [True, False, False, True]
    assert pruned.left_bytes <= 25_000 < pruned.left_bytes + pruned.removed_bytes


def test_pruning_a_small_or_absent_store_removes_nothing(tmp_path: Path, artifacts: Artifacts) -> None:
    store = Store(tmp_path / "absent")
    assert store.prune(0).removed == 0
    store.put(KEY, artifacts)
    assert store.prune(1 << 30).removed == 0
    assert store.get(KEY) is not None


def test_pruning_spares_what_is_being_written_and_removes_what_was_abandoned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.path_of(KEY).parent
    young, old = folder / f".{KEY}.1.partial", folder / f".{KEY}.2.partial"
    for partial in (young, old):
        partial.mkdir(parents=True)
        (partial / "kernel.ptx").write_text("x" * 1000)
    os.utime(old, (1_000_000, 1_000_000))
    assert store.prune(0).removed == 0
    assert (young.exists(), old.exists()) == (True, False)


def test_a_store_that_cannot_be_written_is_a_configuration_error(tmp_path: Path, artifacts: Artifacts) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="store cannot be written") as caught:
        Store(tmp_path / "file").put(KEY, artifacts)
    assert "VERIFIER_CACHE_DIR" in caught.value.do


def test_the_location(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VERIFIER_CACHE_DIR", str(tmp_path))
    assert default_store().root == tmp_path
    monkeypatch.delenv("VERIFIER_CACHE_DIR")
    assert default_store().root.name == "ptx-sass-verifier"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package `kk`: kk.a imports kk.b and kk.sub.c, kk.c_unused is imported by none."""
    files = {
        "kk/__init__.py": "",
        "kk/a.py": "import os\nfrom kk import b\nfrom .sub.c import thing\n",
        "kk/b.py": "from . import a\n",
        "kk/sub/__init__.py": "",
        "kk/sub/c.py": "def f():\n    import kk.late as late\n",
        "kk/late.py": "",
        "kk/unused.py": "",
        "os.py": "raise AssertionError('not of the package')\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_sources_are_the_module_and_what_it_imports_of_its_package(package: Path) -> None:
    names = [str(path.relative_to(package)) for path in module_sources("kk.a", package)]
    assert names == ["kk/__init__.py", "kk/a.py", "kk/b.py", "kk/late.py", "kk/sub/__init__.py", "kk/sub/c.py"]


def test_a_package_is_a_module_too(package: Path) -> None:
    assert package / "kk" / "sub" / "__init__.py" in module_sources("kk.sub", package)


def test_a_module_that_is_missing_or_no_python(package: Path) -> None:
    with pytest.raises(InputError, match=r"no module kk\.nothing"):
        module_sources("kk.nothing", package)
    (package / "kk" / "b.py").write_text("x = 1\ndef (:\n")
    with pytest.raises(InputError, match="not valid Python") as caught:
        module_sources("kk.a", package)
    assert caught.value.where == f"{package / 'kk' / 'b.py'}:2"


BASE = {
    "sources": {Path("/k/a.py"): b"x = 1"},
    "module": "k.a",
    "config": {"n": 1},
    "arch": "sm_100a",
    "defect": None,
    "toolchain": Fingerprint(dsl="4.8.1", ptxas="13.5.37"),
}


@pytest.mark.parametrize(
    "change",
    [
        {"sources": {Path("/k/a.py"): b"x = 2"}},
        {"sources": {Path("/other/a.py"): b"x = 1"}},
        {"sources": {Path("/k/a.py"): b"x = 1", Path("/k/b.py"): b""}},
        {"module": "k.b"},
        {"config": {"n": 2}},
        {"config": {"n": "1"}},
        {"config": {"n": True}},
        {"arch": "sm_103a"},
        {"defect": "late"},
        {"toolchain": Fingerprint(dsl="4.8.2", ptxas="13.5.37")},
        {"toolchain": Fingerprint(dsl="4.8.1", ptxas="13.5.37", driver="12.8")},
    ],
)
def test_every_part_changes_the_key(change: dict[str, object]) -> None:
    assert case_key(**BASE) == case_key(**BASE)  # type: ignore[arg-type]
    assert case_key(**(BASE | change)) != case_key(**BASE)  # type: ignore[arg-type]


def test_the_order_of_the_configuration_does_not_matter() -> None:
    there, back = BASE | {"config": {"a": 1, "b": 2}}, BASE | {"config": {"b": 2, "a": 1}}
    assert case_key(**there) == case_key(**back)  # type: ignore[arg-type]


def test_variables_of_the_compiler_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = case_key(**BASE)  # type: ignore[arg-type]
    monkeypatch.setenv("CUTE_DSL_ENABLE_ASSERTIONS", "1")
    assert case_key(**BASE) != before  # type: ignore[arg-type]
    monkeypatch.delenv("CUTE_DSL_ENABLE_ASSERTIONS")
    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", "/elsewhere")  # the worker sets its own
    monkeypatch.setenv("UNRELATED", "1")
    assert case_key(**BASE) == before  # type: ignore[arg-type]


def test_only_variables_of_the_compiler_count() -> None:
    given = {"CUTE_DSL_NO_CACHE": "1", "CUTLASS_X": "2", "CUTE_DSL_ARCH": "sm_80", "PATH": "/bin"}
    assert compiler_environment(given) == {"CUTE_DSL_NO_CACHE": "1", "CUTLASS_X": "2"}


def test_a_store_holds_no_pickle(tmp_path: Path, artifacts: Artifacts) -> None:
    folder = Store(tmp_path).put(KEY, artifacts).path
    assert folder is not None
    assert {path.suffix for path in folder.iterdir()} == {".json", ".ptx", ".cubin", ".sass", ".mlir"}
    assert msgspec.json.decode((folder / "meta.json").read_bytes(), type=Meta).name == "scale"


def test_a_race_for_a_damaged_entry_ends(tmp_path: Path, artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def always_there(folder: Path, made: Artifacts) -> Artifacts:
        raise FileExistsError

    monkeypatch.setattr(module, "write_artifacts", always_there)
    with pytest.raises(ConfigError, match="damaged and cannot be replaced"):
        store.put(KEY, artifacts)
