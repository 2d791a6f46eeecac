"""What every rule must have: a place, a name, a documentation with all sections."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from verifier import __version__
from verifier.config import Policy
from verifier.errors import ConfigError
from verifier.findings import Hazard, Judgement
from verifier.rules import SECTIONS, Rule, Subject, all_rules, find_rule, parse_doc, registry, rule, select_rules
from verifier.rules.docs import code_blocks

RULES = all_rules()
FOLDER = Path(registry.__file__).parent
MAX_RULE_FILE = 200

each_rule = pytest.mark.parametrize("known", RULES, ids=lambda known: known.code)

DOC = """Something is wrong.

What
    A.
Why
    B.
ISA
    C.
Bad
    ```ptx
    bad;
    ```
Good
    D.
Limits
    E.
"""


def test_every_rule_file_is_registered() -> None:
    files = {path.stem[:6].upper() for path in FOLDER.glob("[a-z][a-z][a-z][0-9][0-9][0-9]_*.py")}
    assert files == {known.code for known in RULES}


@each_rule
def test_documentation(known: Rule) -> None:
    assert tuple(known.doc.sections) == SECTIONS
    assert known.doc.summary.endswith(".")
    assert len(known.doc.summary) <= 110
    assert code_blocks(known.doc.sections["Bad"]), "Bad needs a fenced block of code"
    assert code_blocks(known.doc.sections["Good"]), "Good needs a fenced block of code"


@each_rule
def test_metadata(known: Rule) -> None:
    def version(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("."))

    assert version(known.since) <= version(__version__)
    assert find_rule(known.code) == find_rule(known.name) == known


@each_rule
def test_file_is_short(known: Rule) -> None:
    path = FOLDER / f"{known.code.lower()}_{known.name.replace('-', '_')}.py"
    assert len(path.read_text().splitlines()) <= MAX_RULE_FILE


def test_codes_and_names_are_unique() -> None:
    assert len({known.code for known in RULES}) == len({known.name for known in RULES}) == len(RULES)


# The framework itself, on rules of its own.


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> object:
    """Register a throw-away rule under a module name and docstring."""
    monkeypatch.setattr(registry, "_rules", {})

    def declare(module: str = "xyz001_odd_thing", doc: str | None = DOC, **changes: object) -> Rule:
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module, doc))

        def check(kernel: Subject, policy: Policy) -> Iterator[Judgement]:
            yield from ()

        check.__module__ = module
        facts = {"code": "XYZ001", "name": "odd-thing", "hazard": Hazard.CONTRACT, "since": "0.1.0"} | changes
        rule(**facts)(check)  # type: ignore[arg-type]
        return registry._rules[str(facts["code"])]

    return declare


def test_a_sound_rule_registers(declare) -> None:  # type: ignore[no-untyped-def]
    known = declare()
    assert known.doc.summary == "Something is wrong."
    assert known.doc.sections["Bad"] == "```ptx\nbad;\n```"
    assert code_blocks(known.doc.sections["Bad"]) == ["bad;"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": "XY1"}, "not a rule code"),
        ({"name": "Odd Thing"}, "not a kebab-case name"),
        ({"isa": ()}, "isa must name"),
        ({"isa": ("spirv",)}, "isa must name"),
        ({"arch": ("sm_100a",)}, "arch must name families"),
        ({"module": "xyz001_other"}, "must be named xyz001_odd_thing.py"),
        ({"module": "odd_thing"}, "must be named xyz001_odd_thing.py"),
        ({"doc": None}, "needs a docstring"),
        ({"doc": DOC.replace("Why\n    B.\n", "")}, "sections must be"),
    ],
)
def test_an_unsound_rule_does_not(declare, changes: dict[str, object], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        declare(**changes)


def test_a_code_is_taken_once(declare) -> None:  # type: ignore[no-untyped-def]
    declare()
    with pytest.raises(ValueError, match="is taken"):
        declare()


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        (DOC.replace("    E.\n", ""), "none empty"),
        (DOC.replace("Limits", "Borders"), "sections must be"),
        (DOC + "What\n    Again.\n", "stands twice"),
        (DOC.replace("What\n", "Loose text.\nWhat\n", 1), "text before the first section"),
        (DOC.replace("What\n    A.\nWhy\n    B.\n", "Why\n    B.\nWhat\n    A.\n"), "sections must be"),
    ],
)
def test_a_documentation_with_a_flaw_is_refused(doc: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_doc(doc)


class TestSelection:
    """Prefixes, codes and names, on rules of its own."""

    @pytest.fixture(autouse=True)
    def _three_rules(self, declare, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
        made = [
            declare("abc001_first", code="ABC001", name="first"),
            declare("abc002_second", code="ABC002", name="second"),
            declare("xyz001_odd_thing"),
        ]
        for module in (importlib.import_module("verifier.rules"), registry):
            monkeypatch.setattr(module, "all_rules", lambda: tuple(made))

    @pytest.mark.parametrize(
        ("select", "ignore", "codes"),
        [
            ((), (), "ABC001 ABC002 XYZ001"),
            (("ABC",), (), "ABC001 ABC002"),
            (("abc",), ("second",), "ABC001"),
            (("odd-thing", "ABC002"), (), "ABC002 XYZ001"),
            ((), ("ABC001",), "ABC002 XYZ001"),
        ],
    )
    def test_selects(self, select: tuple[str, ...], ignore: tuple[str, ...], codes: str) -> None:
        assert " ".join(known.code for known in registry.select_rules(select, ignore)) == codes

    @pytest.mark.parametrize(
        ("select", "ignore"), [(("NOPE",), ()), ((), ("NOPE",)), (("ABC",), ("ABC",)), (("",), ())]
    )
    def test_refuses(self, select: tuple[str, ...], ignore: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError):
            select_rules(select, ignore)
